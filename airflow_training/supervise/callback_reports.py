"""What agents in pods told of the attempts they run: ends, and the newest word of those awaited.

Asked every second for runs whose pods can stay, so an end is read once, and nothing else but what is
waited for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from airflow_training.documents.instances import InstanceKey
from airflow_training.state.store import Store

__all__ = ["PodReports"]

_RUNS = 256
"""Of so many runs ends are remembered; of more, they are read again."""


class PodReports:
    """The reports of all runs of one process. Blocks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ends: dict[str, dict[InstanceKey, tuple[str, Mapping[str, Any]]]] = {}
        """Run uid -> instance -> digest of its newest end, and what that says of its pod."""

    def of(
        self, run_uid: str, awaited: Collection[InstanceKey]
    ) -> Mapping[InstanceKey, Sequence[Mapping[str, Any]]]:
        """Return the newest end of each instance, and after it the newest record of `awaited`."""
        if len(self._ends) > _RUNS:
            self._ends.clear()
        ends = self._ends.setdefault(run_uid, {})
        known = {key: digest for key, (digest, _) in ends.items()}
        for key, record in self._store.environments.ends(run_uid, known=known).items():
            ends[key] = (record.digest, {"turn": record.body.get("turn")})
        found: dict[InstanceKey, list[Mapping[str, Any]]] = {
            key: [body] for key, (_, body) in ends.items()
        }
        for key, record in self._store.environments.newest(run_uid, awaited).items():
            found.setdefault(key, []).append(record.body)
        return found
