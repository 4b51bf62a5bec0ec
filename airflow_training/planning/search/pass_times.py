"""How fast each kind of node runs layers, and what a pipeline over several kinds takes at least.

Columns are splits in every way that a layer can be run; units are splits on numbers of stages per kind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from airflow_training.planning.search import space, table
from airflow_training.planning.search.homogeneous import SearchProblem
from airflow_training.planning.search.pricing import MemoryFloors, Pricing
from airflow_training.planning.view.cluster import NodeGroup
from airflow_training.planning.view.plan import StrategyTable
from airflow_training.planning.view.stages import layer_span

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_HALVINGS = 16
_STAGES_APART = 8
"""Stages that are told apart by their micro-batches in flight; those before count like the first of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """Seconds of passes, forward and backward together."""

    ways: StrategyTable
    """One mode for each way; a split's ways stand in columns next to each other."""
    layers: Floats
    """Over each layer: (groups, layers, columns)."""
    before: Floats
    """Over the units before the layers: (groups, columns)."""
    after: Floats
    whole: Floats
    """Over all layers, no more than any of them takes for its weight: (groups, columns)."""
    shortest: Floats
    """Over the layer that takes least: (groups, columns)."""
    lightest: Floats
    """The least weight of a layer: (columns,). Weights add up to 1."""
    heaviest: Floats
    """The greatest weight of a layer."""
    backward_share: tuple[Floats, Floats]
    """Least and greatest share of a backward pass: (columns,) each."""


def paces_of(
    question: SearchProblem, splits: StrategyTable, modes: StrategyTable, pricing: Pricing
) -> PassTimes:
    """Return the paces of every split on every kind of node of the cluster."""
    flags = np.stack([modes.sequence_parallel, modes.recompute, modes.overlap == space.ALL])
    ways = table.take(modes, np.unique(flags, axis=1, return_index=True)[1])
    rows = space.cross_modes(splits, ways)
    units = question.workload.view.units
    repeats = [unit.repeat for unit in units]
    begin, end = layer_span(units)
    seconds, backwards = [], []
    for group in question.cluster.groups:
        alone = replace(question.cluster, groups=(group,))
        forward, backward = pricing.pass_seconds(question.workload, alone, rows)
        seconds.append(np.repeat(forward + backward, repeats, axis=0))
        backwards.append(np.repeat(backward, repeats, axis=0))
    each, back = np.asarray(seconds), np.asarray(backwards)
    layers = each[:, begin:end]
    weight = layers[0] / layers[0].sum(axis=0)
    least, greatest = _backward_share(each, back, begin, end)
    return PassTimes(
        ways=ways,
        layers=layers,
        before=each[:, :begin].sum(axis=1),
        after=each[:, end:].sum(axis=1),
        whole=(layers / weight).min(axis=1),
        shortest=layers.min(axis=1),
        lightest=weight.min(axis=0),
        heaviest=weight.max(axis=0),
        backward_share=(least, greatest),
    )


def _backward_share(each: Floats, back: Floats, begin: int, end: int) -> tuple[Floats, Floats]:
    """Return the least and the greatest share of a backward pass in any stage: (columns,) each.

    Of stages of layers alone, and with what comes before or after the layers beside the shortest of them.
    """
    of_layers = back[:, begin:end] / each[:, begin:end]
    shares = [of_layers.min(axis=1), of_layers.max(axis=1)]
    shortest = each[:, begin:end].min(axis=1)
    for part in (slice(0, begin), slice(end, None)):
        whole = shortest + each[:, part].sum(axis=1)
        beside = back[:, part].sum(axis=1) / whole
        shares += [beside + share * shortest / whole for share in shares[:2]]
    return np.min(shares, axis=(0, 1)), np.max(shares, axis=(0, 1))


def layer_mode_of(rows: StrategyTable, ways: StrategyTable) -> Ints:
    """Return which way each row runs its layers."""
    same = (
        (rows.sequence_parallel[:, None] == ways.sequence_parallel[None])
        & (rows.recompute[:, None] == ways.recompute[None])
        & ((rows.overlap == space.ALL)[:, None] == (ways.overlap == space.ALL)[None])
    )
    return np.asarray(np.argmax(same, axis=1), dtype=np.int64)


def busiest_seconds(paces: PassTimes, columns: Ints, stages: Ints, passes: Ints) -> Floats:
    """A quick lower bound on the slowest stage's seconds for all micro-batches: (units,).

    Layers are taken to divide as one likes, `stages` are those on each group: (units, groups).
    """
    return np.asarray(passes * _shared(paces, columns, stages))


