"""Why instances of a run failed: what the ledger knows of their ends, and what their logs say."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_training.control.model import TERMINAL_JOB_STATES, InstanceEntry, Ledger
from airflow_training.logs.model import InstanceFact

__all__ = ["facts_of"]


def facts_of(ledger: Ledger) -> Sequence[InstanceFact]:
    """Return how the instances of a run ended, as far as they ended by themselves.

    Of a job that failed without one of them (a deadline), how the job ended.
    """
    ended = [entry for entry in ledger.instances.values() if _ended_by_itself(entry)]
    if not ended and ledger.job.state in TERMINAL_JOB_STATES and ledger.job.state == "Failed":
        return [
            InstanceFact(role="", index=0, reason=ledger.job.reason, message=ledger.job.message)
        ]
    return [_fact(entry) for entry in ended]


def _ended_by_itself(entry: InstanceEntry) -> bool:
    return entry.final and (entry.state == "succeeded" or entry.failure_class is not None)


def _fact(entry: InstanceEntry) -> InstanceFact:
    return InstanceFact(
        role=entry.role,
        index=entry.index,
        exit_code=entry.exit_code,
        signal=None if entry.signal is None else str(entry.signal),
        reason=entry.reason,
        message=entry.message,
        finished_at=entry.finished_at,
    )
