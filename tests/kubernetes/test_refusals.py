"""What the API server refuses, and what becomes of it at the port."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_training.admission.launch import check_runtime
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.runtimes.kubernetes.api_errors import ApiError, Forbidden, Invalid, NotFound
from airflow_training.runtimes.kubernetes.facts import facts_of
from airflow_training.runtimes.kubernetes.kinds import ResourceKind
from airflow_training.runtimes.kubernetes.logs import LogArchive
from airflow_training.runtimes.kubernetes.pods import PodOptions
from airflow_training.runtimes.kubernetes.refusals import (
    REFUSALS,
    field_of,
    problem_of,
    refusal_of,
    words_of,
)
from airflow_training.runtimes.kubernetes.rights import check_cluster
from airflow_training.runtimes.kubernetes.runtime import KubernetesRuntime
from airflow_training.state.store import Store
from tests.kubernetes import samples
from tests.kubernetes.conftest import CONTROLLER, Stage, connect_to, resolved
from tests.kubernetes.emulator import Cluster
from tests.waiting import PATIENCE, until


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        cluster.control.create_namespace("team")
        yield cluster


@pytest.fixture
def runtime(cluster: Cluster, tmp_path: Path) -> KubernetesRuntime:
    archive = LogArchive(str(tmp_path), tail_bytes=0)
    return KubernetesRuntime(connect=connect_to(cluster), archive=archive, options=PodOptions())


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("error", "result"),
    [
        (Invalid(422, "Invalid", "spec.containers[0].image: Required value"), "impossible"),
        (Invalid(413, "RequestEntityTooLarge", "limit is 3145728"), "impossible"),
        (Invalid(403, "Forbidden", "exceeded quota: small, requested: pods=1"), "refused"),
        (Invalid(403, "Forbidden", "status unknown for quota: small, resources: pods"), "refused"),
        (
            Invalid(403, "Forbidden", 'looking up service account team/default: serviceaccount "default" not found'),
            "refused",
        ),
        (Invalid(403, "Forbidden", 'pods is forbidden: User "x" cannot create resource "pods"'), "refused"),
        (ApiError(401, "Unauthorized", "Unauthorized"), "refused"),
        (Invalid(403, "Forbidden", 'violates PodSecurity "restricted:latest"'), "impossible"),
    ],
)  # fmt: skip
async def test_what_may_pass_is_tried_again_and_what_may_not_fails(
    runtime, monkeypatch, error, result
):
    job = samples.a_job()
    await runtime.prepare(samples.RUN, job)

    async def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(runtime.api, "create", refuse)
    (outcome,) = await runtime.create([samples.an_instance(job)])
    assert (outcome.result, outcome.message) == (result, str(error))


WORDS = {
    "WebhookUnavailable": (500, 'Internal error occurred: failed calling webhook "mpod.example": connection refused'),
    "DeniedByWebhook": (400, 'admission webhook "validate.policy.example" denied the request: label team is missing'),
    "QuotaExceeded": (403, "exceeded quota: small, requested: pods=1, used: pods=4, limited: pods=4"),
    "QuotaDemandsRequests": (403, "failed quota: small: must specify limits.cpu for: main"),
    "PodSecurity": (403, 'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false'),
    "NamespaceTerminating": (403, "unable to create new content in namespace team because it is being terminated"),
    "ServiceAccountNotFound": (403, 'error looking up service account team/train: serviceaccount "train" not found'),
    "NotAllowed": (403, 'User "x" cannot create resource "pods" in API group ""'),
    "DeniedByPolicy": (403, "maximum memory usage per Container is 1Gi, but limit is 2Gi"),
    "Forbidden": (403, 'pods "worker-0" is forbidden: the moon is full'),
    "NotFound": (404, 'namespaces "team" not found'),
    "Conflict": (409, 'Operation cannot be fulfilled on resourcequotas "small"'),
    "ServerBusy": (429, "the server has received too many requests"),
    "Invalid": (422, "spec.containers[0].image: Required value"),
}  # fmt: skip
"""Reason of a refusal -> status and words of a real server."""


def test_there_are_words_for_every_row():
    assert WORDS.keys() == {row.reason for row in REFUSALS}


@pytest.mark.parametrize("reason", WORDS)
def test_the_words_of_a_server_say_which_refusal_it_is(reason):
    code, words = WORDS[reason]
    assert refusal_of(ApiError(code, "", words)).reason == reason


@pytest.mark.parametrize(
    ("code", "words", "reason"),
    [
        (422, "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'team' with binding 'all' denied request: no label team", "DeniedByPolicy"),
        (403, "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'team' with binding 'all' denied request: no label team", "DeniedByPolicy"),
        (403, "pods \"a\" is forbidden: cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000", "DeniedByPolicy"),
        (403, "pods \"a\" is forbidden: insufficient quota to match these scopes: [{PriorityClass In [high]}]", "DeniedByPolicy"),
        (403, "pods \"a\" is forbidden: unable to validate against any security context constraint: [provider restricted]", "DeniedByPolicy"),
        (403, "pods \"a\" is forbidden: not yet ready to handle request", "ServerBusy"),
        (403, "services \"a\" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>", "NotAllowed"),
        (403, 'pods "a" is forbidden: service account team/train was not found, retry after the service account is created', "ServiceAccountNotFound"),
        (403, 'pods "a" is forbidden: no PriorityClass with name high was found', "Forbidden"),
        (403, 'pods "a" is forbidden: pod rejected: RuntimeClass "kata" not found', "Forbidden"),
        (403, "<html>denied by the proxy</html>", "Forbidden"),
        (500, "failed to create typed patch object (team/g; scheduling.volcano.sh/v1beta1, Kind=PodGroup): .spec.queue: field not declared in schema", "Invalid"),
        (500, "Internal error occurred: resource quota evaluation timed out", "ServerBusy"),
    ],
)  # fmt: skip
def test_other_words_that_say_the_same(code, words, reason):
    assert refusal_of(ApiError(code, "", words)).reason == reason


@pytest.mark.parametrize(
    ("code", "words", "answer"),
    [
        (400, 'strict decoding error: unknown field "spec.containers[0].imagee"', "never"),
        (413, "Request entity too large: limit is 3145728", "never"),
        (418, "", "never"),
        (403, "", "perhaps"),
        (401, "Unauthorized", "later"),
        (503, "the server is currently unable to handle the request", "later"),
    ],
)
def test_what_has_no_row_of_its_own_is_judged_by_its_code(code, words, answer):
    assert refusal_of(ApiError(code, "", words)).answer == answer


@pytest.mark.parametrize(
    ("kind", "theirs", "ours"),
    [
        ("services", "metadata.name", "metadata.name"),
        ("services", "spec.ports[0].port", "spec.roles"),
        ("configmaps", "metadata.labels", "metadata.labels"),
        ("podgroups", "spec.minMember", "spec.schedulingPolicy"),
        ("podgroups", "spec.priorityClassName", "spec.schedulingPolicy.priorityClassName"),
        ("services", "spec.type", "spec"),
        ("services", "", "metadata.namespace"),
    ],
)
def test_a_refused_object_is_told_at_the_field_it_is_made_from(kind, theirs, ours):
    fields = (theirs,) if theirs else ()
    error = Invalid(422, "Invalid", f"{theirs}: Invalid value", kind=kind, fields=fields)
    problem = problem_of(error, samples.RUN)
    assert problem.field == ours
    assert f"{theirs}: Invalid value" in problem.message


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("spec.containers[1].resources.claims", "spec.roles.worker.resources.claims"),
        ("spec.containers[1].env[1].valueFrom.newRef", "spec.roles.worker.env.A.valueFrom.newRef"),
        ("spec.containers[1].env[0].valueFrom", "spec.roles.worker"),
        ("spec.containers[1].stopSignal", "spec.roles.worker.template.spec.containers.main.stopSignal"),
        ("spec.containers[0].imagee", "spec.roles.worker.template.spec.containers.side.imagee"),
        ("spec.containers[7].imagee", "spec.roles.worker"),
        ("spec.initContainers[0].imagee", "spec.roles.worker"),
        ("spec.volumes[0].image", "spec.roles.worker.template.spec.volumes.data.image"),
        ("spec.volumes[1].configMap", "spec.roles.worker"),
        ("spec.resourceClaims", "spec.roles.worker.template.spec.resourceClaims"),
        ("metadata.labels", "spec.roles.worker.template.metadata.labels"),
        ("", "spec.roles.worker"),
    ],
)  # fmt: skip
def test_a_refused_field_of_a_pod_is_told_at_the_field_of_the_document(theirs, ours):
    main = samples.a_container(env=[{"name": "A", "value": "1"}])
    role = samples.a_role(
        spec={"containers": [samples.a_container("side"), main], "volumes": [{"name": "data"}]}
    )
    pod = {
        "metadata": {"labels": {}},
        "spec": {
            "initContainers": [{"name": "hold"}],
            "containers": [{"name": "side"}, {"name": "main", "env": [{"name": "OURS"}, {"name": "A"}]}],
            "volumes": [{"name": "data"}, {"name": "ours"}],
        },
    }  # fmt: skip
    error = Invalid(422, "Invalid", "no", fields=(theirs,) if theirs else ())
    assert field_of(error, pod, role) == ours


def test_a_missing_right_is_told_with_the_rule_to_add():
    words = 'pods is forbidden: User "x" cannot create resource "pods" in API group "" in the namespace "team"'
    assert words_of(Forbidden(403, "Forbidden", words)) == (
        f'{words}; add to its Role there: {{apiGroups: [""], resources: ["pods"], verbs: [create]}}'
    )


def a_quota(cluster: Cluster) -> str:
    """Make a namespace with a quota for which every container must say what it needs."""
    cluster.control.create_namespace("ruled")
    quota = {"kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": "small"}}
    spec = {"hard": {"limits.cpu": "100"}}
    cluster.control.create({**quota, "spec": spec}, namespace="ruled")
    return "failed quota: small: must specify limits.cpu for: main"


def pod_security(cluster: Cluster) -> str:
    """Make a namespace with a PodSecurity level that our job does not meet."""
    cluster.control.create_namespace("ruled", pod_security="restricted")
    return 'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false'


RULES = pytest.mark.parametrize("rule", [a_quota, pod_security])


@pytest.mark.e2e
@RULES
async def test_what_the_server_will_never_take_is_said_before_anything_is_created(
    stage: Stage, rule: Callable[[Cluster], str]
):
    words = rule(stage.cluster)
    key = RunKey(source="cli", run_id="one")
    with pytest.raises(InputError, match=re.escape(words)) as refused:
        await check_runtime(
            resolved(namespace="ruled"), key=key, controller=CONTROLLER, runtime=stage.runtime()
        )
    (problem,) = refused.value.problems
    assert problem.field == "spec.roles.worker"
    assert stage.pods("ruled") == {}


@pytest.mark.e2e
@RULES
async def test_what_the_server_will_never_take_ends_the_run_at_once_in_its_words(
    stage: Stage, rule: Callable[[Cluster], str]
):
    words = rule(stage.cluster)  # after the check: somebody was faster
    uid = stage.launch(resolved(namespace="ruled"))
    async with stage.driving(uid) as task:
        assert await asyncio.wait_for(task, PATIENCE) == "Failed"
    job = stage.store.ledger(uid).job
    assert (job.condition, job.reason, job.restarts) == ("SubmitFailed", "NotRetryable", ())
    assert words in job.message
    assert job.root_cause is not None
    assert (job.root_cause.id, job.root_cause.retryable) == ("not-admitted", "no")
    assert words in job.root_cause.evidence
    told = {each.reason: each.message for each in stage.events}
    assert words in told["InstanceFailed"]


UNKNOWN = "resources.claims"


def older(stage: Stage) -> ResolvedJob:
    """Let the server have no field that the job uses; return the job."""
    stage.cluster.control.forget_field("V1ResourceRequirements", "claims")
    resources = {"claims": [{"name": "gpu"}], "limits": {"cpu": "1"}}
    return resolved(resources=resources)


@pytest.mark.e2e
async def test_a_field_that_the_server_does_not_know_is_refused_before_the_start(stage: Stage):
    key = RunKey(source="cli", run_id="one")
    with pytest.raises(InputError) as refused:
        await check_runtime(older(stage), key=key, controller=CONTROLLER, runtime=stage.runtime())
    (problem,) = refused.value.problems
    assert problem.field == f"spec.roles.worker.{UNKNOWN}"
    assert f'unknown field "spec.containers[0].{UNKNOWN}"' in problem.message


@pytest.mark.e2e
async def test_a_field_that_the_server_does_not_know_ends_the_run_in_its_words(stage: Stage):
    uid = stage.launch(older(stage))
    async with stage.driving(uid) as task:
        assert await asyncio.wait_for(task, PATIENCE) == "Failed"
    job = stage.store.ledger(uid).job
    assert (job.reason, job.restarts) == ("NotRetryable", ())
    assert f"spec.roles.worker.{UNKNOWN}: " in job.message
    assert f'unknown field "spec.containers[0].{UNKNOWN}"' in job.message
    assert stage.pods() == {}


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("model", "field", "ours"),
    [
        ("V1ServicePort", "targetPort", "spec.roles"),
        ("V1ServiceSpec", "publishNotReadyAddresses", "spec"),
        ("V1ConfigMap", "data", "spec"),
    ],
)
async def test_every_object_is_refused_whose_fields_the_server_does_not_know(
    stage: Stage, model: str, field: str, ours: str
):
    stage.cluster.control.forget_field(model, field)
    uid = stage.launch(
        resolved({"name": "worker", "ports": [{"name": "main", "containerPort": 99}]})
    )
    async with stage.driving(uid) as task:
        assert await asyncio.wait_for(task, PATIENCE) == "Failed"
    ended = stage.store.ledger(uid).job
    assert ended.reason == "CannotBePrepared"
    assert ended.message.startswith(f"{ours}: ")
    assert "strict decoding error: unknown field" in ended.message


@pytest.mark.e2e
async def test_a_gang_is_refused_whose_fields_its_scheduler_does_not_know(
    tmp_path: Path, sqlite_template: Path
):
    shutil.copy(sqlite_template, tmp_path / "store.db")
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    with Cluster(installed=("volcano",)) as cluster:
        cluster.control.forget_field("podgroups.scheduling.volcano.sh", "queue")
        stage = Stage(store=store, cluster=cluster, folder=tmp_path)
        policy = {"gang": "volcano", "queue": "research"}
        uid = stage.launch(resolved(schedulingPolicy=policy))
        async with stage.driving(uid) as task:
            assert await asyncio.wait_for(task, PATIENCE) == "Failed"
        job = store.ledger(uid).job
        assert job.reason == "CannotBePrepared"
        assert job.message.startswith("spec.schedulingPolicy.queue: ")
        assert ".spec.queue: field not declared in schema" in job.message
    store.close()


@pytest.mark.e2e
async def test_rights_that_were_taken_away_are_an_error_of_the_port(runtime, monkeypatch):
    await runtime.prepare(samples.RUN, samples.a_job())

    async def refuse(*_: Any, **__: Any) -> None:
        raise Forbidden(403, "Forbidden", "pods is forbidden: User cannot list resource pods")

    monkeypatch.setattr(runtime.api, "list", refuse)
    for call in (
        runtime.remove(samples.RUN),
        runtime.delete([samples.an_instance(samples.a_job()).ref], grace_seconds=1),
    ):
        with pytest.raises(RuntimeUnavailable, match="cannot list resource pods"):
            await call


class Installed:
    """A cluster that serves one version of Kueue and allows everything."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.asked: list[ResourceKind] = []

    async def serves(self, kind: ResourceKind) -> bool:
        return kind.version == self.version

    async def get(self, kind: ResourceKind, *_: str) -> dict[str, Any]:
        if kind.plural != "localqueues":
            return {"metadata": {}}
        self.asked.append(kind)
        raise NotFound(404, "NotFound", "no such queue")

    async def list(self, *_: Any) -> tuple[list[Any], str]:
        return [], "1"

    async def allowed(self, *_: Any) -> bool:
        return True


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_kueue_is_found_whichever_version_it_serves(version):
    job = samples.a_job(gang="kueue", scheduling={"queue": "research"})
    api = Installed(version)
    problems = await check_cluster(api, job, facts_of(samples.RUN, job))  # type: ignore[arg-type]  # only what it asks for
    assert [each.field for each in problems] == ["spec.schedulingPolicy.queue"]
    assert [kind.version for kind in api.asked] == [version]


