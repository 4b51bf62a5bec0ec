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

from airflow_training.planning.cluster import NodeGroup
from airflow_training.planning.plan import Candidates
from airflow_training.planning.search import space, table
from airflow_training.planning.search.constraints import Constraints
from airflow_training.planning.search.counts import splits_well
from airflow_training.planning.search.homogeneous import Question
from airflow_training.planning.search.layer_split import Run, Stages, layer_splits
from airflow_training.planning.search.prices import Scores
from airflow_training.planning.search.pricing import Pricing
from airflow_training.planning.search.ranking import Plan, distinct
from airflow_training.planning.stages import layer_span

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
    first_way: bool
    """Whether other ways to run a layer are left out once the quickest one that fits was found."""


THOROUGH = Effort(orders=24, splits=3, tries=24, arrangements=4000, first_way=False)
QUICK = Effort(orders=2, splits=1, tries=3, arrangements=120, first_way=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arranged:
    """What a search over arrangements of stages found."""

    best: Sequence[Plan]
    candidates: int
    """Splits times numbers of stages times modes that were decided."""
    priced: int
    unexplored: float
    """Least score that something not looked at could have; infinite where all was decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paces:
    """Seconds of passes for every split in every way that a layer can be run: (groups, ..., rows)."""

    ways: Candidates
    """One mode for each way."""
    layers: Floats
    """Forward and backward over each layer: (groups, layers, rows), a row per split and way."""
    before: Floats
    """Over the units before the layers: (groups, rows)."""
    after: Floats
    backward_share: tuple[float, float]
    """Least and greatest share of a backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Units:
    """Splits, each with numbers of stages per group, in the order in which they are tried."""

    split: Ints
    stages: Ints
    """(units, groups)"""
    least_score: Floats


def rank_arranged(
    question: Question, *, top_k: int, pricing: Pricing, to_beat: float, least_kinds: int
) -> Arranged:
    """Return the best pipelines with a score below `to_beat` over at least `least_kinds` kinds of nodes."""
    limits = space.limits_of(question.workload, question.cluster)
    widest = sorted(group.devices for group in question.cluster.groups)[-least_kinds]
    splits = space.stage_splits(limits, question.constraints, widest=widest)
    modes = space.modes(question.constraints)
    if not table.size(splits) or not table.size(modes):
        return Arranged(best=(), candidates=0, priced=0, unexplored=np.inf)
    paces = _paces(question, splits, modes, pricing)
    units = _units(question, pricing, splits, modes, paces, limits.layers, least_kinds)
    effort = THOROUGH if len(units.split) <= _SMALL else QUICK
    search = _Search(question, pricing, splits, modes, paces, top_k, to_beat, effort)
    for unit in range(len(units.split)):
        if units.least_score[unit] > search.limit * _SURE:
            continue
        if search.arrangements >= effort.arrangements:
            left = float(units.least_score[unit:].min())
            return search.found(len(units.split), unexplored=left)
        search.try_unit(int(units.split[unit]), units.stages[unit])
    return search.found(len(units.split), unexplored=np.inf)


class _Search:
    """What was found so far."""

    def __init__(
        self,
        question: Question,
        pricing: Pricing,
        splits: Candidates,
        modes: Candidates,
        paces: _Paces,
        top_k: int,
        to_beat: float,
        effort: Effort,
    ) -> None:
        self.effort = effort
        self.question, self.pricing = question, pricing
        self.splits, self.modes, self.paces = splits, modes, paces
        self.bytes_of = pricing.memory_floors(
            question.workload, question.cluster, space.cross_modes(splits, paces.ways)
        )
        self.top_k, self.to_beat = top_k, to_beat
        begin, end = layer_span(question.workload.view.units)
        self.alike = end - begin == max(unit.repeat for unit in question.workload.view.units)
        self.best: list[Plan] = []
        self.arrangements = self.priced = self.kept = 0

    @property
    def limit(self) -> float:
        """The score that is to be beaten."""
        enough = len(self.best) >= self.top_k
        return min(self.to_beat, self.best[-1].score) if enough else self.to_beat

    def found(self, units: int, *, unexplored: float) -> Arranged:
        return Arranged(
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
        rows = table.take(rows, self._may_fit(rows, stages))
        of_way = _way_of(rows, self.paces.ways)
        columns = split * table.size(self.paces.ways) + of_way
        each = table.take(one, np.zeros(table.size(rows), dtype=np.int64))
        many = np.repeat(stages[None], table.size(rows), axis=0)
        seconds = _least_seconds(self.question, each, self.paces, columns, many)
        floor = _least_score(self.question, self.pricing, rows, seconds, many)
        orders = self._orders(stages)
        for way in sorted(set(of_way.tolist()), key=lambda way: floor[of_way == way].min()):
            here = np.flatnonzero(of_way == way)
            kept = self.kept
            for order in orders:
                alive = here[floor[here] <= self.limit * _SURE]
                if len(alive):
                    self._arrange(table.take(rows, alive), int(columns[here[0]]), order)
            if self.effort.first_way and self.kept > kept:
                return

    def _may_fit(self, rows: Candidates, stages: Ints) -> npt.NDArray[np.bool_]:
        """Return which rows may fit into the memory of all stages together."""
        whole = self.bytes_of(replace(rows, pp=np.ones_like(rows.pp)))
        memory = [group.device.memory_bytes for group in self.question.cluster.groups]
        return np.asarray(whole <= float(np.dot(stages, memory)))

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

    def _arrange(self, rows: Candidates, column: int, order: Sequence[int]) -> None:
        """Price the rows on the best layers for this order of groups, as far as memory allows."""
        stages = Stages(
            layers=np.stack([self.paces.layers[group, :, column] for group in order]),
            before=float(self.paces.before[order[0], column]),
            after=float(self.paces.after[order[-1], column]),
        )
        passes = self.question.workload.global_batch // int(rows.dp[0] * rows.micro_batch[0])
        pinned = self.question.constraints.rule("stage_layers").pinned
        # rows that do not fit wait with what they would score at least, and with what was too big
        waiting: list[tuple[float, int, Candidates, frozenset[Run]]] = [(0.0, 0, rows, frozenset())]
        tries = 0
        while waiting and tries < self.effort.tries:
            tries += 1
            least, _, some, too_big = heappop(waiting)
            if least > self.limit * _SURE:
                return
            if pinned is None:
                splits = layer_splits(stages, micro_batches=passes, too_big=too_big)
            else:
                splits = [pinned] if not too_big else []
            for place, layers in enumerate(splits[: self.effort.splits]):
                again = self._price(some, layers, order, too_big)
                if place == 0:
                    for score, others, cuts in again:
                        heappush(waiting, (score, self.arrangements + len(waiting), others, cuts))

    def _price(
        self,
        rows: Candidates,
        layers: tuple[int, ...],
        order: Sequence[int],
        too_big: frozenset[Run],
    ) -> list[tuple[float, Candidates, frozenset[Run]]]:
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
        again: dict[frozenset[Run], list[int]] = {}
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
    ) -> frozenset[Run]:
        """Return the runs that cannot fit as these stages do not fit.

        A stage before another on the same kind of node has no fewer micro-batches in flight, so what is
        too big for the later one is too big for it.
        """
        begins = np.cumsum((0, *layers))
        return frozenset(
            Run(before, layers[stage], None if self.alike else int(begins[stage]))
            for stage in map(int, stages)
            for before in range(stage + 1)
            if order[before] == order[stage]
        )

    def _scores(self, rows: Candidates, seconds: Floats, order: Sequence[int]) -> Scores:
        width = (rows.tp * rows.cp * rows.dp)[:, None].astype(np.float64)
        on_group = np.bincount(order, minlength=len(self.question.cluster.groups))
        return self.question.scores_of(seconds, width * on_group[None, :])

    def _keep(
        self,
        rows: Candidates,
        scores: Scores,
        spare: Floats,
        layers: tuple[int, ...],
        names: tuple[str, ...],
    ) -> None:
        rule = self.question.constraints.rule("stage_layers")
        fits = np.all(spare >= 0, axis=1) & np.isfinite(scores.score) & rule.allows(layers)
        for row in np.flatnonzero(fits & (scores.score <= self.limit)):
            self.kept += 1
            self.best.append(
                Plan(
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


def _paces(question: Question, splits: Candidates, modes: Candidates, pricing: Pricing) -> _Paces:
    flags = np.stack([modes.sequence_parallel, modes.recompute, modes.overlap == space.ALL])
    ways = table.take(modes, np.unique(flags, axis=1, return_index=True)[1])
    rows = space.cross_modes(splits, ways)
    units = question.workload.view.units
    repeats = [unit.repeat for unit in units]
    begin, end = layer_span(units)
    layers, before, after, shares = [], [], [], []
    for group in question.cluster.groups:
        alone = replace(question.cluster, groups=(group,))
        forward, backward = pricing.pass_seconds(question.workload, alone, rows)
        each = np.repeat(forward + backward, repeats, axis=0)
        layers.append(each[begin:end])
        before.append(each[:begin].sum(axis=0))
        after.append(each[end:].sum(axis=0))
        shares.append(np.repeat(backward, repeats, axis=0)[begin:end] / each[begin:end])
    share = np.asarray(shares)
    return _Paces(
        ways=ways,
        layers=np.asarray(layers),
        before=np.asarray(before),
        after=np.asarray(after),
        backward_share=(float(share.min()), float(share.max())),
    )


def _units(
    question: Question,
    pricing: Pricing,
    splits: Candidates,
    modes: Candidates,
    paces: _Paces,
    layers: int,
    least_kinds: int,
) -> _Units:
    """Return every split with every number of stages per group, the lowest bound first."""
    width = splits.tp * splits.cp * splits.dp
    split, stages = [], []
    for size in np.unique(width):
        vectors = _stage_counts(question, int(size), layers, least_kinds)
        here = np.flatnonzero(width == size)
        split.append(np.repeat(here, len(vectors)))
        stages.append(np.tile(vectors, (len(here), 1)))
    splits_of, stages_of = np.concatenate(split), np.concatenate(stages)
    if not len(splits_of):
        return _Units(split=splits_of, stages=stages_of, least_score=np.zeros(0))
    rows = replace(table.take(splits, splits_of), pp=stages_of.sum(axis=1))
    fastest = np.flatnonzero(paces.ways.recompute == paces.ways.recompute.min())
    columns = splits_of * table.size(paces.ways)
    seconds = np.min(
        [_least_seconds(question, rows, paces, columns + way, stages_of) for way in fastest], axis=0
    )
    least = np.full(len(splits_of), np.inf)
    for mode in _least_exchange(modes):
        in_mode = space.with_mode(rows, modes, mode)
        score = _least_score(question, pricing, in_mode, seconds, stages_of)
        least = np.minimum(least, score)
    order = _in_rounds(least, rows)
    order = order[np.isfinite(least[order])]
    return _Units(split=splits_of[order], stages=stages_of[order], least_score=least[order])


def _stage_counts(question: Question, width: int, layers: int, least_kinds: int) -> Ints:
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


def _in_rounds(least: Floats, rows: Candidates) -> Ints:
    """Return an order in which every tensor- and data-parallel size soon has its turn.

    Bounds leave out different things for different sizes, so the lowest one alone would lead astray.
    """
    _, group = np.unique(np.stack([rows.tp, rows.dp]), axis=1, return_inverse=True)
    group = group.reshape(-1)
    by_group = np.lexsort((least, group))
    starts = np.flatnonzero(np.diff(group[by_group], prepend=-1))
    place = np.arange(len(least)) - np.repeat(starts, np.diff(starts, append=len(least)))
    return np.asarray(by_group[np.lexsort((least[by_group], place))], dtype=np.int64)


def _least_exchange(modes: Candidates) -> list[int]:
    """Return a mode for each ZeRO stage and each overlap: the exchange depends on nothing else."""
    keys = np.stack([modes.zero, modes.overlap])
    return [int(row) for row in np.unique(keys, axis=1, return_index=True)[1]]


def _least_score(
    question: Question, pricing: Pricing, rows: Candidates, seconds: Floats, stages: Ints
) -> Floats:
    """Return the scores of passes of at least so many seconds, with what replicas add at least."""
    slowest = min(question.cluster.groups, key=_way_out)
    alone = replace(question.cluster, groups=(slowest,))
    share, more = pricing.overheads(question.workload, alone, rows)
    width = (rows.tp * rows.cp * rows.dp)[:, None].astype(np.float64)
    return question.scores_of(seconds * (1.0 + share) + more, width * stages).score


def _way_out(group: NodeGroup) -> float:
    return np.inf if group.nic is None else group.nic.bandwidth * group.nics_per_node


def _least_seconds(
    question: Question,
    rows: Candidates,
    paces: _Paces,
    columns: Ints,
    stages: Ints,
) -> Floats:
    """Return what passes take in any arrangement: splits `rows` in ways `columns` on numbers of stages.

    The slowest stage takes at least what perfectly divisible layers would, and what whole layers of the
    least kind would; the rest of the pipeline adds at least the first micro-batch's way through it.
    """
    layers = paces.layers[:, :, columns]  # (groups, layers, units)
    passes = question.workload.global_batch // (rows.dp * rows.micro_batch)
    weight = layers[0] / layers[0].sum(axis=0)
    whole = (layers / weight).min(axis=1)
    slowest = 1.0 / (stages.T / whole).sum(axis=0)
    slowest = np.maximum(slowest, _whole_layers(layers.min(axis=1), stages.T, layers.shape[1]))
    once = layers.min(axis=0).sum(axis=0)
    least, greatest = paces.backward_share
    overlapped = (passes - 1) * least + np.maximum(0, passes - stages.sum(axis=1)) * (1 - greatest)
    return np.asarray(np.maximum(passes * slowest, once + overlapped * slowest))


def _whole_layers(layer: Floats, stages: Ints, layers: int) -> Floats:
    """Return the least time of the slowest stage when every layer takes `layer` (groups, units)."""
    low, high = np.zeros(layer.shape[1]), layers * layer.max(axis=0)
    for _ in range(30):
        middle = (low + high) / 2
        enough = (stages * np.floor(middle / layer * (1 + 1e-12))).sum(axis=0) >= layers
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return low


def _way_of(rows: Candidates, ways: Candidates) -> Ints:
    """Return which way each row runs its layers."""
    same = (
        (rows.sequence_parallel[:, None] == ways.sequence_parallel[None])
        & (rows.recompute[:, None] == ways.recompute[None])
        & ((rows.overlap == space.ALL)[:, None] == (ways.overlap == space.ALL)[None])
    )
    return np.asarray(np.argmax(same, axis=1), dtype=np.int64)


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
