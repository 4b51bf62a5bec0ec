"""Gangs: sizes and resources by start order, and how each scheduler is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from airflow_training.documents.quantities import parse_quantity
from airflow_training.documents.resolved import ResolvedDependency, RunRef
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.creating import PodCreation
from airflow_training.runtimes.kubernetes.facts import facts_of
from airflow_training.runtimes.kubernetes.gangs import (
    gang_of,
    marks_at_end,
    marks_of,
    pod_group_documents,
    pod_requests,
)
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.port import InstanceRef, Outcome
from tests.kubernetes.samples import (
    OPTIONS,
    RUN,
    a_container,
    a_job,
    a_pod,
    a_role,
    an_instance,
)
from tests.kubernetes.strict import complaints


def needs(cpu: str, **more: str) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu, **more}}}


def three_waves(gang: str, startup: str, **scheduling: Any):
    """Return a job of 1 + 2 + 3 instances of 1, 2 and 4 cores, each wave waiting for the last."""
    return a_job(
        a_role("master", 1, main=a_container(**needs("1"))),
        a_role(
            "ps", 2, main=a_container(**needs("2")), depends_on=(ResolvedDependency(role="master"),)
        ),
        a_role(
            "worker", 3, main=a_container(**needs("4")), depends_on=(ResolvedDependency(role="ps"),)
        ),
        gang=gang,
        scheduling={"startup": startup, **scheduling},
    )


@pytest.mark.parametrize(
    ("startup", "min_available", "expected"),
    [
        pytest.param(
            "ordered", None, [("digits-01234", "master ps worker", 6, "17")], id="ordered"
        ),
        pytest.param("ordered", 1, [("digits-01234", "master ps worker", 1, "1")], id="of-some"),
        pytest.param(
            "createAllHold", None, [("digits-01234", "master ps worker", 6, "17")], id="all-held"
        ),
        pytest.param(
            "createAllHold", 4, [("digits-01234", "master ps worker", 4, "9")], id="some-held"
        ),
        pytest.param(
            "firstWaveReserveAll",
            None,
            [("digits-01234", "master ps worker", 1, "17")],
            id="first-wave-for-all",
        ),
        pytest.param(
            "perWave",
            None,
            [
                ("digits-01234-w0", "master", 1, "1"),
                ("digits-01234-w1", "ps", 2, "4"),
                ("digits-01234-w2", "worker", 3, "12"),
            ],
            id="per-wave",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["volcano", "coscheduling"])
def test_what_a_gang_waits_for_and_reserves(kind, startup, min_available, expected):
    job = three_waves(kind, startup, min_available=min_available)
    gang = gang_of(RUN, job)
    documents = pod_group_documents(gang, RUN, record_uid="u")
    assert [
        (
            each["metadata"]["name"],
            " ".join(group.roles),
            each["spec"]["minMember"],
            each["spec"]["minResources"]["cpu"],
        )
        for each, group in zip(documents, gang.groups, strict=True)
    ] == expected
    assert all(
        each["metadata"]["ownerReferences"] == [names.owner_reference(RUN, "u")]
        for each in documents
    )


@pytest.mark.parametrize("role", ["master", "ps", "worker"])
@pytest.mark.parametrize("startup", ["ordered", "createAllHold", "perWave", "firstWaveReserveAll"])
@pytest.mark.parametrize("kind", ["volcano", "coscheduling"])
def test_every_pod_is_in_a_group_that_exists_and_its_replacement_in_the_same(kind, startup, role):
    job = three_waves(kind, startup, queue="research", priority_class_name="high")
    documents = pod_group_documents(gang_of(RUN, job), RUN, record_uid="u")
    known = {each["metadata"]["name"] for each in documents}
    first, second = a_pod(job, role), a_pod(job, role, attempt=7)
    where = (
        first["metadata"]["annotations"].get("scheduling.k8s.io/group-name")
        or first["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"]
    )
    assert where in known
    assert complaints(first) == []
    for key in ("schedulerName", "priorityClassName"):
        assert first["spec"][key] == second["spec"][key]
    marks = marks_of(facts_of(RUN, job).gang, role)
    for made in (first, second):
        assert made["metadata"]["labels"].items() >= marks.labels.items()
        assert made["metadata"]["annotations"].items() >= marks.annotations.items()


def test_volcano_is_told_queue_and_priority():
    job = three_waves("volcano", "createAllHold", queue="research", priority_class_name="high")
    (group,) = pod_group_documents(gang_of(RUN, job), RUN, record_uid="u")
    assert (group["apiVersion"], group["kind"]) == ("scheduling.volcano.sh/v1beta1", "PodGroup")
    assert group["spec"]["queue"] == "research"
    assert group["spec"]["priorityClassName"] == "high"
    assert a_pod(job)["spec"]["schedulerName"] == "volcano"


def test_coscheduling_is_told_how_long_to_wait():
    job = three_waves("coscheduling", "createAllHold", schedule_timeout_seconds=0.5)
    (group,) = pod_group_documents(gang_of(RUN, job), RUN, record_uid="u")
    assert group["apiVersion"] == "scheduling.x-k8s.io/v1alpha1"
    assert group["spec"]["scheduleTimeoutSeconds"] == 1
    assert a_pod(job)["spec"]["schedulerName"] == "scheduler-plugins-scheduler"


@pytest.mark.parametrize(
    ("startup", "role", "group", "total"),
    [
        ("createAllHold", "master", "digits-01234", "6"),
        ("createAllHold", "worker", "digits-01234", "6"),
        ("perWave", "ps", "digits-01234-w1", "2"),
    ],
)
def test_kueue_is_told_by_the_pods_alone(startup, role, group, total):
    job = three_waves("kueue", startup, queue="research")
    assert pod_group_documents(gang_of(RUN, job), RUN, record_uid="u") == []
    pod = a_pod(job, role)
    labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
    assert labels["kueue.x-k8s.io/queue-name"] == "research"
    assert labels["kueue.x-k8s.io/pod-group-name"] == group
    assert annotations["kueue.x-k8s.io/pod-group-total-count"] == total
    assert "schedulerName" not in pod["spec"]


OVER = {"kueue.x-k8s.io/retriable-in-group": "false"}
DELETED = "2026-01-02T03:04:05Z"
KEPT_BY = ["kueue.x-k8s.io/managed"]


@pytest.mark.parametrize(
    ("metadata", "node", "expected"),
    [
        pytest.param({}, "node-1", {"annotations": OVER}, id="lives"),
        pytest.param({"annotations": OVER}, "node-1", {}, id="is-marked"),
        pytest.param(
            {"annotations": OVER, "finalizers": KEPT_BY, "deletionTimestamp": DELETED},
            "node-1",
            {},
            id="kueue-sees-it-end",
        ),
        pytest.param(
            {"annotations": OVER, "finalizers": KEPT_BY}, "", {}, id="waits-and-is-not-deleted-yet"
        ),
        pytest.param(
            {"finalizers": ["team/own", *KEPT_BY], "deletionTimestamp": DELETED},
            "",
            {"annotations": OVER, "finalizers": ["team/own"]},
            id="never-got-a-node",
        ),
    ],
)
def test_kueue_is_told_that_no_replacement_comes(metadata, node, expected):
    labels = {"kueue.x-k8s.io/pod-group-name": "digits-01234"}
    pod = {"metadata": {"labels": labels, **metadata}, "spec": {"nodeName": node} if node else {}}
    assert marks_at_end(PodView.of(pod)) == expected
    assert marks_at_end(PodView.of({**pod, "metadata": metadata})) == {}, "not one of Kueue's"


def test_without_a_gang_nothing_marks_a_pod():
    job = a_job()
    assert gang_of(RUN, job).groups == ()
    marks = marks_of(gang_of(RUN, job), "worker")
    assert (marks.labels, marks.annotations, marks.scheduler_name) == ({}, {}, "")


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        pytest.param({"containers": [needs("500m"), needs("1")]}, 1.5, id="sum"),
        pytest.param(
            {"containers": [needs("1")], "initContainers": [needs("3"), needs("2")]},
            3,
            id="the-largest-init-container",
        ),
        pytest.param(
            {"containers": [needs("4")], "initContainers": [needs("3")]},
            4,
            id="containers-are-more",
        ),
        pytest.param(
            {
                "containers": [needs("1")],
                "initContainers": [{**needs("2"), "restartPolicy": "Always"}, needs("3")],
            },
            5,
            id="init-beside-a-sidecar",
        ),
        pytest.param(
            {
                "containers": [needs("4")],
                "initContainers": [needs("3"), {**needs("2"), "restartPolicy": "Always"}],
            },
            6,
            id="sidecar-beside-the-containers",
        ),
        pytest.param(
            {"containers": [needs("1")], "overhead": {"cpu": "250m"}}, 1.25, id="overhead"
        ),
        pytest.param(
            {"containers": [{"resources": {"limits": {"cpu": "2"}}}]}, 2, id="only-limits"
        ),
        pytest.param(
            {"containers": [{"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]},
            1,
            id="requests-first",
        ),
        pytest.param({"containers": [needs("1")], **needs("7")}, 7, id="of-the-pod-as-a-whole"),
        pytest.param({"containers": [{}]}, 0, id="none"),
        pytest.param({}, 0, id="nothing"),
    ],
)
def test_what_a_scheduler_counts_for_a_pod(spec, cpu):
    assert pod_requests(spec).get("cpu", 0) == pytest.approx(cpu)


@pytest.mark.parametrize(
    ("amount", "replicas", "expected"),
    [
        ("100m", 3, "300m"),
        ("0.1", 10, "1"),
        ("1Gi", 3, "3Gi"),
        ("1500M", 2, "3000000000"),
        ("512Mi", 3, "1536Mi"),
        ("1n", 1, "1m"),
        ("2", 512, "1024"),
    ],
)
def test_sums_are_quantities_again(amount, replicas, expected):
    job = a_job(a_role("w", replicas, main=a_container(**needs(amount))), gang="volcano")
    (group,) = gang_of(RUN, job).groups
    assert group.min_resources == {"cpu": expected}
    assert parse_quantity(expected) >= parse_quantity(amount) * replicas * (1 - 1e-9)


def test_a_gang_without_requests_asks_for_places_only():
    (group,) = pod_group_documents(gang_of(RUN, a_job(gang="volcano")), RUN, record_uid="u")
    assert "minResources" not in group["spec"]


class Pods:
    """Notes what is deleted, and creates whatever it is told to."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    async def delete(self, run: RunRef, pod: PodView, *, grace_seconds: float) -> None:
        self.deleted.append(pod.name)

    async def create(self, ref: InstanceRef, document: Mapping[str, Any]) -> Outcome:
        return Outcome(ref=ref, result="created")


@pytest.mark.parametrize(
    ("phase", "deleted"),
    [
        pytest.param("Running", ["digits-01234-worker-0-0-0-0"], id="stays-for-a-look-inside"),
        pytest.param("Failed", [], id="kueue-counts-it-until-it-sees-the-new-one"),
    ],
)
async def test_of_a_run_that_is_opened_anew_what_stayed_goes(phase: str, deleted: list[str]):
    job = a_job(gang="kueue", scheduling={"queue": "research"})
    kept = a_pod(job)
    kept["metadata"]["labels"][names.KEPT] = "true"
    kept["status"] = {"phase": phase}
    pods = Pods()
    nobody = cast("Any", None)  # this pod asks for nothing else
    creation = PodCreation(nobody, cast("Any", pods), nobody, OPTIONS, max_run_seconds=None)
    spec, others = an_instance(job, epoch=1), [PodView.of(kept)]
    (made,) = await creation.create(
        [spec], facts_of(RUN, job), "uid-1", OPTIONS, others=others, short=None
    )
    assert (made.result, pods.deleted) == ("created", deleted)
