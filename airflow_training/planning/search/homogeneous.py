"""Exact search on equal devices: strategies in the order of their bounds, priced a table at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.tables import distinct
from airflow_training.planning.search import space, table
from airflow_training.planning.search.constraints import Constraints
from airflow_training.planning.search.objectives import Objective
from airflow_training.planning.search.prices import (
    ObjectiveScores,
    Rates,
    scores,
    tokens_per_sample,
)
from airflow_training.planning.search.pricing import Pricing
from airflow_training.planning.search.ranking import Ranking
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.plan import StrategyTable, Workload

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

_SPLITS = 2048
"""Splits that are crossed with their modes at once."""
_ROWS = 4096
"""Strategies that are priced at once to begin with; later tables grow, as fewer cuts are to come."""
_AT_ONCE = 256
"""Strategies known to fit whose step is priced at once to begin with: a step takes longer than memory."""
_ROUND = 32
"""Rows of a device count that stand before the first of the next one with a worse bound; counts that are
not in the front take turns as one."""
_SIZES = ("tp", "cp", "ep", "micro_batch")
"""Sizes that a pass over a layer depends on."""
_SURE = 1.0 + 1e-9
"""A bound has to be worse by more than rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProblem:
    """What is searched for, on one group of equal devices."""

    workload: Workload
    cluster: ClusterView
    constraints: Constraints
    objective: Objective
    rates: Rates

    @property
    def memory_bytes(self) -> float:
        return self.cluster.groups[0].device.memory_bytes

    def scores(self, rows: StrategyTable, seconds: Floats) -> ObjectiveScores:
        """Return how steps of so many seconds count, on the first group of nodes."""
        return self.scores_of(seconds, table.devices(rows)[:, None].astype(np.float64))

    def scores_of(self, seconds: Floats, devices: Floats) -> ObjectiveScores:
        """Return how steps of so many seconds count; `devices` has a column per group."""
        return scores(
            self.objective,
            self.rates,
            step_seconds=seconds,
            devices=devices,
            tokens_per_step=self.workload.global_batch * tokens_per_sample(self.workload.view),
        )


def rank(
    question: SearchProblem,
    splits: StrategyTable,
    *,
    top_k: int,
    pricing: Pricing,
    to_beat: float = np.inf,
) -> Ranking:
    """Return the best strategies on these splits, and the fastest on each device count of the front.

    No strategy is left out that could be among the k best, or the fastest of a count in
    `front_counts`: what a bound cuts is not priced, but counted and remembered. A score of `to_beat` is
    known already: what is worse is of no interest.
    """
    modes = space.modes(question.constraints)
    ranking = Ranking(top_k=top_k, to_beat_score=to_beat)
    _count(ranking, splits, modes)
    if not table.size(splits) or not table.size(modes):
        return ranking
    ways = question.workload, question.cluster, _ways(splits, modes)
    bytes_of = pricing.memory_floors(*ways).bytes_held
    seconds_of = pricing.floors(*ways)
    splits = _small_enough(question, ranking, splits, bytes_of(space.leanest(splits, modes)))
    front = front_counts(int(table.devices(splits).max(initial=1)))
    fastest = _fastest(modes)
    least = np.min(
        [seconds_of(space.with_mode(splits, fastest, row)) for row in range(table.size(fastest))],
        axis=0,
    )
    waiting = _CandidateQueue(question, ranking, splits, least, front)
    most = _SPLITS
    while (block := waiting.next(most)) is not None:
        rows = space.expand(block[0], modes)
        rows = _small_enough(question, ranking, rows, bytes_of(rows))
        _price(question, pricing, _CandidateQueue(question, ranking, rows, seconds_of(rows), front))
        most *= 4
    return ranking


def front_counts(most: int) -> list[int]:
    """Return the device counts of the front of time against money: all, a half, a quarter, ..."""
    return [most >> half for half in range(most.bit_length()) if most % (1 << half) == 0]


