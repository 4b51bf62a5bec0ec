"""Accounts, reservations and runs that show only what a case is about."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from airflow_training.accounts.operations import reserve
from airflow_training.control.attempts import AttemptId
from airflow_training.control.model import InstanceEntry
from airflow_training.control.usage import AttemptUsage
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.account_records import (
    Account,
    AccountKind,
    AccountLimit,
    LimitKind,
    LimitPeriod,
    Price,
    Reservation,
    ReservedRole,
)
from airflow_training.state.store import Store
from tests.state.samples import START, a_ledger, add_run, end_run, take, worker

GPU = "nvidia.com/gpu"
HOUR = 3600.0


def workers(
    replicas: int = 1, *, gpus: int = 1, labels: Mapping[str, str] | None = None
) -> ReservedRole:
    return ReservedRole(
        role="worker",
        replicas=replicas,
        resources={GPU: str(gpus)} if gpus else {},
        node_labels=labels or {},
    )


def an_attempt(
    index: int = 0,
    *,
    attempt: int = 0,
    start: float = START,
    seconds: float = HOUR,
    role: str = "worker",
    resources: Mapping[str, str] | None = None,
    runs: bool = False,
) -> AttemptUsage:
    return AttemptUsage(
        key=InstanceKey(role, index),
        attempt_id=AttemptId(attempt=attempt),
        started_at=start,
        finished_at=None if runs else start + seconds,
        resources={GPU: "1"} if resources is None else resources,
        seconds=seconds,
    )


def a_price(hourly: str, resource: str = GPU, *, since: float = 0.0, label: str = "") -> Price:
    return Price(resource=resource, node_label=label, valid_from=since, hourly=Decimal(hourly))


def add_account(
    store: Store, name: str = "alice", kind: AccountKind = "user", **fields: Any
) -> None:
    store.accounts.save(Account(name=name, kind=kind, **fields))


def set_limit(
    store: Store,
    amount: str,
    kind: LimitKind = "gpu_hours",
    *,
    account: str = "alice",
    period: LimitPeriod = "total",
) -> None:
    store.accounts.set_limit(
        AccountLimit(account=account, kind=kind, period=period, amount=Decimal(amount))
    )


def reserve_for(store: Store, name: str, *, hours: str = "1", **fields: Any) -> Reservation:
    fields.setdefault("roles", [workers()])
    fields.setdefault("account", "alice")
    return reserve(store, hours=Decimal(hours), key=name, **fields)


class Training:
    """A run of one worker whose holder commits what becomes of it."""

    def __init__(
        self, store: Store, name: str, *, resources: Mapping[str, str] | None = None
    ) -> None:
        self.store, self.name = store, name
        self.resources = {GPU: "1"} if resources is None else resources
        self.uid = add_run(store, name, ledger=a_ledger(worker(0))).uid
        self.attempt = 0

    def _commit(self, entries: Sequence[InstanceEntry]) -> None:
        lease = take(self.store, self.uid)
        old = self.store.ledger(self.uid)
        job = dataclasses.replace(old.job, state="Running")
        new = dataclasses.replace(
            old, job=job, instances={InstanceKey(e.role, e.index): e for e in entries}
        )
        self.store.commit(
            self.uid,
            lease=lease,
            old=old,
            new=new,
            events=[],
            resources={"worker": self.resources},
        )
        self.store.release(lease)

    def _entry(self, **fields: Any) -> InstanceEntry:
        return worker(0, attempt=self.attempt, **fields)

    def start(self) -> None:
        self.started_at = self.store.now()
        self._commit([self._entry(state="running", started_at=self.started_at)])

    def finish(self, *, state: str = "failed") -> None:
        """End the instance; the run goes on."""
        entry = self._entry(state=state, started_at=self.started_at, finished_at=self.store.now())
        self._commit([entry])

    def restart(self) -> None:
        self.attempt += 1
        self.start()

    def end(self) -> None:
        end_run(self.store, self.uid, at=self.store.now())


def reserved_training(store: Store, name: str, *, hours: str = "1", **fields: Any) -> Training:
    """Return a run that is submitted with a reservation."""
    held = reserve_for(store, name, hours=hours, **fields)
    training = Training(store, name)
    store.reservations.attach(held.id, training.uid)
    return training
