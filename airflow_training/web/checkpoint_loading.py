"""Reads from the store what is known of a run's checkpoints. Blocks."""

from __future__ import annotations

from collections.abc import Callable

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import InputError
from airflow_training.runtimes.rendering import checkpoint_address
from airflow_training.state.store import RunState, Store
from airflow_training.web.checkpoints import CheckpointPage, RunLink, checkpoint_page

__all__ = ["load_checkpoint_page"]

_MOST_EVENTS = 1000


def load_checkpoint_page(
    store: Store, uid: str, *, source_of: Callable[[ResolvedJob], RunLink | None] = lambda _: None
) -> CheckpointPage | None:
    """Checkpoints of a run; None where there is no such run.

    As far as it has told: the newest thousand events of it, and what its ledger holds.
    """
    state = store.read([uid]).get(uid)
    if state is None:
        return None
    return checkpoint_page(
        state,
        store.checkpoint_events(uid, limit=_MOST_EVENTS),
        store.subtasks.of_run(uid),
        source=source_of(state.job),
        address=_address(state),
    )


def _address(state: RunState) -> str:
    """Return below which address a new run looks for checkpoints of this one; "" where it would not get that far."""
    if state.job.checkpoint is None:
        return ""
    try:
        return checkpoint_address(state.job, state.record.ref())
    except InputError:
        return ""
