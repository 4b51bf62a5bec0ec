"""The ledger that a run begins with. Pure; who only starts runs needs nothing of what decides about them."""

from __future__ import annotations

from airflow_training.control import reasons
from airflow_training.control.attempts import AttemptId
from airflow_training.control.model import InstanceEntry, JobEntry, Ledger, RoleEntry
from airflow_training.control.recovery import begin
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob

__all__ = ["new_ledger"]


def new_ledger(
    job: ResolvedJob, *, now: float, activate_all: bool, replaces: Ledger | None = None
) -> Ledger:
    """Return the ledger of a run that was just accepted.

    `activate_all`: no role task will ask for activation (the command line). `replaces`: the ledger
    of the same run under an older resolved job: its objects become stale, its requests were seen.
    """
    epoch = 0 if replaces is None else replaces.job.epoch + 1
    return Ledger(
        job=JobEntry(
            state="Paused" if job.suspend else "Pending",
            condition="Paused" if job.suspend else "Received",
            reason=reasons.SUSPENDED if job.suspend else reasons.RECEIVED,
            submitted_at=now if replaces is None else replaces.job.submitted_at,
            last_transition_at=now,
            paused_at=now if job.suspend else None,
            epoch=epoch,
            seen_request=0 if replaces is None else replaces.job.seen_request,
            recovery=begin(job, after=None if replaces is None else replaces.job.recovery),
        ),
        roles={
            role.name: RoleEntry(
                role=role.name,
                replicas=role.replicas,
                activated=activate_all,
                last_transition_at=now,
            )
            for role in job.roles
        },
        instances={
            key: InstanceEntry(key=key, attempt_id=AttemptId(epoch), last_transition_at=now)
            for role in job.roles
            for key in (InstanceKey(role.name, index) for index in range(role.replicas))
        },
    )
