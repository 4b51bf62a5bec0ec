"""Gangs, where the cluster has what they need."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from tests.kubernetes.e2e.job import Job, document, role
from tests.kubernetes.e2e.site import Document, Site

GROUPS = {
    "volcano": ("scheduling.volcano.sh", "v1beta1"),
    "coscheduling": ("scheduling.x-k8s.io", "v1alpha1"),
}
KUEUE = ("kueue.x-k8s.io", "v1beta1")
SMALL = {"requests": {"cpu": "10m", "memory": "16Mi"}}


def group_of(site: Site, kind: str, run: str) -> list[Document]:
    found = site.custom.list_namespaced_custom_object(
        *GROUPS[kind], site.namespace, "podgroups", label_selector=f"airflow-training/run={run}"
    )
    return list(found["items"])


@pytest.mark.parametrize("kind", sorted(GROUPS))
def test_a_gang_runs_and_its_group_goes_with_it(site: Site, jobs, kind: str):
    if not site.serves(*GROUPS[kind], "podgroups"):
        pytest.skip(f"the cluster does not know podgroups.{GROUPS[kind][0]}")
    job = jobs(
        document(
            site,
            "gang",
            role("worker", "sleep 5", replicas=3),
            resources=SMALL,
            schedulingPolicy={"gang": kind},
            cleanPodPolicy="All",
        )
    )
    job.until_running("worker", 3)
    (group,) = group_of(site, kind, job.uid)
    assert group["spec"]["minMember"] == 3
    job.succeed()
    assert group_of(site, kind, job.uid) == []


@pytest.mark.parametrize("kind", sorted(GROUPS))
def test_what_is_not_installed_is_named_before_anything_is_created(site: Site, jobs, kind: str):
    if site.serves(*GROUPS[kind], "podgroups"):
        pytest.skip(f"the cluster has podgroups.{GROUPS[kind][0]}")
    job = jobs(document(site, "gang", role("worker", "true"), schedulingPolicy={"gang": kind}))
    result = job.command("status", job.run_id, check=False)
    job.site.until("the refusal", lambda: kind in job.stderr)
    assert not site.pods(job.uid), result.stdout


@contextlib.contextmanager
def a_queue(site: Site, *, cpu: str = "1") -> Iterator[str]:
    """Make a queue of Kueue with room for a few small pods; it goes with the test."""
    name = site.namespace
    group, version = KUEUE
    quota = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "1Gi"}]
    flavors = [{"name": name, "resources": quota}]
    made = {
        "resourceflavors": {"kind": "ResourceFlavor", "spec": {}},
        "clusterqueues": {
            "kind": "ClusterQueue",
            "spec": {
                "namespaceSelector": {},
                "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}],
            },
        },
    }
    head = {"apiVersion": f"{group}/{version}", "metadata": {"name": name}}
    try:
        for plural, body in made.items():
            site.custom.create_cluster_custom_object(group, version, plural, {**head, **body})
        local = {**head, "kind": "LocalQueue", "spec": {"clusterQueue": name}}
        site.custom.create_namespaced_custom_object(
            group, version, site.namespace, "localqueues", local
        )
        yield name
    finally:
        with contextlib.suppress(ApiException):
            site.custom.delete_namespaced_custom_object(
                group, version, site.namespace, "localqueues", name
            )
        for plural in reversed(made):
            with contextlib.suppress(ApiException):
                site.custom.delete_cluster_custom_object(group, version, plural, name)


def test_a_group_of_kueue_is_admitted_and_its_failed_pod_replaced(site: Site, jobs):
    if not site.serves(*KUEUE, "clusterqueues"):  # the emulator only has the other kind of queue
        pytest.skip(f"the cluster does not know clusterqueues.{KUEUE[0]}")
    script = '[ "$TRAINING_ATTEMPT" = 1 ] || exit 137; sleep 3'
    with a_queue(site) as queue:
        job = jobs(
            document(
                site,
                "kueue",
                role("worker", script, replicas=2),
                resources=SMALL,
                schedulingPolicy={"gang": "kueue", "queue": queue},
            )
        )
        result = job.succeed()
        assert [each["attempt"] for each in result["instances"]] == [1, 1]


def kill(job: Job) -> None:
    job.command("kill", job.run_id)


def fail(job: Job) -> None:
    """Let one instance fail; the others go on until the run ends them."""
    job.site.delete_pod(job.site.running(job.uid)[0]["metadata"]["name"])


@pytest.mark.parametrize(("end", "state"), [(kill, "Stopped"), (fail, "Failed")])
@pytest.mark.parametrize("policy", ["Running", "All"])
def test_the_next_job_of_a_queue_starts_however_the_one_before_ended(
    site: Site, jobs, end: Callable[[Job], None], state: str, policy: str
):
    if not site.serves(*KUEUE, "clusterqueues"):
        pytest.skip(f"the cluster does not know clusterqueues.{KUEUE[0]}")
    with a_queue(site, cpu="20m") as queue:  # for one job only

        def start(script: str, **spec: Any) -> Job:
            job: Job = jobs(
                document(
                    site,
                    "quota",
                    role("worker", script, replicas=2),
                    resources=SMALL,
                    schedulingPolicy={"gang": "kueue", "queue": queue},
                    cleanPodPolicy=policy,
                    restart={"maxRestarts": 0},
                    **spec,
                )
            )
            return job

        first = start("sleep 100000")
        first.until_running("worker", 2)
        waits, given_up = start("sleep 1"), start("sleep 1")
        for job in (waits, given_up):
            job.until_exists("worker")
        kill(given_up)
        assert given_up.result()["state"] == "Stopped"
        assert not site.pods(given_up.uid), "they never got a place"
        assert not site.running(waits.uid)
        end(first)
        assert first.result()["state"] == state
        waits.succeed()
