"""What a run asks for is held in the account of whoever has started it, where the store keeps accounts."""

from __future__ import annotations

from decimal import Decimal

from airflow_training.accounts import operations
from airflow_training.accounts.reservation import DEFAULT_HOURS, WAIT_HOURS
from airflow_training.admission.queueing import role_resources
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.runtimes.registry import adapter_of_job
from airflow_training.state.store import Store

__all__ = ["give_up_run", "reserve_run"]

_TEAM = "airflow-training/team"
"""Annotation of a job: which team pays, of somebody who is in several."""


def reserve_run(store: Store, job: ResolvedJob, *, uid: str, account: str) -> bool:
    """Hold it for a run that may not exist yet, once however often this is called; returns whether it is held.

    `account`: the user's name. Nothing is held for a run that nobody in person has started, nor where there are no
    accounts. Raises AccountRefused with login, quota or balance; InputError for a team that is not the user's.
    """
    if not account or not operations.is_in_use(store):
        return False
    held = store.reservations.of_run(uid)
    if held is not None and (
        held.ended_at is None
        or held.ended_at
        >= held.expires_at  # it has waited too long: what begins later goes on beyond it
        or store.run(uid) is not None
    ):
        return True  # by whoever has sent it, or before it was started again
    seconds = job.active_deadline_seconds
    held = operations.reserve(
        store,
        account=account if held is None else held.account,
        roles=operations.reserved_roles(
            job, role_resources(job), spares=adapter_of_job(job).capabilities.spares
        ),
        hours=DEFAULT_HOURS if seconds is None else Decimal(str(seconds)) / 3600,
        key=f"run-{uid}" if held is None else held.key,  # that takes the place of what was given up
        team=(held and held.team) or job.annotations.get(_TEAM),
        wait_hours=WAIT_HOURS,
    )
    store.reservations.attach(held.id, uid)
    return True


def give_up_run(store: Store, uid: str) -> None:
    """Hold nothing more for a run that will not begin."""
    held = store.reservations.of_run(uid)
    if held is not None:
        store.reservations.release(held.id)  # not of a run that is there
