"""Reads metrics: every series of a run, or what those of very many ranks say together. Handlers run in threads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends, Query
from numpy.typing import NDArray

from airflow_training.state.store import RunRecord, open_store
from airflow_training.web.answers import finite
from airflow_training.web.bands import Axis, Band, band_of, heat_map_of
from airflow_training.web.derived_series import shown_names
from airflow_training.web.models import BandAnswer, HeatMapAnswer, SeriesAnswer, SeriesPage
from airflow_training.web.newest_points import newest_points_of
from airflow_training.web.reduction import kept_points
from airflow_training.web.rights import RunDep, read
from airflow_training.web.run_series import load_series
from airflow_training.web.series import StoredSeries

__all__ = ["router"]

_MOST_NAMES = 50
_BUCKETS = 1000
"""Of a band: as many as a screen has columns."""
_WORST = 3
_COLUMNS, _ROWS = 120, 256
"""Of a heat map."""

router = APIRouter()


@router.get("/dags/{dag}/trainings/{uid}/series", dependencies=[Depends(read)])
def series(
    run: RunDep,
    name: Annotated[Sequence[str], Query(max_length=_MOST_NAMES)] = (),
    points: Annotated[int, Query(ge=4, le=100_000)] = 2000,
    start: float | None = None,
    end: float | None = None,
    most: Annotated[int | None, Query(ge=1)] = None,
    axis: Axis = "step",
    *,
    first: bool = False,
) -> SeriesPage:
    """Return metrics of every instance, each reduced to about `points`; no name: the names only.

    `first`: only of the first instance that has told one.
    `most`: where more series have one name, their band along `axis` is answered, and the worst.
    """
    store = open_store()
    known = newest_points_of(store).of(run.uid)
    page = SeriesPage(names=sorted(shown_names(known)), series=[], bands=[])
    found = load_series(store, run.uid, name, start, end, first=first)
    first_ranks = _first_ranks(run) if found else {}
    for _, group in itertools.groupby(found, key=lambda each: each.name):
        shown = list(group)
        if most is not None and len(shown) > most:
            band = band_of(shown, axis=axis, buckets=_BUCKETS, worst=_WORST)
            page.bands.append(_band(band, shown))
            shown = [shown[place] for place in band.worst]
        page.series += [_reduced(each, points, first_ranks) for each in shown]
    return page


@router.get("/dags/{dag}/trainings/{uid}/heat", dependencies=[Depends(read)])
def heat(
    run: RunDep,
    name: str,
    start: float | None = None,
    end: float | None = None,
    axis: Axis = "step",
) -> HeatMapAnswer:
    """Return one metric as a picture with a row per rank, or per few that follow each other."""
    found = load_series(open_store(), run.uid, [name], start, end)
    picture = heat_map_of(found, axis=axis, columns=_COLUMNS, rows=_ROWS)
    first_ranks = _first_ranks(run) if found else {}
    labels = [_label(each, first_ranks) for each in found]
    rows = [
        labels[place : place + picture.per_row] for place in range(0, len(found), picture.per_row)
    ]
    return HeatMapAnswer(
        x=picture.x.tolist(),
        rows=[row[0] if len(row) == 1 else f"{row[0]} to {row[-1]}" for row in rows],
        values=_cells(picture.values),
        distances=_cells(picture.distances),
    )


def _cells(values: NDArray[np.float64]) -> list[list[float | None]]:
    return [[finite(each) for each in row] for row in values.tolist()]


def _first_ranks(run: RunRecord) -> Mapping[str, int | None]:
    return {role.name: role.rank_offset for role in open_store().job(run.uid).roles}


def _rank(found: StoredSeries, first_ranks: Mapping[str, int | None]) -> int | None:
    if found.rank is not None:
        return found.rank
    first = first_ranks.get(found.role)
    return None if first is None else first + found.index


def _label(found: StoredSeries, first_ranks: Mapping[str, int | None]) -> str:
    rank = _rank(found, first_ranks)
    return f"{found.role}-{found.index}" + ("" if rank is None else f" rank {rank}")


def _reduced(
    found: StoredSeries, points: int, first_ranks: Mapping[str, int | None]
) -> SeriesAnswer:
    kept = kept_points(found.values, points)
    return SeriesAnswer(
        name=found.name,
        role=found.role,
        index=found.index,
        rank=_rank(found, first_ranks),
        x_step=_whole(found.steps[kept]),
        x_time=found.at[kept].tolist(),
        x_samples=[] if found.samples is None else _whole(found.samples[kept]),
        y=[finite(each) for each in found.values[kept].tolist()],
        total=len(found.values) + found.left_out,
    )


def _whole(counts: NDArray[np.float64]) -> list[int | None]:
    return [None if math.isnan(each) else int(each) for each in counts.tolist()]


def _band(band: Band, found: Sequence[StoredSeries]) -> BandAnswer:
    return BandAnswer(
        name=found[0].name,
        count=len(found),
        x=band.x.tolist(),
        minimum=band.minimum.tolist(),
        low=band.low.tolist(),
        median=band.median.tolist(),
        high=band.high.tolist(),
        maximum=band.maximum.tolist(),
    )
