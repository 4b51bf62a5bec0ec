"""What the store knows of the environment of instances that failed without bringing a record along."""

from __future__ import annotations

import asyncio
import dataclasses
import json

from airflow_training.control.model import Observations
from airflow_training.state.store import Store

__all__ = ["StoredRecords"]


class StoredRecords:
    """Reads each failed instance's records once: pods may have reported them elsewhere."""

    def __init__(self, store: Store, uid: str) -> None:
        self._store = store
        self._uid = uid
        self._known: dict[str, tuple[str, ...]] = {}
        """Uid of an instance -> its records."""

    async def add(self, seen: Observations | None) -> Observations | None:
        """Return the same observations, with these records where they have none."""
        if seen is None:
            return None
        bare = [each for each in seen.instances if each.state == "failed" and not each.environment]
        if not bare:
            return seen
        if any(each.uid not in self._known for each in bare):
            stored = await asyncio.to_thread(self._store.environment, self._uid)
            for each in bare:
                records = stored.get((each.role, each.index), ())
                lines = tuple(json.dumps({**record.body}) for record in records)
                self._known.setdefault(each.uid, lines)
        completed = {
            each.uid: dataclasses.replace(each, environment=self._known[each.uid]) for each in bare
        }
        instances = tuple(completed.get(each.uid, each) for each in seen.instances)
        return dataclasses.replace(seen, instances=instances)
