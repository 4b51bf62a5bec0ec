"""What a cluster lacks for a job is said before anything is created, with the way to close the gap."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from airflow_training.admission.launch import check_runtime
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.runtimes.kubernetes.rights import needed_rights
from airflow_training.runtimes.kubernetes.runtime import KubernetesRuntime
from tests.kubernetes.conftest import CONTROLLER, Stage, resolved
from tests.waiting import until


async def problems(runtime: KubernetesRuntime, job: ResolvedJob) -> list[Any]:
    """Return what `airflow-training run` and the plan task would refuse the job for."""
    try:
        await check_runtime(
            job,
            key=RunKey(source="cli", run_id="checked"),
            controller=CONTROLLER,
            runtime=runtime,
        )
    except InputError as error:
        return list(error.problems)
    return []


def quota(**hard: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {key.replace("_", "."): value for key, value in hard.items()}},
    }


@pytest.mark.e2e
async def test_a_cluster_with_everything_has_no_problems(stage: Stage):
    assert await problems(stage.runtime(), resolved()) == []


@pytest.mark.e2e
async def test_missing_rights_are_printed_as_the_rules_to_add(stage: Stage):
    control = stage.cluster.control
    control.add_user("looker", token="looker")
    control.allow("looker", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}])
    (problem,) = await problems(stage.runtime(token="looker"), resolved())
    assert (problem.code, problem.field) == ("not_allowed", "metadata.namespace")
    assert "create pods" in problem.message
    assert "get pods," not in problem.message
    # what is printed is what closes the gap
    rules = yaml.safe_load("\n".join(problem.hint.splitlines()[1:]))
    control.allow("looker", rules, namespace="default")
    assert await problems(stage.runtime(token="looker"), resolved()) == []


@pytest.mark.e2e
async def test_a_run_needs_no_more_rights_than_it_asks_for(stage: Stage):
    """From creation through failure, replacement and deletion to the last look at logs."""
    control = stage.cluster.control
    control.add_user("least", token="least")
    job = resolved({"name": "worker", "replicas": 2}, cleanPodPolicy="All")
    (problem,) = await problems(stage.runtime(token="least"), job)
    control.allow(
        "least", yaml.safe_load("\n".join(problem.hint.splitlines()[1:])), namespace="default"
    )
    uid = stage.launch(job)
    async with stage.driving(uid, runtime=stage.runtime(token="least")) as task:
        await stage.until_running(uid)
        control.finish(stage.name("worker-1"), exit_code=3)
        await until(lambda: stage.entry(uid, index=1).attempt == 1)
        await stage.until_running(uid)
        stage.store.add_request(uid, "stop", reason="enough")
        assert await task == "Stopped"
    assert not stage.pods()
    refused = [e for e in stage.events if "forbidden" in e.message]
    assert not refused


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("changes", "code", "field", "told"),
    [
        pytest.param({"namespace": "nowhere"}, "bad_reference", "metadata.namespace", "no namespace 'nowhere'", id="namespace"),
        pytest.param(
            {"schedulingPolicy": {"gang": "volcano"}}, "not_supported", "spec.schedulingPolicy.gang", "does not know podgroups", id="gang",
        ),
        pytest.param(
            {"schedulingPolicy": {"priorityClassName": "hihg"}}, "bad_reference", "spec.schedulingPolicy.priorityClassName", "no priority class 'hihg'", id="priority-class",
        ),
        pytest.param(
            {"roles": [{"name": "worker", "template": {"spec": {"serviceAccountName": "robot"}}}]}, "bad_reference",
            "spec.roles.worker.template.spec.serviceAccountName", "no service account 'robot'", id="service-account",
        ),
    ],
)  # fmt: skip
async def test_what_is_not_there_is_named(stage, changes, code, field, told):
    found = await problems(stage.runtime(), resolved(*changes.pop("roles", ()), **changes))
    assert [(each.code, each.field) for each in found] == [(code, field)]
    assert told in found[0].message


@pytest.mark.e2e
async def test_a_job_that_no_quota_would_ever_let_in_is_refused(stage: Stage):
    stage.cluster.control.create(quota(pods="2", requests_cpu="4"))
    cpu: dict[str, Any] = {"resources": {"requests": {"cpu": "3"}}}
    found = await problems(stage.runtime(), resolved({"name": "worker", "replicas": 3}, **cpu))
    assert sorted(each.message.split(", ")[0] for each in found) == [
        "all instances together ask for 3 of pods",
        "all instances together ask for 9 of requests.cpu",
    ]
    assert await problems(stage.runtime(), resolved({"name": "worker"}, **cpu)) == []


@pytest.mark.e2e
async def test_an_elastic_job_is_let_in_where_a_quota_takes_its_fewest(stage: Stage):
    stage.cluster.control.create(quota(pods="2"))

    def worker(least: int) -> dict[str, Any]:
        return {"name": "worker", "replicas": 4, "minReplicas": least, "maxReplicas": 4}

    elastic: dict[str, Any] = {"framework": "pytorch", "command": ["torchrun", "train.py"]}
    assert await problems(stage.runtime(), resolved(worker(2), **elastic)) == []
    (found,) = await problems(stage.runtime(), resolved(worker(3), **elastic))
    assert "ask for 3 of pods" in found.message


@pytest.mark.e2e
async def test_quotas_bound_how_many_instances_a_job_may_have(stage: Stage):
    gpu: dict[str, Any] = {"resources": {"limits": {"nvidia.com/gpu": 2}}}
    job = resolved({"name": "worker", "replicas": 3}, **gpu)
    runtime = stage.runtime()
    assert (await runtime.cluster_view(job)).instances is None
    stage.cluster.control.create(quota(pods="9", **{"requests.nvidia.com/gpu": "7"}))
    assert (await runtime.cluster_view(job)).instances == 3
    assert (await runtime.cluster_view()).instances is None


@pytest.mark.e2e
async def test_a_cluster_that_does_not_answer_is_said_as_such(stage: Stage):
    stage.patience_seconds = 0.5
    stage.cluster.control.server_away()
    with pytest.raises(RuntimeUnavailable, match="the cluster does not answer"):
        await problems(stage.runtime(), resolved())


def test_every_right_is_asked_for_once():
    from airflow_training.runtimes.kubernetes.facts import RunFacts

    rights = needed_rights(RunFacts(uid="u", job="j", controller="c", ssh=True), callback=True)
    assert len(rights) == len(set(rights))
