"""The best rows of tables that come one after the other, and why the rest lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from airflow_training.planning.search import table
from airflow_training.planning.search.prices import ObjectiveScores
from airflow_training.planning.view.plan import StrategyTable

Floats = npt.NDArray[np.float64]

_SIZES = tuple(
    name for name in table.COLUMNS if name not in ("sequence_parallel", "recompute", "overlap")
)
SPELLINGS = 2 * prod(len(texts) for texts in table.TEXTS.values())
"""Rows that may be one and the same plan: one for each mode with the same ZeRO stage."""


@dataclass(frozen=True, slots=True)
class RankedStrategy:
    """A strategy (a table of one row, and its stages), and how it counts."""

    score: float
    wall_seconds: float
    money: float
    spare_bytes: float
    """On the fullest device. Plans of one split that agree in it and in their score are one plan."""
    row: StrategyTable
    stage_layers: tuple[int, ...] | None
    stage_devices: tuple[str, ...] | None


def plainest(rows: StrategyTable, score: Floats, spare_bytes: Floats) -> npt.NDArray[np.int64]:
    """Return the rows that are no other spelling of a row before them, in their order.

    Sequence parallelism, recomputation and overlap may change nothing: where no operator can be split
    along the sequence, nothing need be kept, or nothing is sent. Then a split with the same ZeRO stage
    takes the same time and the same memory. Rows have to stand in the order of their columns, so that
    the plainest mode comes first.
    """
    sizes = [getattr(rows, name) for name in _SIZES]
    keys = np.stack([score, spare_bytes, *(np.asarray(size, dtype=np.float64) for size in sizes)])
    return np.sort(np.unique(keys, axis=1, return_index=True)[1])


def distinct(plans: Sequence[RankedStrategy]) -> list[RankedStrategy]:
    """Return every plan once, in its plainest spelling, best first."""

    def spelling(plan: RankedStrategy) -> tuple[Any, ...]:
        modes = tuple(int(getattr(plan.row, name)[0]) for name in table.COLUMNS)
        return plan.score, modes, plan.stage_layers or (), plan.stage_devices or ()

    found: dict[tuple[Any, ...], RankedStrategy] = {}
    for plan in sorted(plans, key=spelling):
        sizes = tuple(int(getattr(plan.row, name)[0]) for name in _SIZES)
        stages = (plan.stage_layers, plan.stage_devices)
        found.setdefault((plan.score, plan.spare_bytes, sizes, stages), plan)
    return list(found.values())


@dataclass(slots=True)
class StrategyFamily:
    """What is known of all strategies with one value of one dimension."""

    candidates: int = 0
    best: float = np.inf
    """Least score of those that were priced and fit."""
    floor: float = np.inf
    """Least score that one of those which a bound cut could have had."""
    excess_bytes: float = np.inf
    """Fewest bytes by which one did not fit."""
    over_budget: float = np.inf
    """Least share by which one that fits was beyond the budget."""

    def join(self, other: StrategyFamily) -> None:
        """Take in what is known of the same family elsewhere."""
        self.candidates += other.candidates
        for key in ("best", "floor", "excess_bytes", "over_budget"):
            setattr(self, key, min(getattr(self, key), getattr(other, key)))


@dataclass(slots=True)
class Ranking:
    """The k best rows of any device count, and the fastest of each."""

    top_k: int
    to_beat_score: float = np.inf
    """Known from elsewhere: worse ones do not count."""
    rows: StrategyTable | None = None
    score: Floats = field(default_factory=lambda: np.zeros(0))
    spare_bytes: Floats = field(default_factory=lambda: np.zeros(0))
    fastest: dict[int, tuple[float, float, StrategyTable]] = field(default_factory=dict)
    """By device count: wall seconds, money and the row."""
    families: dict[tuple[str, int], StrategyFamily] = field(
        default_factory=lambda: defaultdict(StrategyFamily)
    )
    priced: int = 0

    @property
    def worst_kept(self) -> float:
        """The score that a row has to beat to be among the k best."""
        mine = float(self.score[-1]) if len(self.score) >= self.top_k else np.inf
        return min(mine, self.to_beat_score)

    def to_beat(self, devices: npt.NDArray[np.int64]) -> Floats:
        """Return the wall seconds of the fastest row so far on each of these device counts."""
        best = np.full(int(devices.max(initial=0)) + 1, np.inf)
        for count, (seconds, *_) in self.fastest.items():
            if count < len(best):
                best[count] = seconds
        return best[devices]

    def add(self, rows: StrategyTable, scores: ObjectiveScores, spare_bytes: Floats) -> None:
        """Take in rows that fit, with their prices and what they leave of a device's memory."""
        self.priced += table.size(rows)
        over = np.where(scores.over_budget > 0, scores.over_budget, np.inf)
        self.note(rows, best=scores.score, over_budget=over)
        winners = np.flatnonzero(np.isfinite(scores.score))
        self._keep_best(table.take(rows, winners), scores.score[winners], spare_bytes[winners])
        self._keep_fastest(rows, scores)

    def refuse(self, rows: StrategyTable, excess_bytes: Floats) -> None:
        """Remember rows that need so many bytes more than a device has."""
        if len(excess_bytes):
            self.note(rows, excess_bytes=excess_bytes)

    def note(self, rows: StrategyTable, **found: Floats) -> None:
        """Remember of every family how near its rows came: numbers by the names of `StrategyFamily`."""
        for name in table.COLUMNS:
            column = np.asarray(getattr(rows, name), dtype=np.int64)
            for key, numbers in found.items():
                nearest = np.full(int(column.max(initial=0)) + 1, np.inf)
                np.minimum.at(nearest, column, numbers)
                for value in np.flatnonzero(nearest < np.inf):
                    family = self.families[name, int(value)]
                    setattr(family, key, min(getattr(family, key), float(nearest[value])))

    def _keep_best(self, rows: StrategyTable, score: Floats, spare_bytes: Floats) -> None:
        if not len(score):
            return
        if self.rows is not None:
            rows = table.stack([self.rows, rows])
            score = np.concatenate([self.score, score])
            spare_bytes = np.concatenate([self.spare_bytes, spare_bytes])
        last = min(self.top_k * SPELLINGS, len(score)) - 1
        near = np.flatnonzero(score <= np.partition(score, last)[last])
        # equal scores stand in the order of their columns, whatever order they were priced in
        keys = [getattr(rows, name)[near] for name in reversed(table.COLUMNS)]
        order = near[np.lexsort((*keys, score[near]))]
        order = order[plainest(table.take(rows, order), score[order], spare_bytes[order])]
        order = order[: self.top_k]
        self.rows = table.take(rows, order)
        self.score, self.spare_bytes = score[order], spare_bytes[order]

    def _keep_fastest(self, rows: StrategyTable, scores: ObjectiveScores) -> None:
        seconds, devices = scores.wall_seconds, table.devices(rows)
        for count in np.unique(devices):
            here = np.flatnonzero(devices == count)
            least = int(here[np.argmin(seconds[here])])
            known = self.fastest.get(int(count))
            if np.isfinite(seconds[least]) and (known is None or seconds[least] < known[0]):
                row = table.take(rows, slice(least, least + 1))
                self.fastest[int(count)] = (float(seconds[least]), float(scores.money[least]), row)
