"""What a run costs, by the store. Light: who shows a bill needs nothing of limits, keys and reservations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_training.accounts.bills import Bill, bill_rows
from airflow_training.accounts.prices import PriceList
from airflow_training.documents.resolved import ResolvedRole
from airflow_training.state.store import Store

__all__ = ["bill", "node_labels_of"]


def bill(store: Store, run: str) -> Bill:
    """Bill of a run until now; `run`: its run id, or the beginning of its uid."""
    record = store.find_run(run)
    reservation = store.reservations.of_run(record.uid)
    attempts = store.usage.of_run(record.uid, spares=True)
    if reservation is not None:
        labels = {each.role: each.node_labels for each in reservation.roles}
    else:
        labels = {each.name: node_labels_of(each) for each in store.job(record.uid).roles}
    until = max([store.now(), *(each.started_at + each.seconds for each in attempts)])
    over = record.finished_at is not None and all(each.finished_at for each in attempts)
    return Bill(
        run=record.uid,
        run_id=record.key.run_id,
        job=record.job,
        account="" if reservation is None else reservation.account,
        team="" if reservation is None else reservation.team,
        currency=store.accounts.currency(),
        until=until,
        final=over,
        rows=bill_rows(
            attempts, PriceList(store.accounts.prices()), node_labels=labels, until=until
        ),
    )


def node_labels_of(role: ResolvedRole) -> Mapping[str, str]:
    """The nodeSelector of a role: prices may depend on it."""
    pod: Mapping[str, Any] = role.template.get("spec") or {}
    asked: Mapping[str, Any] = pod.get("nodeSelector") or {}
    return {str(name): str(value) for name, value in asked.items()}
