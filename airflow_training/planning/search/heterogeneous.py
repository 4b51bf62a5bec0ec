"""Search on several kinds of nodes: how many stages lie on each kind, in which order, with which layers.

Every stage lies on one kind of node and takes as many devices as the others. For each number of stages
per kind a bound is worked out for all splits at once; in the order of the bounds, dynamic programming
places the layers, and the cost model prices what it found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import permutations, product
from math import factorial, prod

import numpy as np
import numpy.typing as npt

from airflow_training.planning.search import space, table
from airflow_training.planning.search.constraints import Constraints
from airflow_training.planning.search.counts import splits_well
from airflow_training.planning.search.homogeneous import SearchProblem
from airflow_training.planning.search.layer_split import StageLayers, StageSeconds, layer_splits
from airflow_training.planning.search.pass_times import (
    PassTimes,
    busiest_seconds,
    layer_mode_of,
    least_score,
    least_seconds,
    most_layers,
    paces_of,
)
from airflow_training.planning.search.prices import ObjectiveScores
from airflow_training.planning.search.pricing import MemoryFloors, Pricing
from airflow_training.planning.search.ranking import RankedStrategy, distinct
from airflow_training.planning.view.plan import StrategyTable
from airflow_training.planning.view.stages import layer_span

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_SMALL = 5000
"""Splits times numbers of stages up to which a search is thorough."""
_FEW = 8
"""Up to so many stages, every number of them and every order is tried."""
_SURE = 1.0 + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is tried for one split on one number of stages per kind."""

    orders: int
    """Up to so many orders of the stages all are tried; beyond, each kind in one stretch."""
    splits: int
    """Layer splits that are priced for an order, the most promising ones."""
    tries: int
    """Layer splits that are looked at for an order until everything fits."""
    arrangements: int
    """Arrangements that are priced before the search ends, with a warning how far it got."""
    slower_ways: float
    """The share by which other ways to run a layer may be slower than the quickest one that fits: those
    beyond are left out."""


