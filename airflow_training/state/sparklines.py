"""The loss of many runs as short lines, in one query whose cost does not depend on how many points there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Float, Select, and_, case, func, literal, select, union_all

from airflow_training.state.models import MetricRow, RoleRow

__all__ = ["losses"]

_NAMES = ("loss", "train_loss")
_RANKS = (-1, 0)
"""Told of the instance, or of the first rank in its log."""


def losses(
    connection: Connection, uids: Sequence[str], *, points: int
) -> Mapping[str, Sequence[float | None]]:
    """Return about so many values of the loss of each run that has told one, evenly over its time.

    Of the first instance of the first role that has one. Each value is one lookup in the key of the table.
    """
    found: dict[str, dict[tuple[int, int, int], list[float | None]]] = defaultdict(dict)
    for row in connection.execute(_query(uids, points)) if uids else ():
        kind = (_NAMES.index(row.name), row.rank, row.position)
        found[row.run].setdefault(kind, []).append(row.value)
    return {uid: kinds[min(kinds)] for uid, kinds in found.items()}


def _query(uids: Sequence[str], points: int) -> Select[Any]:
    kinds = union_all(
        *(
            select(literal(name).label("name"), literal(rank).label("rank"))
            for name in _NAMES
            for rank in _RANKS
        )
    ).cte("kinds")
    series = (
        select(
            RoleRow.run,
            RoleRow.role,
            RoleRow.position,
            kinds.c.name,
            kinds.c.rank,
            _time(func.min(MetricRow.at), RoleRow, kinds.c).label("first"),
            _time(func.max(MetricRow.at), RoleRow, kinds.c).label("last"),
        )
        .select_from(RoleRow)
        .join(kinds, literal(1) == literal(1))
        .where(RoleRow.run.in_(uids))
        .cte("series")
    )
    places = union_all(*(select(literal(each).label("place")) for each in range(points)))
    place = places.cte("places").c.place
    between = series.c.first + (series.c.last - series.c.first) * place / literal(
        points - 1.0, Float
    )
    at = case((place == points - 1, series.c.last), else_=between)  # rounded, it may be too late
    value = (
        select(MetricRow.value)
        .where(_of(series.c, series.c), MetricRow.at >= at)
        .order_by(MetricRow.at)
        .limit(1)
        .scalar_subquery()
    )
    return (
        select(series.c.run, series.c.position, series.c.name, series.c.rank, value.label("value"))
        .join(place.table, literal(1) == literal(1))
        .where(series.c.first.is_not(None))
        .order_by(series.c.run, series.c.position, series.c.name, series.c.rank, place)
    )


def _time(what: Any, role: Any, kind: Any) -> Any:
    return select(what).where(_of(role, kind)).correlate(RoleRow, kind.name.table).scalar_subquery()


def _of(role: Any, kind: Any) -> Any:
    return and_(
        MetricRow.run == role.run,
        MetricRow.role == role.role,
        MetricRow.index == 0,
        MetricRow.rank == kind.rank,
        MetricRow.name == kind.name,
    )
