"""What is known of the checkpoints of one group: which is the newest, and which one further back would be. Pure.

The group is the whole job, or one instance where instances are independent. Nothing here knows which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from airflow_training.control.model import Recovery

__all__ = ["REMEMBERED", "one_back", "with_late", "with_newer"]

REMEMBERED = 4
"""Committed checkpoints that the ledger remembers beside the newest: how far a group may step back."""


def with_newer(
    newest: Mapping[str, Any] | None,
    recovery: Recovery,
    reference: Mapping[str, Any],
    *,
    now: float,
) -> Recovery | None:
    """Return the recovery with this reference as the newest, None where it is no news.

    References may come late, twice, and after the group stepped back behind them.
    """
    if reference["at"] <= recovery.turned_at or (newest and reference["at"] <= newest["at"]):
        return None
    step = reference["step"]
    return replace(
        recovery,
        older=recovery.older if newest is None else (*recovery.older, newest)[-REMEMBERED:],
        at_most=None,
        exactly=False,
        highest_step=max(step, recovery.highest_step),
        progressed_at=now if step > recovery.highest_step else recovery.progressed_at,
    )


def with_late(
    newest: Mapping[str, Any] | None, recovery: Recovery, reference: Mapping[str, Any]
) -> Recovery | None:
    """Return the recovery with one from before the newest that nobody had told of, None where it is no news.

    Reports of checkpoints that follow each other fast may be lost, all but the last.
    """
    if newest is None or not recovery.turned_at < reference["at"] < newest["at"]:
        return None
    if any(each["at"] == reference["at"] for each in recovery.older):
        return None
    older = sorted((*recovery.older, reference), key=lambda each: each["at"])[-REMEMBERED:]
    return None if reference not in older else replace(recovery, older=tuple(older))


def one_back(recovery: Recovery, *, now: float) -> tuple[Mapping[str, Any], Recovery] | None:
    """Return the checkpoint before the newest, and the recovery that goes on from there; None without one."""
    if not recovery.older:
        return None
    *older, target = recovery.older
    return target, replace(
        recovery, older=tuple(older), at_most=target["step"], exactly=False, turned_at=now
    )
