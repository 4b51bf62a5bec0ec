"""What an attempt used counts, also when it was over before anybody looked."""

from __future__ import annotations

import asyncio

from airflow_training.control.model import Ledger
from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.faults import Behaviour, Script
from airflow_training.supervise.unseen_attempts import with_unseen_attempts
from tests.builders import entry, job, role, seen
from tests.waiting import PATIENCE


def test_only_attempts_that_were_replaced_get_their_times():
    old = Ledger(instances={InstanceKey("worker", i): entry("worker", i) for i in range(3)})
    new = Ledger(
        instances={
            InstanceKey("worker", 0): entry("worker", 0, attempt=1),
            InstanceKey("worker", 1): entry("worker", 1, state="running", started_at=5.0),
            InstanceKey("worker", 2): entry("worker", 2, attempt=1),
        }
    )
    observed = [seen("worker", i, "failed", started_at=3.0, finished_at=4.0) for i in range(2)]
    filled = with_unseen_attempts(old, new, observed).instances
    assert (
        filled[InstanceKey("worker", 0)].started_at,
        filled[InstanceKey("worker", 0)].finished_at,
    ) == (3.0, 4.0)
    assert filled[InstanceKey("worker", 1)] is old.instances[InstanceKey("worker", 1)]
    assert filled[InstanceKey("worker", 2)].started_at is None
    assert with_unseen_attempts(old, old, observed) is old


def test_an_attempt_that_ended_while_nobody_watched_is_charged_until_then():
    old = Ledger(
        instances={
            InstanceKey("worker", i): entry("worker", i, state="running", started_at=3.0)
            for i in range(2)
        }
    )
    new = Ledger(instances={key: entry("worker", key[1], attempt=1) for key in old.instances})
    observed = [seen("worker", 0, "failed", started_at=3.5, finished_at=5.0)]
    filled = with_unseen_attempts(old, new, observed).instances
    assert (
        filled[InstanceKey("worker", 0)].started_at,
        filled[InstanceKey("worker", 0)].finished_at,
    ) == (3.5, 5.0)
    assert filled[InstanceKey("worker", 1)] is old.instances[InstanceKey("worker", 1)], (
        "nobody knows when it ended"
    )


async def test_every_attempt_has_its_usage(stage):
    stage.runtime.script = Script(default=Behaviour(run_seconds=0.0, exit_code=1))
    uid = stage.launch(job(role("worker", 2, backoff_limit=2), max_restarts=9, runtime="memory"))
    assert await asyncio.wait_for(stage.supervisor(uid).run(), PATIENCE) == "Failed"
    entries = stage.store.ledger(uid).instances
    begun = {  # the job may end before the newest attempt of the other instance began
        key: each.attempt + (each.state == "failed" or each.started_at is not None)
        for key, each in entries.items()
    }
    attempts = {(key.index, attempt) for key in entries for attempt in range(begun[key])}
    used = [(each.index, each.attempt) for each in stage.store.usage.of_run(uid)]
    assert sorted(used) == sorted(attempts)
