"""What is known of the checkpoints of one group: which is the newest, and which one further back would be. Pure.

The group is the whole job, or one instance where instances are independent. Nothing here knows which.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_training.control.model import Recovery
from airflow_training.documents.resolved_blocks import CheckpointCommit

__all__ = ["REMEMBERED", "add_late", "add_newer", "previous_checkpoint"]

REMEMBERED = 4
"""Committed checkpoints that the ledger remembers beside the newest: how far a group may step back."""


def add_newer(
    newest: CheckpointCommit | None, recovery: Recovery, commit: CheckpointCommit, *, now: float
) -> Recovery | None:
    """Return the recovery with this commit as the newest, None where it is no news.

    Commits may be reported late, twice, and after the group stepped back behind them.
    """
    if commit.at <= recovery.stepped_back_at or (newest and commit.at <= newest.at):
        return None
    step = commit.step
    return replace(
        recovery,
        older=recovery.older if newest is None else (*recovery.older, newest)[-REMEMBERED:],
        at_most=None,
        exactly=False,
        highest_step=max(step, recovery.highest_step),
        progressed_at=now if step > recovery.highest_step else recovery.progressed_at,
    )


def add_late(
    newest: CheckpointCommit | None, recovery: Recovery, commit: CheckpointCommit
) -> Recovery | None:
    """Return the recovery with one from before the newest that nobody had told of, None where it is no news.

    Reports of checkpoints that follow each other fast may be lost, all but the last.
    """
    if newest is None or not recovery.stepped_back_at < commit.at < newest.at:
        return None
    if any(each.at == commit.at for each in recovery.older):
        return None
    older = sorted((*recovery.older, commit), key=lambda each: each.at)[-REMEMBERED:]
    return None if commit not in older else replace(recovery, older=tuple(older))


def previous_checkpoint(
    recovery: Recovery, *, now: float
) -> tuple[CheckpointCommit, Recovery] | None:
    """Return the checkpoint before the newest, and the recovery that goes on from there; None without one."""
    if not recovery.older:
        return None
    *older, target = recovery.older
    return target, replace(
        recovery, older=tuple(older), at_most=target.step, exactly=False, stepped_back_at=now
    )