def least_seconds(
    paces: PassTimes, columns: Ints, stages: Ints, passes: Ints, most_layers: Floats
) -> Floats:
    """A lower bound on the seconds of passes in any arrangement of each unit: (units,).

    Some stage is the slowest. It takes what layers that divide as one likes would, or whole layers of the
    least kind, or more; then the others can leave more layers to the fastest kind. What it takes, and the
    way of one micro-batch through all stages, add up to a step at least.

    Args:
        paces: of the splits.
        columns: the split of each unit, in one way to run its layers.
        stages: of each unit on each group: (units, groups).
        passes: micro-batches of each unit.
        most_layers: that memory has room for on all stages of each group: (groups, units). Where it has
            none for all layers, the answer is infinite.
    """
    on_group = stages.T
    layers = paces.layers.shape[1]
    slowest = np.maximum(
        _shared(paces, columns, stages),
        _whole_layers(paces.shortest[:, columns], on_group, most_layers, layers),
    )
    slowest = np.maximum(slowest, np.where(on_group > 0, paces.shortest[:, columns], 0).max(axis=0))
    least, greatest = (share[columns] for share in paces.backward_share)
    again = (passes - 1) * least + np.maximum(0, passes - on_group.sum(axis=0)) * (1 - greatest)
    whole, lightest = paces.whole[:, columns], paces.lightest[columns]
    ends = np.min(paces.before[:, columns], axis=0) + np.min(paces.after[:, columns], axis=0)
    fastest_first = np.argsort(np.where(on_group > 0, whole, np.inf), axis=0)
    whole = np.take_along_axis(whole, fastest_first, axis=0)
    count = np.take_along_axis(on_group, fastest_first, axis=0)
    held = lightest * count
    room = paces.heaviest[columns] * np.take_along_axis(most_layers, fastest_first, axis=0)
    # seconds are convex in what the slowest stage takes, and turn where a kind has one layer for each
    # stage and all faster ones are full
    total = np.full(len(passes), np.inf)
    rate = np.cumsum(count / whole, axis=0)
    few = held.sum(axis=0) - np.cumsum(held, axis=0)
    for kind in range(len(whole)):
        turn = np.maximum(slowest, (1 - few[kind]) / np.maximum(rate[kind], 1e-300))
        total = np.minimum(total, _once(whole, held, count * turn / whole) + again * turn)
    total = ends + np.maximum(total, _once(whole, held, room) + again * slowest)
    fits = most_layers.sum(axis=0) >= layers
    return np.where(fits, np.maximum(passes * slowest, total), np.inf)


def least_score(
    question: SearchProblem, pricing: Pricing, rows: StrategyTable, seconds: Floats, stages: Ints
) -> Floats:
    """Return the scores of passes of at least so many seconds, with what replicas add at least."""
    groups = question.cluster.groups
    slowest_first = sorted(range(len(groups)), key=lambda group: _output_transfer(groups[group]))
    slowest = np.argmax(stages[:, slowest_first] > 0, axis=1)
    least = np.empty_like(seconds)
    for place in np.unique(slowest):
        here = np.flatnonzero(slowest == place)
        alone = replace(question.cluster, groups=(groups[slowest_first[place]],))
        some = table.take(rows, here)
        share, more = pricing.overheads(question.workload, alone, some)
        least[here] = seconds[here] * (1.0 + share) + more
    width = (rows.tp * rows.cp * rows.dp)[:, None].astype(np.float64)
    return question.scores_of(least, width * stages).score


def most_layers(
    question: SearchProblem, floors: MemoryFloors, rows: StrategyTable, stages: Ints
) -> Floats:
    """Return how many layers memory has room for on the stages of each group: (groups, rows).

    The last stage of 1F1B has one micro-batch in flight, each one before it one more: at best, the stages
    of a group are the last ones.
    """
    passes = question.workload.global_batch // (rows.dp * rows.micro_batch)
    behind = np.arange(_STAGES_APART)[:, None]
    in_flight = np.minimum(behind + 1.0, passes)
    found = []
    for group, count in zip(question.cluster.groups, stages.T, strict=True):
        each = floors.most_layers(rows, group.device.memory_bytes, in_flight)
        times = (count > behind).astype(np.float64)
        times[-1] = np.maximum(count - behind[-1], 0)
        found.append((each * times).sum(axis=0))
    return np.asarray(found)


def _shared(paces: PassTimes, columns: Ints, stages: Ints) -> Floats:
    """Return the least seconds of the slowest stage where layers divide as one likes."""
    whole = paces.whole[:, columns]
    # embedding and head, as if they were layers too
    more = sum((part[:, columns] / whole).min(axis=0) for part in (paces.before, paces.after))
    return np.asarray((1.0 + more) / (stages.T / whole).sum(axis=0))


def _whole_layers(layer: Floats, stages: Ints, most: Floats, layers: int) -> Floats:
    """Return the least time of the slowest stage when every layer takes `layer`: (groups, units).

    No group takes more than `most` layers; where all layers are more, that is not counted.
    """
    low, high = np.zeros(layer.shape[1]), layers * layer.max(axis=0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        on_group = np.minimum(stages * np.floor(middle / layer * (1 + 1e-12)), most)
        enough = on_group.sum(axis=0) >= layers
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return low


def _once(whole: Floats, held: Floats, room: Floats) -> Floats:
    """Return one micro-batch's least seconds through layers: (units,).

    Groups stand with the fastest first. Each holds a weight of `held` at least; the fastest get the rest, as
    far as they have room: (groups, units) each.
    """
    left = 1.0 - held.sum(axis=0)
    seconds = (held * whole).sum(axis=0)
    for group in range(len(whole)):
        more = np.clip(room[group] - held[group], 0.0, left)
        seconds, left = seconds + more * whole[group], left - more
    return np.asarray(seconds)


def _output_transfer(group: NodeGroup) -> float:
    return np.inf if group.nic is None else group.nic.bandwidth * group.nics_per_node
