"""What the API server refuses, and what becomes of it at the port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes import KubernetesRuntime
from airflow_training.runtimes.kubernetes.api import Forbidden, Invalid, NotFound
from airflow_training.runtimes.kubernetes.facts import facts_of
from airflow_training.runtimes.kubernetes.kinds import Kind
from airflow_training.runtimes.kubernetes.logs import LogArchive
from airflow_training.runtimes.kubernetes.pods import PodOptions
from airflow_training.runtimes.kubernetes.rights import check_cluster
from tests.kubernetes import samples
from tests.kubernetes.conftest import connect_to
from tests.kubernetes.emulator import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        cluster.control.create_namespace("team")
        yield cluster


@pytest.fixture
def runtime(cluster: Cluster, tmp_path: Path) -> KubernetesRuntime:
    archive = LogArchive(str(tmp_path), tail_bytes=0)
    return KubernetesRuntime(connect=connect_to(cluster), archive=archive, options=PodOptions())


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (Invalid(422, "Invalid", "spec.containers[0].image: Required value"), "error"),
        (Invalid(413, "RequestEntityTooLarge", "limit is 3145728"), "error"),
        (Invalid(403, "Forbidden", "exceeded quota: small, requested: pods=1"), "refused"),
        (Invalid(403, "Forbidden", "status unknown for quota: small, resources: pods"), "refused"),
        (
            Invalid(403, "Forbidden", 'looking up service account team/default: serviceaccount "default" not found'),
            "refused",
        ),
        (Invalid(403, "Forbidden", 'violates PodSecurity "restricted:latest"'), "error"),
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
        self.asked: list[Kind] = []

    async def serves(self, kind: Kind) -> bool:
        return kind.version == self.version

    async def get(self, kind: Kind, *_: str) -> dict[str, Any]:
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
