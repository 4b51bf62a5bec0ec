"""Which failure began a series of attempts that failed one after the other and got nowhere in between. Pure."""

from __future__ import annotations

from airflow_training.control import reasons
from airflow_training.control.causes import RootCause
from airflow_training.control.model import JobEntry, RestartRecord

__all__ = ["first_failure"]

_LIMITS = frozenset({reasons.BACKOFF_LIMIT_EXCEEDED, reasons.MAX_RESTARTS_EXCEEDED})
_AT_A_STEP = "step "
"""How the fingerprint of a failure begins that happened after a step."""


def first_failure(job: JobEntry, last: RootCause, *, progressed: bool) -> RestartRecord | None:
    """Return the failure that a job which used up a limit had first; None: it is the last, or of the same cause.

    What fails before it gets anywhere fails over what an attempt before has left behind, as far as anybody
    knows: a full disk cuts a checkpoint that cannot be read then. `progressed`: the last attempt had got on.
    """
    if job.reason not in _LIMITS or last.key is None or progressed:
        return None
    first: RestartRecord | None = None
    for each in reversed(job.restarts):
        if each.epoch != job.epoch or (each.scope == "Instance" and each.key != last.key):
            continue
        if each.counted and each.explained_by == "itself":
            first = each
        if each.fingerprint.startswith(_AT_A_STEP):
            break
    return None if first is None or first.cause == last.id else first
