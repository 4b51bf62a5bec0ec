"""How long earlier runs of a job waited is found by job, runtime and queue."""

from __future__ import annotations

import dataclasses

from airflow_training.control.first_ledger import new_ledger
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.state.store import Store
from airflow_training.supervise.status import run_status
from tests.builders import job

JOB = job(gang="kueue", queue="research")


def stored(store: Store, resolved: ResolvedJob, name: str, *, waited: float | None) -> str:
    """Store a run that waited so long until all of it ran; None: it waits."""
    ledger = new_ledger(resolved, now=100.0, activate_all=True)
    if waited is not None:
        entry = dataclasses.replace(ledger.job, running_at=100.0 + waited)
        ledger = dataclasses.replace(ledger, job=entry)
    key = RunKey(source="cli", run_id=name)
    store.create_run(key, resolved, ledger, controller="c", queue=False)
    return key.uid


def test_a_run_that_waits_expects_what_earlier_runs_of_its_queue_took(store: Store):
    other_queue = dataclasses.replace(
        JOB, scheduling=dataclasses.replace(JOB.scheduling, queue="other")
    )
    for number, waited in enumerate([30.0, 90.0, 600.0]):
        stored(store, JOB, f"before-{number}", waited=waited)
    stored(store, other_queue, "elsewhere", waited=5000.0)
    stored(store, dataclasses.replace(JOB, name="another"), "another", waited=5000.0)
    waits = stored(store, JOB, "now", waited=None)
    assert run_status(store, waits)["expected_start"] == {
        "median_seconds": 90.0,
        "shortest_seconds": 30.0,
        "longest_seconds": 600.0,
        "runs": 3,
    }
    done = stored(store, JOB, "runs", waited=1.0)
    assert run_status(store, done)["expected_start"] is None


def test_the_first_run_of_a_job_expects_nothing(store: Store):
    assert run_status(store, stored(store, JOB, "now", waited=None))["expected_start"] is None
