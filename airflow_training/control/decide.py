"""The decision: ledger and observations in, new ledger and actions out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_training.control.model import Decision, Ledger, Observations, Request
from airflow_training.spec.resolved import ResolvedJob


def new_ledger(job: ResolvedJob, *, now: float, activate_all: bool) -> Ledger:
    """Return the ledger of a run that was just accepted.

    `activate_all`: no role task will ask for activation (the command line).
    """
    raise NotImplementedError


def decide(
    job: ResolvedJob,
    ledger: Ledger,
    requests: Sequence[Request],
    observations: Observations | None,
    now: float,
    *,
    generation: int = 0,
) -> Decision:
    """Return what to persist, then do, then tell. `observations` None: no snapshot yet."""
    raise NotImplementedError