async def test_kueue_is_missed_where_it_is_not():
    job = samples.a_job(gang="kueue", scheduling={"queue": "research"})
    problems = await check_cluster(Installed(""), job, facts_of(samples.RUN, job))  # type: ignore[arg-type]  # only what it asks for
    assert [each.field for each in problems] == ["spec.schedulingPolicy.gang"]


@pytest.mark.e2e
async def test_a_run_id_whose_objects_are_left_is_refused(runtime, cluster):
    job = samples.a_job()
    assert not await runtime.check(samples.RUN, job, [])
    await runtime.prepare(samples.RUN, job)
    (problem,) = await runtime.check(samples.RUN, job, [])
    assert (problem.code, problem.field) == ("conflict", "run_id")
    assert "kubectl delete configmap" in problem.hint
    assert not await runtime.check(dataclasses.replace(samples.RUN, submitted_at=1.0), job, [])


# what no node could take -----------------------------------------------------------------------
HUGE: dict[str, Any] = {"resources": {"requests": {"cpu": "999"}}}


def policy(never_fits: str) -> dict[str, Any]:
    return {"schedulingPolicy": {"neverFits": never_fits}}


async def checked(stage: Stage, job: ResolvedJob) -> list[str]:
    key = RunKey(source="cli", run_id="one")
    found = await check_runtime(job, key=key, controller=CONTROLLER, runtime=stage.runtime())
    return [each.message for each in found]