THOROUGH = Effort(orders=24, splits=3, tries=24, arrangements=1000, slower_ways=np.inf)
QUICK = Effort(orders=2, splits=1, tries=3, arrangements=300, slower_ways=0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrangementResult:
    """What a search over arrangements of stages found."""

    best: Sequence[RankedStrategy]
    candidates: int
    """Splits times numbers of stages times modes that were decided."""
    priced: int
    unexplored: float
    """Least score that something not looked at could have; infinite where all was decided."""


@dataclass(frozen=True, slots=True)
class _SearchInputs:
    """What is the same for all units."""

    question: SearchProblem
    pricing: Pricing
    splits: StrategyTable
    modes: StrategyTable
    paces: PassTimes
    floors: MemoryFloors


@dataclass(frozen=True, slots=True, kw_only=True)
class _Units:
    """Splits, each with numbers of stages per group, in the order in which they are tried."""

    split: Ints
    stages: Ints
    """(units, groups)"""
    least_score: Floats

    def take(self, units: Ints | npt.NDArray[np.bool_]) -> _Units:
        return _Units(
            split=self.split[units],
            stages=self.stages[units],
            least_score=self.least_score[units],
        )


def rank_arranged(
    question: SearchProblem, *, top_k: int, pricing: Pricing, to_beat: float, least_kinds: int
) -> ArrangementResult:
    """Return the best pipelines with a score below `to_beat` over at least `least_kinds` kinds of nodes."""
    limits = space.limits_of(question.workload, question.cluster)
    widest = sorted(group.devices for group in question.cluster.groups)[-least_kinds]
    splits = space.stage_splits(limits, question.constraints, widest=widest)
    modes = space.modes(question.constraints)
    if not table.size(splits) or not table.size(modes):
        return ArrangementResult(best=(), candidates=0, priced=0, unexplored=np.inf)
    paces = paces_of(question, splits, modes, pricing)
    floors = pricing.memory_floors(
        question.workload, question.cluster, space.cross_modes(splits, paces.ways)
    )
    setting = _SearchInputs(question, pricing, splits, modes, paces, floors)
    every = _every_unit(question, splits, limits.layers, least_kinds)
    units = _promising(setting, every, to_beat)
    effort = THOROUGH if len(every.split) <= _SMALL else QUICK
    search = _SearchProgress(setting, top_k, to_beat, effort)
    for unit in range(len(units.split)):
        least = float(units.least_score[unit])
        if least > search.limit * _SURE:
            break
        if search.arrangements >= effort.arrangements:
            return search.found(len(every.split), unexplored=least)
        search.try_unit(int(units.split[unit]), units.stages[unit])
    return search.found(len(every.split), unexplored=np.inf)


class _SearchProgress:
    """What was found so far."""

    def __init__(self, setting: _SearchInputs, top_k: int, to_beat: float, effort: Effort) -> None:
        self.effort = effort
        self.question, self.pricing = setting.question, setting.pricing
        self.splits, self.modes, self.paces = setting.splits, setting.modes, setting.paces
        self.floors = setting.floors
        self.top_k, self.to_beat = top_k, to_beat
        units = self.question.workload.view.units
        begin, end = layer_span(units)
        self.alike = end - begin == max(unit.repeat for unit in units)
        self.best: list[RankedStrategy] = []
        self.arrangements = self.priced = self.fitted = 0

    @property
    def limit(self) -> float:
        """The score that is to be beaten."""
        enough = len(self.best) >= self.top_k
        return min(self.to_beat, self.best[-1].score) if enough else self.to_beat

    def found(self, units: int, *, unexplored: float) -> ArrangementResult:
        return ArrangementResult(
            best=tuple(self.best),
            candidates=units * table.size(self.modes),
            priced=self.priced,
            unexplored=unexplored,
        )

    def try_unit(self, split: int, stages: Ints) -> None:
        """Arrange one split on one number of stages per group, in every mode and order."""
        one = table.take(self.splits, slice(split, split + 1))
        one = replace(one, pp=np.asarray([int(stages.sum())]))
        rows = space.expand(one, self.modes)
        of_way = layer_mode_of(rows, self.paces.ways)
        columns = split * table.size(self.paces.ways) + of_way
        each = table.take(one, np.zeros(table.size(rows), dtype=np.int64))
        many = np.repeat(stages[None], table.size(rows), axis=0)
        passes = self.question.workload.global_batch // (each.dp * each.micro_batch)
        room = most_layers(self.question, self.floors, rows, many)
        seconds = least_seconds(self.paces, columns, many, passes, room)
        floor = least_score(self.question, self.pricing, rows, seconds, many)
        orders = self._orders(stages)
        slowest_way = np.inf
        for way in sorted(set(of_way.tolist()), key=lambda way: floor[of_way == way].min()):
            here = np.flatnonzero(of_way == way)
            least = floor[here].min()
            if least > slowest_way:
                return
            fitted = self.fitted
            for order in orders:
                alive = here[floor[here] <= self.limit * _SURE]
                if len(alive):
                    self._arrange(table.take(rows, alive), int(columns[here[0]]), order)
            if self.fitted > fitted:
                slowest_way = min(slowest_way, least * (1 + self.effort.slower_ways))

    def _orders(self, stages: Ints) -> list[tuple[int, ...]]:
        groups = self.question.cluster.groups
        rule = self.question.constraints.rule("stage_devices")
        orders = _orders(stages, self.effort.orders)
        if rule.pinned is not None:
            names = [group.name for group in groups]
            wanted = tuple(names.index(name) for name in rule.pinned)
            counted = np.bincount(wanted, minlength=len(groups))
            orders = [wanted] if np.array_equal(counted, stages) else []
        return [
            order for order in orders if rule.allows(tuple(groups[group].name for group in order))
        ]

    def _arrange(self, rows: StrategyTable, column: int, order: Sequence[int]) -> None:
        """Price the rows on the best layers for this order of groups, as far as memory allows."""
        stages = StageSeconds(
            layers=np.stack([self.paces.layers[group, :, column] for group in order]),
            before=float(self.paces.before[order[0], column]),
            after=float(self.paces.after[order[-1], column]),
        )
        passes = self.question.workload.global_batch // int(rows.dp[0] * rows.micro_batch[0])
        pinned = self.question.constraints.rule("stage_layers").pinned
        # rows that do not fit wait with what they would score at least, and with what was too big
        waiting: list[tuple[float, int, StrategyTable, frozenset[StageLayers]]] = [
            (0.0, 0, rows, frozenset())
        ]
        tries = 0
        while waiting and tries < self.effort.tries:
            tries += 1
            least, _, some, too_big = heappop(waiting)
            if least > self.limit * _SURE:
                return
            if pinned is None:
                splits = layer_splits(
                    stages, micro_batches=passes, most=self.effort.splits, too_big=too_big
                )
            else:
                splits = [pinned] if not too_big else []
            for place, layers in enumerate(splits):
                again = self._price(some, layers, order, too_big)
                if place == 0:
                    for score, others, cuts in again:
                        heappush(waiting, (score, self.arrangements + len(waiting), others, cuts))

    def _price(
        self,
        rows: StrategyTable,
        layers: tuple[int, ...],
        order: Sequence[int],
        too_big: frozenset[StageLayers],
    ) -> list[tuple[float, StrategyTable, frozenset[StageLayers]]]:
        """Keep rows that fit; return the others, with their score and the runs that were too big.

        As layers are split for time alone, rows that do not fit on them hardly score better on others.
        """
        question = self.question
        names = tuple(question.cluster.groups[group].name for group in order)
        costs = self.pricing.arranged(
            question.workload, question.cluster, rows, stage_layers=layers, stage_devices=names
        )
        self.arrangements += 1
        self.priced += table.size(rows)
        scores = self._scores(rows, costs.step_seconds, order)
        self._keep(rows, scores, costs.spare_bytes, layers, names)
        again: dict[frozenset[StageLayers], list[int]] = {}
        for row, spare in enumerate(costs.spare_bytes):
            cuts = self._too_big(np.flatnonzero(spare < 0), layers, order)
            if cuts:
                again.setdefault(too_big | cuts, []).append(row)
        return [
            (float(scores.score[some].min()), table.take(rows, np.asarray(some)), cuts)
            for cuts, some in again.items()
        ]

    def _too_big(
        self, stages: Ints, layers: tuple[int, ...], order: Sequence[int]
    ) -> frozenset[StageLayers]:
        """Return the runs that cannot fit as these stages do not fit.

        A stage before another on the same kind of node has no fewer micro-batches in flight, so what is
        too big for the later one is too big for it.
        """
        begins = np.cumsum((0, *layers))
        return frozenset(
            StageLayers(before, layers[stage], None if self.alike else int(begins[stage]))
            for stage in map(int, stages)
            for before in range(stage + 1)
            if order[before] == order[stage]
        )

    def _scores(
        self, rows: StrategyTable, seconds: Floats, order: Sequence[int]
    ) -> ObjectiveScores:
        width = (rows.tp * rows.cp * rows.dp)[:, None].astype(np.float64)
        on_group = np.bincount(order, minlength=len(self.question.cluster.groups))
        return self.question.scores_of(seconds, width * on_group[None, :])

    def _keep(
        self,
        rows: StrategyTable,
        scores: ObjectiveScores,
        spare: Floats,
        layers: tuple[int, ...],
        names: tuple[str, ...],
    ) -> None:
        rule = self.question.constraints.rule("stage_layers")
        fits = np.all(spare >= 0, axis=1) & np.isfinite(scores.score) & rule.allows(layers)
        self.fitted += int(fits.sum())
        for row in np.flatnonzero(fits & (scores.score <= self.limit)):
            self.best.append(
                RankedStrategy(
                    float(scores.score[row]),
                    float(scores.wall_seconds[row]),
                    float(scores.money[row]),
                    float(spare[row].min()),
                    table.take(rows, slice(row, row + 1)),
                    layers,
                    names,
                )
            )
        self.best = distinct(self.best)[: self.top_k]


def _every_unit(
    question: SearchProblem, splits: StrategyTable, layers: int, least_kinds: int
) -> _Units:
    """Return every split with every number of stages per group."""
    width = splits.tp * splits.cp * splits.dp
    split, stages = [], []
    for size in np.unique(width):
        vectors = _stage_counts(question, int(size), layers, least_kinds)
        here = np.flatnonzero(width == size)
        split.append(np.repeat(here, len(vectors)))
        stages.append(np.tile(vectors, (len(here), 1)))
    whole = np.concatenate(split)
    return _Units(split=whole, stages=np.concatenate(stages), least_score=np.zeros(len(whole)))


def _promising(setting: _SearchInputs, units: _Units, to_beat: float) -> _Units:
    """Return the units that may beat a score, in the order in which they are tried."""
    question, paces, splits = setting.question, setting.paces, setting.splits
    ways = table.size(paces.ways)
    fastest = np.flatnonzero(paces.ways.recompute == paces.ways.recompute.min())
    rows = table.take(splits, units.split)
    passes = question.workload.global_batch // (rows.dp * rows.micro_batch)
    quick = np.min(
        [busiest_seconds(paces, units.split * ways + way, units.stages, passes) for way in fastest],
        axis=0,
    )
    width = (rows.tp * rows.cp * rows.dp)[:, None].astype(np.float64)
    hopeful = question.scores_of(quick, width * units.stages).score <= to_beat * _SURE
    units, passes = units.take(hopeful), passes[hopeful]
    rows = replace(table.take(rows, hopeful), pp=units.stages.sum(axis=1))
    seconds = np.full(len(units.split), np.inf)
    most_sharded = np.full(len(units.split), setting.modes.zero.max())
    for way in range(ways):
        in_way = replace(space.with_mode(rows, paces.ways, way), zero=most_sharded)
        room = most_layers(question, setting.floors, in_way, units.stages)
        columns = units.split * ways + way
        seconds = np.minimum(seconds, least_seconds(paces, columns, units.stages, passes, room))
    least = np.full(len(units.split), np.inf)
    for mode in _least_exchange(setting.modes):
        in_mode = space.with_mode(rows, setting.modes, mode)
        score = least_score(question, setting.pricing, in_mode, seconds, units.stages)
        least = np.minimum(least, score)
    order = np.argsort(least, kind="stable")
    order = order[np.isfinite(least[order]) & (least[order] <= to_beat * _SURE)]
    return replace(units, least_score=least).take(order)


def _stage_counts(question: SearchProblem, width: int, layers: int, least_kinds: int) -> Ints:
    """Return numbers of stages per group, on at least `least_kinds` of them: (vectors, groups)."""
    choices = []
    for group in question.cluster.groups:
        most = min(group.devices // width, layers)
        choices.append([n for n in range(most + 1) if n <= _FEW or n == most or splits_well(n)])
    constraints = question.constraints
    pinned = constraints.rule("stage_devices").pinned
    if pinned is not None:
        choices = [[pinned.count(group.name)] for group in question.cluster.groups]
    vectors = [
        vector
        for vector in product(*choices)
        if sum(n > 0 for n in vector) >= least_kinds
        and sum(vector) <= layers
        and _stages_allowed(constraints, sum(vector))
        and constraints.rule("devices").allows(sum(vector) * width)
    ]
    return np.asarray(vectors, dtype=np.int64).reshape(-1, len(choices))


def _stages_allowed(constraints: Constraints, stages: int) -> bool:
    lists = [constraints.rule(key).pinned for key in ("stage_layers", "stage_devices")]
    return constraints.rule("pp").allows(stages) and all(
        pinned is None or len(pinned) == stages for pinned in lists
    )


def _least_exchange(modes: StrategyTable) -> list[int]:
    """Return a mode for each ZeRO stage and each overlap: the exchange depends on nothing else."""
    keys = np.stack([modes.zero, modes.overlap])
    return [int(row) for row in np.unique(keys, axis=1, return_index=True)[1]]


def _orders(stages: Ints, most: int) -> list[tuple[int, ...]]:
    """Return orders of the stages' groups: all where there are few, else each group in one stretch."""
    used = [group for group, count in enumerate(stages) if count]
    line = tuple(group for group in used for _ in range(stages[group]))
    total = factorial(len(line)) // prod(factorial(int(stages[group])) for group in used)
    if len(line) <= _FEW and total <= most:
        return sorted(set(permutations(line)))
    return [
        tuple(group for group in order for _ in range(stages[group]))
        for order in permutations(used)
    ]
