"""`logs diagnose` and `status` of runs whose logs say nothing: what the runtime saw is told all the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.model import Recovery
from airflow_training.control.reports import RejectedCheckpoint
from airflow_training.control.root_cause import cause_of_reason
from airflow_training.documents.resolved import ResolvedRole
from airflow_training.state.store import Store
from tests.state.samples import a_job, a_key, a_ledger, worker

NO_PLACE = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
NO_IMAGE = 'Back-off pulling image "ghcr.io/acme/digitz:1"'


@pytest.fixture
def run(home):
    """Return a function that puts a run into the store as it stands."""

    def put(*entries: Any, **job: Any) -> None:
        store = Store(f"sqlite:///{home / 'airflow_training.db'}")
        ledger = a_ledger(*entries, **job)
        store.create_run(a_key("one"), a_job(), ledger, controller="here", queue=False)
        store.close()

    return put


def waiting(reason: str, message: str, **fields: Any) -> Any:
    return worker(0, state="pending", reason=reason, message=message, **fields)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        pytest.param(
            waiting("Unschedulable", NO_PLACE), ("unschedulable", "yes", NO_PLACE), id="no-place"
        ),
        pytest.param(
            waiting("ImagePullBackOff", NO_IMAGE, desired=True),
            ("image-pull-failure", "no", NO_IMAGE),
            id="no-image",
        ),
    ],
)
def test_what_does_not_begin_is_explained_while_it_waits(typed, run, entry, expected):
    run(entry, worker(1, state="pending", reason="Creating"), state="Starting")
    (found, *_) = typed("logs", "diagnose", "one", "-o", "json").json["causes"]
    assert (found["id"], found["retryable"]) == expected[:2]
    assert expected[2] in found["evidence"]
    assert "seen by the runtime" in typed("logs", "diagnose", "one").stdout


def test_a_job_that_found_no_place_in_time_has_the_cause_of_its_status(typed, run):
    message = f"worker-1 found no place within 60 s: {NO_PLACE}"
    root = cause_of_reason(
        reason=reasons.SCHEDULE_TIMEOUT, message=message, at=1.0, role="worker", index=1, attempt=0
    )
    run(
        worker(0),
        state="Failed",
        reason=reasons.SCHEDULE_TIMEOUT,
        message=message,
        root_cause=root,
        drained=True,
    )
    (found, *_) = typed("logs", "diagnose", "one", "-o", "json").json["causes"]
    assert (found["id"], found["rank"]) == ("unschedulable", 1)
    assert NO_PLACE in found["evidence"]
    shown = [
        found["evidence"],
        " ".join(typed("logs", "diagnose", "one").stdout.split()),
        " ".join(typed("status", "one").stdout.split()),
    ]
    assert all("worker-1: worker-1" not in each for each in shown)
    assert "worker-1: found no place within 60 s" in shown[0]
    assert f"root cause: {message[:80]}" in typed("status", "one").stdout


def test_nothing_is_said_of_a_run_of_which_nothing_is_known(typed, run):
    run(worker(0), state="Queued")
    answer = typed("logs", "diagnose", "one")
    assert answer.code == 2
    assert "nothing of it was ever started" in answer.stderr


def test_a_message_of_many_lines_takes_one_in_a_table(typed, run):
    tail = "step 7\nstep 8 " + "loss " * 60 + "\nKeyError: 'label'\n\n"
    run(
        worker(0, state="failed", final=True, failure_class="user", exit_code=1, message=tail),
        state="Failed",
        reason=reasons.INSTANCE_FAILED,
        message=f"role worker failed: worker-0: {tail}",
    )
    shown = typed("status", "one").stdout
    assert "KeyError: 'label'" in shown
    assert "step 7" not in shown
    assert max(map(len, shown.splitlines())) < 200


def test_the_status_names_each_damaged_checkpoint_once(typed, run):
    rejected = [RejectedCheckpoint(at=at, step=20, why="shards/x is missing") for at in (1.0, 2.0)]
    fences = RejectedCheckpoint(at=3.0, why="fences/2 is missing")
    run(worker(0), recovery=Recovery(rejected=(*rejected, fences)))
    shown = typed("status", "one").stdout
    assert shown.count("damaged checkpoint: ") == 2
    assert "damaged checkpoint: step 20 is not restored: shards/x is missing" in shown
    assert "damaged checkpoint: fences/2 is missing" in shown


def test_an_instance_of_a_later_role_is_named_by_its_rank(typed, home):
    store = Store(f"sqlite:///{home / 'airflow_training.db'}")
    roles = (
        ResolvedRole(name="master", replicas=1),
        ResolvedRole(name="worker", replicas=2, rank_offset=1),
    )
    job = replace(a_job(), roles=roles)
    entry = waiting("ImagePullBackOff", NO_IMAGE, desired=True)
    ledger = a_ledger(entry, state="Starting")
    store.create_run(a_key("one"), job, ledger, controller="here", queue=False)
    store.close()
    (found, *_) = typed("logs", "diagnose", "one", "-o", "json").json["causes"]
    assert (found["id"], found["rank"]) == ("image-pull-failure", 1)
