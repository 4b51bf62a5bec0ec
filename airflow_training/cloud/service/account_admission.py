"""Admission by the accounts of the store: each key is a user's, and each submission is reserved for and billed."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from airflow_training.accounts import operations
from airflow_training.accounts.refusals import AccountRefused, number_text
from airflow_training.accounts.reservation import DEFAULT_HOURS, WAIT_HOURS
from airflow_training.cloud.protocol import SubmissionRequest
from airflow_training.cloud.service.admission import (
    Admission,
    Caller,
    Grant,
    KeyAdmission,
    LoginRefused,
    QuotaRefused,
    RunRight,
    UserSource,
)
from airflow_training.cloud.service.jobs import framework_of, role_sizes
from airflow_training.frameworks.registry import find
from airflow_training.state.account_records import KeyScope, Reservation, ReservedRole
from airflow_training.state.store import Store, open_store

__all__ = ["AccountAdmission", "admission_of"]

_LOGIN = (
    "on the service's machine makes one; then `airflow-training cloud login NAME ADDRESS --key KEY`"
)


def admission_of(key: str) -> tuple[Admission, bool]:
    """Who is let in: the accounts of the store where it keeps any (then True), else whoever has the key."""
    store = open_store()
    if operations.is_in_use(store):
        return AccountAdmission(store), True
    return KeyAdmission(key, account="service"), False


class AccountAdmission:
    """See `admission.Admission`."""

    users: UserSource = "key"

    def __init__(self, store: Store) -> None:
        self._store = store

    def login(self, key: str, *, right: RunRight) -> Caller:
        """See `Admission`."""
        scope: KeyScope = "read" if right in ("read", "read_logs") else "submit"
        try:
            return Caller(account=operations.authenticate(self._store, key, scope=scope).name)
        except AccountRefused as error:
            problems = [replace(each, hint=f"{each.hint} {_LOGIN}") for each in error.problems]
            raise LoginRefused(problems=problems) from None

    def reserve(self, account: str, submission: str, request: SubmissionRequest) -> Grant:
        """See `Admission`."""
        name = framework_of(request)
        sizes = role_sizes(name, find(name).framework.spec, request.replicas)
        resources = {kind: str(amount) for kind, amount in request.resources.items()}
        roles = [
            ReservedRole(role=role, replicas=replicas, resources=resources, node_labels={})
            for role, replicas in sizes.items()
        ]
        hours = Decimal(str(request.hours)) if request.hours else DEFAULT_HOURS
        try:
            held = operations.reserve(
                self._store,
                account=account,
                roles=roles,
                hours=hours,
                key=submission,
                team=request.team or None,
                wait_hours=WAIT_HOURS,
            )
        except AccountRefused as error:
            raise QuotaRefused(problems=error.problems) from None
        estimate = operations.estimate(self._store, roles, hours=hours, job=request.name)
        amounts, basis = estimate.amounts, _BASIS[estimate.basis]
        return Grant(
            reservation={"id": held.id, "hours": number_text(held.hours), "team": held.team},
            estimate=f"{number_text(amounts.money)} {estimate.currency} for"
            f" {number_text(estimate.hours)} h of {number_text(amounts.instance_hours)} instance-hours"
            f" and {number_text(amounts.gpu_hours)} GPU-hours, {basis}",
        )

    def release(self, account: str, submission: str) -> None:
        """See `Admission`."""
        held = self._held(account, submission)
        if held is not None:
            self._store.reservations.release(held.id)

    def attach(self, account: str, submission: str, run_uid: str) -> None:
        """See `Admission`."""
        held = self._held(account, submission)
        if held is None or held.run != run_uid:
            self._store.reservations.attach("" if held is None else held.id, run_uid)

    def _held(self, account: str, submission: str) -> Reservation | None:
        return self._store.reservations.of_key(account, submission)


_BASIS = {
    "plan": "by its plan",
    "history": "as its earlier runs took",
    "asked": "at most",
}
