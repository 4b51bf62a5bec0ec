"""Who may speak with whom: the policies of roles as Kubernetes has them, made and removed with the run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_training.documents.resolved import ResolvedNetworkPolicy, ResolvedNetworkRule
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.facts import RunFacts, facts_of
from airflow_training.runtimes.kubernetes.network_policies import policy_documents
from airflow_training.runtimes.kubernetes.rights import needed_rights
from tests.kubernetes.conftest import Stage, resolved
from tests.kubernetes.samples import RUN, a_job, a_role
from tests.kubernetes.test_rights import problems

Rule = ResolvedNetworkRule
DNS = {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}


def documents(**policy: Any) -> list[dict[str, Any]]:
    job = a_job(a_role(network_policy=ResolvedNetworkPolicy(**policy)), a_role("ps"))
    facts = RunFacts.from_json(facts_of(RUN, job).to_json())
    policies = {name: role.network_policy for name, role in facts.roles.items()}
    return [*policy_documents(RUN, policies, record_uid="u")]


def pods(role: str) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": {names.RUN: RUN.uid, names.ROLE: role}}}


@pytest.mark.parametrize(
    ("policy", "spec"),
    [
        pytest.param({"ingress": ()}, {"ingress": [], "policyTypes": ["Ingress"]}, id="nobody-comes-in"),
        pytest.param(
            {"ingress": (Rule(roles=("worker", "ps"), ports=(2345,)), Rule())},
            {
                "ingress": [
                    {"from": [pods("worker"), pods("ps")], "ports": [{"protocol": "TCP", "port": 2345}]},
                    {},
                ],
                "policyTypes": ["Ingress"],
            },
            id="roles-and-everybody",
        ),
        pytest.param({"egress": ()}, {"egress": [DNS], "policyTypes": ["Egress"]}, id="only-names-are-asked-for"),
        pytest.param(
            {"ingress": (), "egress": (Rule(peers=({"ipBlock": {"cidr": "10.0.0.0/8"}},)),)},
            {
                "ingress": [],
                "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}, DNS],
                "policyTypes": ["Ingress", "Egress"],
            },
            id="both-ways",
        ),
    ],
)  # fmt: skip
def test_a_policy_is_that_of_the_role(policy, spec):
    (made,) = documents(**policy)
    assert made["spec"] == {**pods("worker"), **spec}
    assert made["metadata"]["name"] == "digits-01234-worker"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u"


def test_a_role_without_rules_has_no_policy_and_needs_no_right():
    assert documents() == []
    for policy, needed in ((ResolvedNetworkPolicy(ingress=()), True), (None, False)):
        facts = facts_of(RUN, a_job(a_role(network_policy=policy)))
        kinds = {str(kind) for kind, _, _ in needed_rights(facts)}
        assert ("networkpolicies.networking.k8s.io" in kinds) == needed


@pytest.mark.e2e
async def test_policies_are_made_before_pods_and_go_with_the_run(stage: Stage):
    job = resolved(
        {"name": "worker", "replicas": 2, "networkPolicy": {"ingress": [{"roles": ["worker"]}], "egress": []}},
        cleanPodPolicy="All",
    )  # fmt: skip
    control = stage.cluster.control
    control.add_user("least", token="least")
    (problem,) = await problems(stage.runtime(token="least"), job)
    assert "create networkpolicies" in problem.message
    assert await problems(stage.runtime(), job) == []
    uid = stage.launch(job)
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        (made,) = control.list("networkpolicies")
        assert made["spec"]["policyTypes"] == ["Ingress", "Egress"]
        assert json.dumps(made["spec"]["ingress"]).count(uid) == 1
        stage.store.add_request(uid, "stop", reason="enough")
        assert await task == "Stopped"
    assert not control.list("networkpolicies")