@pytest.mark.e2e
async def test_what_no_node_could_take_is_warned_of_before_the_start(stage: Stage):
    (warning,) = await checked(stage, resolved(**HUGE))
    assert warning.startswith("NeverFits: no node could take it, even when empty: it asks for 999")
    assert await checked(stage, resolved()) == []
    with pytest.raises(InputError, match="asks for 999 of cpu"):
        await checked(stage, resolved(**HUGE, **policy("Fail")))


@pytest.mark.e2e
async def test_what_no_node_could_take_waits_and_says_so_once(stage: Stage):
    uid = stage.launch(resolved({"name": "worker", "replicas": 3}, **HUGE))
    async with stage.driving(uid):
        await until(lambda: stage.entry(uid).reason == "NeverFits")
        stage.cluster.control.add_node("huge", cpu="9999")
        await stage.until_running(uid)
    assert [each.level for each in stage.events if each.reason == "NeverFits"] == ["warning"]


@pytest.mark.e2e
async def test_what_no_node_could_take_ends_at_once_where_the_job_says_so(stage: Stage):
    uid = stage.launch(resolved(**HUGE, **policy("Fail")))
    async with stage.driving(uid) as task:
        assert await asyncio.wait_for(task, PATIENCE) == "Failed"
    job = stage.store.ledger(uid).job
    assert job.reason == "NeverFits"
    assert "no node could take it" in job.message
