"""What the store knows of the environment of instances that failed without bringing a record along."""

from __future__ import annotations

import asyncio
import dataclasses
import json

from airflow_training.control.observations import Observations
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
        """Return the same observations, with these records where they have none.

        When an instance has just failed, those that may stay in place get theirs too.
        """
        if seen is None:
            return None
        bare = [each for each in seen.instances if each.state == "failed" and not each.environment]
        if not bare:
            return seen
        survivors: dict[str, tuple[str, ...]] = {}
        if any(each.uid not in self._known for each in bare):
            stored = await asyncio.to_thread(self._store.environments.of_run, self._uid)
            lines = {
                key: tuple(json.dumps({**record.body}) for record in records)
                for key, records in stored.items()
            }
            for each in bare:
                self._known.setdefault(each.uid, lines.get(each.key, ()))
            # what restarts with these may stay where it is, if its own records say so
            survivors = {
                each.uid: lines.get(each.key, ())
                for each in seen.instances
                if each.in_place and not each.environment
            }
        known = {**survivors, **{each.uid: self._known[each.uid] for each in bare}}
        instances = tuple(
            dataclasses.replace(each, environment=known[each.uid]) if each.uid in known else each
            for each in seen.instances
        )
        return dataclasses.replace(seen, instances=instances)
