"""Runs, jobs and ledgers that show only what a case is about."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from airflow_training.control.model import Event, InstanceEntry, JobEntry, Ledger, RoleEntry
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole, RunKey, Scheduling
from airflow_training.state.store import Lease, RunRecord, Store
from tests.builders import nested

START = 1_700_000_000.0


class Clock:
    """A clock that moves when told to."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def a_key(run_id: str = "first", **fields: Any) -> RunKey:
    return RunKey(source="cli", run_id=run_id, **fields)


def a_job(*, replicas: int = 2, priority: int = 0, **fields: Any) -> ResolvedJob:
    fields.setdefault("document", {"kind": "TrainingJob", "metadata": {"name": "digits"}})
    return ResolvedJob(
        name="digits",
        roles=(ResolvedRole(name="worker", replicas=replicas),),
        scheduling=Scheduling(priority=priority),
        **fields,
    )


def a_ledger(*entries: InstanceEntry, roles: Sequence[RoleEntry] = (), **job: Any) -> Ledger:
    job.setdefault("submitted_at", START)
    return Ledger(
        job=JobEntry(**job),
        roles={each.role: each for each in roles or (RoleEntry(role="worker", replicas=2),)},
        instances={InstanceKey(each.role, each.index): each for each in entries},
    )


def worker(index: int = 0, **fields: Any) -> InstanceEntry:
    return InstanceEntry(key=InstanceKey("worker", index), **nested(fields))


def an_event(message: str = "", **fields: Any) -> Event:
    fields.setdefault("at", START)
    fields.setdefault("reason", "Happened")
    return Event(message=message, **fields)


def add_run(
    store: Store, run_id: str = "first", *, ledger: Ledger | None = None, **job: Any
) -> RunRecord:
    return store.create_run(
        a_key(run_id),
        a_job(**job),
        ledger or a_ledger(worker(0), worker(1)),
        controller="here",
        queue=True,
    )


def take(store: Store, uid: str, owner: str = "me") -> Lease:
    lease = store.acquire(uid, owner=owner)
    assert lease is not None
    return lease


def end_run(store: Store, uid: str, *, state: str = "Succeeded", at: float, **job: Any) -> None:
    """Commit a terminal job, drained unless told otherwise."""
    lease = take(store, uid, owner="who-ends-it")
    old = store.ledger(uid)
    entry = dataclasses.replace(
        old.job, **{"state": state, "finished_at": at, "drained": True, **job}
    )
    store.commit(uid, lease=lease, old=old, new=dataclasses.replace(old, job=entry), events=[])
    store.release(lease)
