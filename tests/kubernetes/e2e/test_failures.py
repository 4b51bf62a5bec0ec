"""What happens when something dies that should not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.kubernetes.e2e.job import Job, document, role
from tests.kubernetes.e2e.proxy import Proxy
from tests.kubernetes.e2e.site import Site

FIRST_ATTEMPT_SLEEPS = (
    'if [ "$TRAINING_ATTEMPT" = 0 ]; then sleep 100000; fi; echo attempt $TRAINING_ATTEMPT'
)


def restarts(job: Job) -> dict[str, int]:
    counted: dict[str, int] = job.status()["restarts"]
    return {kind: number for kind, number in counted.items() if number}


def test_a_killed_process_is_restarted(site: Site, jobs):
    # $$ is Kubernetes' way to write $; a child, as nothing inside can kill a container's process 1
    script = "if [ $TRAINING_ATTEMPT = 0 ]; then sh -c 'kill -9 $$$$' || exit; fi"
    job = jobs(document(site, "killed", role("worker", script, replicas=2)))
    result = job.succeed()
    assert [each["attempt"] for each in result["instances"]] == [1, 1]
    assert restarts(job) == {"infrastructure": 2}


def test_an_exit_code_that_stays_fails_the_job_and_says_so(site: Site, jobs):
    job = jobs(
        document(site, "broken", role("worker", "echo no data; exit 3", restartPolicy="Never"))
    )
    result = job.result()
    assert result["state"] == "Failed"
    (instance,) = result["instances"]
    assert (instance["state"], instance["exit_code"]) == ("failed", 3)
    assert job.log("worker") == "no data\n"


def test_a_deleted_pod_is_replaced(site: Site, jobs):
    job = jobs(document(site, "deleted", role("worker", FIRST_ATTEMPT_SLEEPS, replicas=2)))
    before = job.until_running("worker", 2)
    for pod in before:
        site.delete_pod(pod["metadata"]["name"])
    result = job.succeed()
    assert [each["attempt"] for each in result["instances"]] == [1, 1]
    after = {pod["metadata"]["uid"] for pod in site.pods(job.uid)}
    assert not after & {pod["metadata"]["uid"] for pod in before}


def test_the_drain_of_a_node_is_a_preemption_and_costs_no_restart(site: Site, jobs):
    job = jobs(
        document(
            site,
            "drained",
            role("worker", FIRST_ATTEMPT_SLEEPS, replicas=2, backoffLimit=0),
        )
    )
    before = job.until_running("worker", 2)
    node = before[0]["spec"]["nodeName"]
    drained = [pod for pod in before if pod["spec"]["nodeName"] == node]
    for pod in drained:
        site.evict(pod["metadata"]["name"])
    for pod in before:
        if pod not in drained:
            site.evict(pod["metadata"]["name"])
    job.succeed()
    assert restarts(job) == {"preemption": 2}


def test_a_server_that_cannot_be_reached_for_a_while_costs_nothing(
    site: Site, jobs, tmp_path: Path
):
    seconds = 15
    with Proxy(site.kubeconfig) as door:
        job = jobs(
            document(site, "away", role("worker", f"sleep {seconds}", replicas=2)),
            kubeconfig=door.write_kubeconfig(tmp_path / "kubeconfig"),
        )
        before = {pod["metadata"]["uid"] for pod in job.until_running("worker", 2)}
        door.shut()
        time.sleep(seconds + 3)  # they end meanwhile
        job.still_there()
        assert {pod["metadata"]["uid"] for pod in site.pods(job.uid)} == before
        door.open()
        result = job.succeed()
    assert [each["attempt"] for each in result["instances"]] == [0, 0]
    assert restarts(job) == {}


def test_a_run_survives_the_death_of_its_controller(site: Site, jobs):
    script = "sleep 20; echo done"
    job = jobs(document(site, "orphaned", role("worker", script, replicas=2)))
    before = {pod["metadata"]["uid"] for pod in job.until_running("worker", 2)}
    job.kill_controller()
    result = job.start().succeed()
    assert {pod["metadata"]["uid"] for pod in site.pods(job.uid)} == before
    assert [each["attempt"] for each in result["instances"]] == [0, 0]
    assert job.log("worker", 1) == "done\n"


def test_a_deadline_ends_a_run_even_without_a_controller(site: Site, jobs):
    # long enough for a pod to start on a busy node
    seconds = 30
    job = jobs(
        document(site, "deadline", role("worker", "sleep 100000"), activeDeadlineSeconds=seconds)
    )
    job.until_running("worker")
    job.kill_controller()

    def failed() -> bool:
        (pod,) = site.pods(job.uid)
        return bool(pod["status"].get("reason") == "DeadlineExceeded")

    site.until("the pod to end at its deadline", failed)
    result = job.start().result()
    assert (result["state"], result["reason"]) == ("Failed", "DeadlineExceeded")


def test_an_image_that_is_not_there_fails_in_the_words_of_the_node(site: Site, jobs):
    # five minutes for each try: one is enough
    worker = role("worker", "true", restartPolicy="Never")
    job = jobs(document(site, "no-image", worker, image="registry.invalid/none:1"))
    result = job.result()
    assert result["state"] == "Failed"
    (instance,) = result["instances"]
    assert instance["reason"] in ("ErrImagePull", "ImagePullBackOff")
    assert "registry.invalid/none:1" in instance["message"]


@pytest.mark.parametrize("policy", ["Running", "None", "All"])
def test_what_stays_of_a_run(site: Site, jobs, policy: str):
    job = jobs(
        document(
            site,
            "stays",
            role("worker", "echo finished"),
            role("monitor", "sleep 100000", tracked=False),
            cleanPodPolicy=policy,
        )
    )
    job.succeed()
    kept = [pod["metadata"]["labels"]["airflow-training/role"] for pod in site.pods(job.uid)]
    assert kept == ([] if policy == "All" else ["worker"])
    if policy == "All":
        assert site.leftovers(job.uid) == []
    assert job.log("worker") == "finished\n"