class _CandidateQueue:
    """Rows that are not decided yet, those with the lowest bound first."""

    def __init__(
        self,
        question: SearchProblem,
        ranking: Ranking,
        rows: StrategyTable,
        least_seconds: Floats,
        front: list[int],
        beside: Floats | None = None,
    ) -> None:
        """`beside` goes with the rows instead of their least seconds."""
        least = question.scores(rows, least_seconds)
        self.ranking, self.front = ranking, front
        self.rows = rows
        self.score, self.seconds = least.score, least.wall_seconds
        self.beside = least_seconds if beside is None else beside
        self.devices = table.devices(rows)
        self.in_front = np.isin(self.devices, front)
        self._cut()  # what is left is fewer to put in order
        count = np.where(self.in_front, self.devices, 0)
        self._keep(_best_of_each_count_first(self.score, count))

    def next(self, most: int) -> tuple[StrategyTable, Floats] | None:
        """Return up to `most` rows, and what goes with them, once those are cut that cannot win any more."""
        self._cut()
        if not len(self.score):
            return None
        found = table.take(self.rows, slice(0, most)), self.beside[:most]
        self._keep(slice(most, None))
        return found

    def _cut(self) -> None:
        hopeless = self.score > self.ranking.worst_kept * _SURE
        slow = self.seconds > self.ranking.to_beat(self.devices) * _SURE
        cut = hopeless & (slow | ~self.in_front)
        if cut.any():
            self.ranking.note(table.take(self.rows, cut), floor=self.score[cut])
            self._keep(~cut)

    def _keep(self, rows: npt.NDArray[np.bool_] | Counts | slice) -> None:
        self.rows = table.take(self.rows, rows)
        self.score, self.seconds = self.score[rows], self.seconds[rows]
        self.beside = self.beside[rows]
        self.devices, self.in_front = self.devices[rows], self.in_front[rows]


def _price(question: SearchProblem, pricing: Pricing, waiting: _CandidateQueue) -> None:
    """Price rows until the rest cannot win."""
    workload, cluster, ranking = question.workload, question.cluster, waiting.ranking
    most = _ROWS
    while (block := waiting.next(most)) is not None:
        rows, least = block
        bytes_held = pricing.memory_bytes(workload, cluster, rows)
        fits = bytes_held <= question.memory_bytes
        ranking.refuse(table.take(rows, ~fits), (bytes_held - question.memory_bytes)[~fits])
        spare = question.memory_bytes - bytes_held[fits]
        rows = table.take(rows, fits)
        fitting = _CandidateQueue(question, ranking, rows, least[fits], waiting.front, spare)
        at_once = _AT_ONCE
        while (some := fitting.next(at_once)) is not None:
            found, spare = some
            seconds = pricing.step_seconds(workload, cluster, found)
            ranking.add(found, question.scores(found, seconds), spare)
            at_once *= 2
        most *= 2


def _small_enough(
    question: SearchProblem, ranking: Ranking, rows: StrategyTable, least: Floats
) -> StrategyTable:
    """Return the rows that may fit a device, as they take at least so many bytes."""
    fits = least <= question.memory_bytes
    ranking.refuse(table.take(rows, ~fits), (least - question.memory_bytes)[~fits])
    return table.take(rows, fits)


def _best_of_each_count_first(score: Floats, devices: Counts) -> Counts:
    """Return an order in which every device count soon has something to beat: in rounds over counts.

    `devices` is 0 for all counts that are not in the front: only the best of all of them has to be found.
    """
    by_count = np.lexsort((score, devices))
    starts = np.flatnonzero(np.diff(devices[by_count], prepend=-1))
    place = np.arange(len(score)) - np.repeat(starts, np.diff(starts, append=len(score)))
    return by_count[np.lexsort((score[by_count], place // _ROUND))]


def _ways(splits: StrategyTable, modes: StrategyTable) -> StrategyTable:
    """Return every way in which a layer is run: sizes and modes that a pass depends on, once each."""
    sizes = table.build(
        dict(zip(_SIZES, distinct([getattr(splits, name) for name in _SIZES])[0], strict=True))
    )
    flags = np.stack([modes.sequence_parallel, modes.recompute, modes.overlap == space.ALL])
    _, first = np.unique(flags, axis=1, return_index=True)
    return space.cross_modes(sizes, table.take(modes, first))


def _fastest(modes: StrategyTable) -> StrategyTable:
    """Return modes of which one is the fastest for a layer: the least recomputation, the rest varied."""
    least = table.take(modes, modes.recompute == modes.recompute.min())
    flags = np.stack([least.sequence_parallel, least.overlap == space.ALL])
    _, first = np.unique(flags, axis=1, return_index=True)
    return table.take(least, first)


def _count(ranking: Ranking, splits: StrategyTable, modes: StrategyTable) -> None:
    """Count the candidates of every family, those that bounds will cut too."""
    allowed = space.allowed_modes(splits, modes)
    per_split, per_mode = allowed.sum(axis=1), allowed.sum(axis=0)
    for name in table.COLUMNS:
        own = name in space.MODE_COLUMNS
        column = np.asarray(getattr(modes if own else splits, name), dtype=np.int64)
        weights = per_mode if own else per_split
        for value in np.unique(column):
            ranking.families[name, int(value)].candidates = int(weights[column == value].sum())
