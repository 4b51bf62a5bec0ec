"""A run whose account reaches a limit while it runs, as its holder sees to it."""

from __future__ import annotations

from decimal import Decimal

import pytest

from airflow_training.accounts.operations import reserve, settle
from airflow_training.documents.resolved import RunKey
from airflow_training.runtimes.faults import Behaviour, Script
from airflow_training.state.account_records import Account, AccountLimit, ReservedRole
from airflow_training.supervise.followers import limits
from tests.builders import job, role
from tests.waiting import until


def limit(store, amount):
    store.accounts.set_limit(
        AccountLimit(account="alice", kind="instance_hours", period="total", amount=Decimal(amount))
    )


@pytest.mark.parametrize(
    ("at_limit", "state"),
    [("checkpoint_and_pause", "Paused"), ("kill", "Stopped"), ("finish", "Running")],
)
async def test_a_run_at_its_limit(stage, monkeypatch, at_limit, state):
    monkeypatch.setattr(limits, "_EVERY_SECONDS", 0.01)
    store = stage.store
    store.accounts.save(Account(name="alice", at_limit=at_limit))
    limit(store, "100")
    held = reserve(
        store,
        account="alice",
        roles=[ReservedRole(role="worker", replicas=2)],
        hours=Decimal(10),
        key="one",
    )
    store.reservations.attach(held.id, RunKey(source="cli", run_id="one").uid)  # before it is there
    settle(store)
    stage.runtime.script = Script(default=Behaviour(run_seconds=None))
    uid = stage.launch(job(role("worker", 2), runtime="memory"), run_id="one")
    async with stage.driving(uid):
        await until(lambda: store.run(uid).state == "Running" and len(stage.live(uid)) == 2)
        limit(store, "0.0000001")
        await until(lambda: "AccountAtLimit" in stage.reasons(uid))
        await until(lambda: store.run(uid).state == state)
        assert stage.reasons(uid).count("AccountAtLimit") == 1
        await until(lambda: len(stage.live(uid)) == (2 if at_limit == "finish" else 0))
