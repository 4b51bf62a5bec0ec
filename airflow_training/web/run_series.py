"""Reads the series of a run that have these names: what was stored, and what several of them say together. Blocks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from airflow_training.control.system_metrics import is_system_metric
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.store import MetricPoint, Store
from airflow_training.web.derived_series import (
    STEP_TIME,
    InstanceCounters,
    counters_of,
    shown_names,
    step_times,
    with_samples,
    with_steps,
)
from airflow_training.web.newest_points import newest_points_of
from airflow_training.web.series import StoredSeries, series_memory

__all__ = ["load_series"]

_Key = tuple[str, int, int | None, str]


def load_series(
    store: Store,
    uid: str,
    names: Sequence[str],
    start: float | None,
    end: float | None,
    *,
    first: bool = False,
) -> list[StoredSeries]:
    """Series under these names between two times, by name and then by instance, roles in the job's order.

    `first`: only of the first instance that has told one.
    """
    known = newest_points_of(store).of(uid)
    counters = counters_of(known)
    roles = [role.name for role in store.job(uid).roles]
    asked = _asked(known, counters, {*names} & {*shown_names(known)}, roles)
    if first:
        asked = [next(group) for _, group in itertools.groupby(asked, key=lambda e: e.name)]
    sources = {
        _key(source): source
        for each in asked
        for source in _sources(each, counters[InstanceKey(each.role, each.index)])
    }
    points = [*sources.values()]
    read = series_memory(store).of(uid, points, start=start, end=end) if points else []
    whole = dict(zip(sources, read, strict=True))
    parts = (
        _put_together(each, counters[InstanceKey(each.role, each.index)], whole, start, end)
        for each in asked
    )
    return [part for part in parts if len(part.at)]


def _asked(
    known: Sequence[MetricPoint],
    counters: Mapping[InstanceKey, InstanceCounters],
    names: set[str],
    roles: Sequence[str],
) -> list[MetricPoint]:
    asked = [each for each in known if each.name in names]
    if STEP_TIME in names - {each.name for each in asked}:
        steps = (each.steps for each in counters.values())
        asked += [replace(each, name=STEP_TIME, rank=None) for each in steps if each is not None]
    return sorted(asked, key=lambda point: _place(point, roles))


def _sources(point: MetricPoint, counters: InstanceCounters) -> list[MetricPoint]:
    """Return the series that have to be read for one."""
    of_steps = is_system_metric(point.name) or point.name == STEP_TIME
    wanted = [point, counters.steps if of_steps else None, counters.samples]
    return [each for each in wanted if each is not None]


def _put_together(
    point: MetricPoint,
    counters: InstanceCounters,
    read: Mapping[_Key, StoredSeries],
    start: float | None,
    end: float | None,
) -> StoredSeries:
    found = read[_key(point)]
    counted = None if counters.steps is None else read.get(_key(counters.steps))
    if point.name == STEP_TIME and counted is not None and not len(found.at):
        found = replace(step_times(counted), rank=point.rank)
    part = found.between(start, end)
    if is_system_metric(point.name) and counted is not None:
        part = with_steps(part, counted)
    if counters.samples is not None:
        part = with_samples(part, read[_key(counters.samples)])
    return part


def _key(point: MetricPoint) -> _Key:
    return point.role, point.index, point.rank, point.name


def _place(point: MetricPoint, roles: Sequence[str]) -> tuple[str, int, str, int, int]:
    position = roles.index(point.role) if point.role in roles else len(roles)
    rank = -1 if point.rank is None else point.rank
    return point.name, position, point.role, point.index, rank
