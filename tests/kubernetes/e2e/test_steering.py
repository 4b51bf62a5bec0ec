"""What a user does to a run: stop, pause, read, sweep."""

from __future__ import annotations

import json
import time

import pytest

from tests.kubernetes.e2e.job import Job, document, role
from tests.kubernetes.e2e.site import Document, Site

NOWHERE = {"nodeSelector": {"airflow-training/no-such-node": "true"}}


def is_placed_nowhere(site: Site) -> Document:
    return document(site, "cancel", role("worker", "sleep 100000", pod=NOWHERE))


def is_held(site: Site) -> Document:
    return document(
        site,
        "cancel",
        role("ps", "sleep 100000", pod=NOWHERE),
        role("worker", "sleep 100000", dependsOn=[{"role": "ps"}]),
        schedulingPolicy={"startup": "createAllHold"},
    )


def is_running(site: Site) -> Document:
    return document(site, "cancel", role("worker", "sleep 100000", replicas=2))


def waits_for_its_restart(site: Site) -> Document:
    return document(
        site,
        "cancel",
        role("worker", "exit 137"),
        restart={"backoff": {"initialSeconds": 3000, "maxSeconds": 3000}},
    )


def has_no_image(site: Site) -> Document:
    return document(site, "cancel", role("worker", "true"), image="registry.invalid/none:1")


@pytest.mark.parametrize("order", ["kill", "Ctrl-C"])
@pytest.mark.parametrize(
    "phase", [is_placed_nowhere, is_held, is_running, waits_for_its_restart, has_no_image]
)
def test_a_stopped_run_leaves_nothing_alive(site: Site, jobs, phase, order):
    job: Job = jobs(phase(site))
    if phase is is_running:
        job.until_running("worker", 2)
    elif phase is waits_for_its_restart:
        job.site.until("the first failure", lambda: restarted(job))
    else:
        job.until_exists("worker")
    if order == "kill":
        job.command("kill", job.run_id)
    else:
        job.interrupt()
    assert job.result()["state"] in ("Stopped", "Failed")
    assert not job.site.living(job.uid)


def restarted(job: Job) -> bool:
    return any(each["reason"] == "InstanceRestarted" for each in job.events())


def test_a_paused_run_has_no_pods_and_goes_on_where_it_was(site: Site, jobs):
    script = 'if [ "$TRAINING_ATTEMPT" = 0 ]; then sleep 100000; fi'
    job = jobs(document(site, "paused", role("worker", script, replicas=2)))
    before = {pod["metadata"]["uid"] for pod in job.until_running("worker", 2)}
    job.command("pause", job.run_id, "--yes")
    site.until("no living pod", lambda: not site.living(job.uid))
    time.sleep(2)
    assert not site.living(job.uid)
    job.command("resume", job.run_id)
    job.succeed()
    assert not before & {pod["metadata"]["uid"] for pod in site.pods(job.uid)}
    assert sum(job.status()["restarts"].values()) == 0


def test_a_suspended_job_begins_when_it_is_resumed(site: Site, jobs):
    job = jobs(document(site, "suspended", role("worker", "true"), suspend=True))
    site.until(
        "the run",
        lambda: (
            '"Suspended"' in job.command("status", job.run_id, "-o", "json", check=False).stdout
        ),
    )
    assert not site.pods(job.uid)
    job.command("resume", job.run_id)
    job.succeed()


def test_logs_are_followed_and_kept(site: Site, jobs):
    script = 'for i in 1 2 3 4 5; do echo line $i of $TRAINING_ATTEMPT; sleep 1; done; [ "$TRAINING_ATTEMPT" = 1 ]'
    job = jobs(document(site, "logs", role("worker", script)))
    job.until_running("worker")
    followed = job.command(
        "logs", "show", job.run_id, "--role", "worker", "--attempt", "0", "-f"
    ).stdout
    assert followed == "".join(f"line {i} of 0\n" for i in range(1, 6))
    job.succeed()
    assert job.log("worker") == followed.replace("of 0", "of 1")
    assert job.log("worker", attempt=0) == followed


def test_a_sweep_ends_what_nobody_drives(site: Site, jobs):
    job = jobs(document(site, "swept", role("worker", "sleep 100000", replicas=2)))
    job.until_running("worker", 2)
    job.kill_controller()
    words = ("sweep", "--idle", "0", "-o", "json")
    announced = json.loads(job.command(*words, "--dry-run").stdout)
    assert job.run_id in str(announced)
    assert len(site.living(job.uid)) == 2
    job.command(*words)
    assert not site.living(job.uid)
