"""Reads one run whole, for a page. Blocks."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping

from airflow_training.control.model import InstanceKey
from airflow_training.state.store import Store
from airflow_training.supervise.status import run_status
from airflow_training.web.answers import ActionName, Detail, detail
from airflow_training.web.instance_usage import InstanceUsage, instance_usage
from airflow_training.web.newest_points import newest_points_of
from airflow_training.web.run_cache import RunCache

__all__ = ["load_detail", "usage_of"]


def load_detail(store: Store, uid: str, *, allowed: Collection[ActionName]) -> Detail | None:
    """Return everything about a run; None where there is none (any more).

    `allowed`: what the user who asks may do to it.
    """
    state = store.read([uid]).get(uid)
    overview = store.overviews([uid]).get(uid)
    if state is None or overview is None:
        return None
    return detail(
        state,
        overview,
        status=run_status(store, uid),
        metrics=newest_points_of(store).metrics(uid, store.progress.newest(uid)),
        usage=usage_of(store).of(uid),
        allowed=allowed,
        now=store.now(),
    )


@functools.lru_cache(maxsize=4)
def usage_of(store: Store) -> RunCache[Mapping[InstanceKey, InstanceUsage]]:
    """Return what tells the usage of every instance of a run, for this process and a store."""

    def look(uid: str) -> Mapping[InstanceKey, InstanceUsage]:
        looks = store.environments.last_two(uid)
        return {key: found for key, records in looks.items() if (found := instance_usage(records))}

    return RunCache(look)
