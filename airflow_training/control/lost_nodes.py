"""A node that is lost takes all that ran there along: one outage is one failure, charged once. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_training.control.failures import Failure
from airflow_training.control.model import InstanceEntry, RestartRecord

__all__ = ["outage_of"]

_SPREAD_SECONDS = 600.0
"""How far apart ends are told that one outage has brought about: who collects pods comes late, some after 5 minutes."""


def outage_of(
    failure: Failure, entry: InstanceEntry, before: Sequence[RestartRecord]
) -> RestartRecord | None:
    """Return the restart that is charged for the same outage of the node; None: it is to be charged now.

    What has been as it is since before that charge was lost with it: what was heard of again, began later, or ran on
    for long is lost by another outage. `before`: the restarts of this epoch.
    """
    node = failure.lost_node
    if not node:
        return None
    return next(
        (
            record
            for record in reversed(before)
            if record.lost_node == node
            and record.counted
            and (record.key, record.attempt) != (failure.key, failure.attempt)
            and entry.last_transition_at <= record.at
            and (entry.state == "unknown" or failure.at - record.at < _SPREAD_SECONDS)
        ),
        None,
    )
