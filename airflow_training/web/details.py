"""Reads one run whole, for a page. Blocks."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping

from airflow_training.accounts.run_bills import bill
from airflow_training.control.data_readings import DataReading
from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import InputError
from airflow_training.state.store import Store
from airflow_training.supervise.status import run_status
from airflow_training.web.answers import asked_of, detail
from airflow_training.web.instance_reports import last_heard, sample_rates
from airflow_training.web.instance_usage import InstanceUsage, instance_usage
from airflow_training.web.models import ActionName, CostAnswer, Detail
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
    now, progress, usage = store.now(), store.progress.newest(uid), usage_of(store).of(uid)
    points = newest_points_of(store)
    instances = state.ledger.instances
    retired = {key for key, each in instances.items() if each.retired}
    metrics = {
        key: values for key, values in points.metrics(uid, progress).items() if key not in retired
    }
    return detail(
        state,
        overview,
        status=run_status(store, uid),
        metrics=metrics,
        usage=usage,
        allowed=allowed,
        asked=asked_of(overview, store.requests(uid, after=overview.entry.seen_request)),
        heard=last_heard(
            instances.values(),
            progress=progress,
            points=points.of(uid),
            usage=usage,
            now=now,
        ),
        rates=sample_rates(
            _readings_of(store).of(uid), metrics, entries=instances, state=overview.entry.state
        ),
        cost=_cost(store, uid),
        now=now,
    )


def _cost(store: Store, uid: str) -> CostAnswer | None:
    """What a run costs; None where nothing has a price, or the run is gone."""
    if not store.accounts.prices():
        return None
    try:
        found = bill(store, uid)
    except InputError:
        return None
    return CostAnswer(amount=str(found.total), currency=found.currency, final=found.final)


@functools.lru_cache(maxsize=4)
def _readings_of(store: Store) -> RunCache[Mapping[InstanceKey, DataReading]]:
    """Return what tells what every instance of a run has read, for this process and a store."""
    return RunCache(store.progress.data_readings)


@functools.lru_cache(maxsize=4)
def usage_of(store: Store) -> RunCache[Mapping[InstanceKey, InstanceUsage]]:
    """Cache of every instance's usage in a run, for this process and a store."""

    def look(uid: str) -> Mapping[InstanceKey, InstanceUsage]:
        looks = store.environments.last_two(uid)
        return {key: found for key, records in looks.items() if (found := instance_usage(records))}

    return RunCache(look)
