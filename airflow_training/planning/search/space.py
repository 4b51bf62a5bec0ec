"""Which strategies there are for a view on equal devices: all that its axes allow, as tables.

A strategy is a *split* (the sizes: tp, pp, cp, dp, ep, virtual stages, micro-batch) with a *mode*
(ZeRO stage, sequence parallel, recompute, overlap). Bounds cut splits; modes are crossed in late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.search import table
from airflow_training.planning.search.constraints import Constraints
from airflow_training.planning.search.counts import device_counts, divisors
from airflow_training.planning.view.axis_names import name_dimensions
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.control_flow import inline_bodies
from airflow_training.planning.view.plan import StrategyTable, Workload
from airflow_training.planning.view.stages import layer_span
from airflow_training.planning.view.strategy import Strategy

AXES: Mapping[str, tuple[str, ...]] = {
    "tp": ("heads", "kv_heads", "ffn", "columns"),
    "cp": ("sequence",),
    "ep": ("experts",),
}
"""The axes of a view that each axis of the mesh splits. `vocab` and `classes` are padded instead."""
MODE_COLUMNS = ("zero", "sequence_parallel", "recompute", "overlap")
_TILE = 128
_NO_OVERLAP, _DP, ALL, _PREFETCH = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the sizes of a view and of a cluster allow."""

    axes: Mapping[str, tuple[int, ...]]
    """Per mesh axis, the sizes that it has to divide."""
    layers: int
    global_batch: int
    devices: int
    per_node: int
    counts: tuple[int, ...]
    """Device counts to try, ascending."""


def limits_of(workload: Workload, cluster: ClusterView) -> Limits:
    """Return which sizes, layers and device counts splits of a workload on a cluster may have."""
    begin, end = layer_span(workload.view.units)
    view = name_dimensions(inline_bodies(workload.view))
    return Limits(
        axes={axis: tuple(sorted(_sizes(view, names))) for axis, names in AXES.items()},
        layers=end - begin,
        global_batch=workload.global_batch,
        devices=cluster.devices,
        per_node=min(group.devices_per_node for group in cluster.groups),
        counts=tuple(device_counts(cluster)),
    )


def undivided(strategy: Strategy, limits: Limits) -> list[str]:
    """Return which sizes of a strategy do not divide what they split, a phrase each.

    A search never has such a strategy; a user may ask what it takes.
    """
    found = []
    for axis, sizes in limits.axes.items():
        split = getattr(strategy, axis)
        if uneven := [size for size in sizes if size % split]:
            found.append(f"{axis} {split} does not divide {', '.join(map(str, uneven))}")
    per_pass = strategy.dp * strategy.micro_batch
    if strategy.global_batch % per_pass:
        what = f"dp {strategy.dp} x micro-batch {strategy.micro_batch}"
        found.append(f"{what} does not divide the batch of {strategy.global_batch}")
    return found


def menus(limits: Limits, constraints: Constraints) -> dict[str, list[int]]:
    """Return the values of every size by itself that limits and constraints allow, ascending.

    A number that a constraint names is tried where it can work at all, though it may be none that the
    search would think of: five stages, three nodes.
    """
    stages = {*divisors(limits.layers), *divisors(limits.devices)}
    batch = divisors(limits.global_batch)
    usual: dict[str, Iterable[int]] = {
        "tp": (n for n in _common(limits.axes["tp"]) if _packs(n, limits.per_node)),
        "pp": (n for n in stages if n <= limits.layers),
        "cp": (n for n in _common(limits.axes["cp"]) if _keeps_tiles(n, limits.axes["cp"])),
        "dp": batch,
        "ep": _common(limits.axes["ep"]),
        "virtual_stages": divisors(limits.layers),
        "micro_batch": batch,
    }
    possible: dict[str, set[int]] = {
        "tp": set(_common(limits.axes["tp"])),
        "pp": set(range(1, limits.layers + 1)),
        "cp": set(_common(limits.axes["cp"])),
        "dp": set(batch),
        "ep": set(_common(limits.axes["ep"])),
        "virtual_stages": set(divisors(limits.layers)),
        "micro_batch": set(batch),
    }
    found = {}
    for name, values in usual.items():
        named = possible[name].intersection(constraints.rule(name).named)
        wanted = constraints.keep(name, {*values, *named})
        takes_devices = name not in ("virtual_stages", "micro_batch")
        found[name] = sorted(n for n in wanted if n <= limits.devices or not takes_devices)
    return found


def splits(limits: Limits, constraints: Constraints) -> StrategyTable:
    """Return every split: tables of modes are not crossed in yet, so those columns hold defaults."""
    menu = menus(limits, constraints)
    counts = _counts(limits, constraints)
    most = counts[-1] if counts else 0
    columns: dict[str, table.Ints] = {"tp": np.asarray(menu["tp"], dtype=np.int64)}
    used = columns["tp"]
    for name in ("cp", "pp", "dp"):
        columns = table.cross(columns, name, menu[name])
        used = _product(columns)
        columns = _keep(columns, used <= most)
    columns = _keep(columns, np.isin(_product(columns), counts))
    columns = table.cross(columns, "ep", menu["ep"])
    columns = _keep(columns, (columns["dp"] * columns["cp"]) % columns["ep"] == 0)
    columns = table.cross(columns, "micro_batch", menu["micro_batch"])
    columns = _keep(columns, limits.global_batch % (columns["dp"] * columns["micro_batch"]) == 0)
    columns = table.cross(columns, "virtual_stages", menu["virtual_stages"])
    columns = _keep(columns, _interleaves(columns, limits))
    found = table.build(columns)
    schedule = np.where(found.virtual_stages > 1, "interleaved", "1f1b")
    return table.take(found, constraints.mask("schedule", schedule))


def stage_splits(limits: Limits, constraints: Constraints, *, widest: int) -> StrategyTable:
    """Return every split of one stage that takes at most `widest` devices; `pp` is left at 1.

    A stage fills nodes or nodes are filled with stages, and stages hold one stretch of layers each.
    """
    menu = menus(limits, constraints)
    columns: dict[str, table.Ints] = {"tp": np.asarray(menu["tp"], dtype=np.int64)}
    for name in ("cp", "dp"):
        columns = table.cross(columns, name, menu[name])
        columns = _keep(columns, _product(columns) <= widest)
    width = _product(columns)
    columns = _keep(columns, (limits.per_node % width == 0) | (width % limits.per_node == 0))
    columns = table.cross(columns, "ep", menu["ep"])
    columns = _keep(columns, (columns["dp"] * columns["cp"]) % columns["ep"] == 0)
    columns = table.cross(columns, "micro_batch", menu["micro_batch"])
    columns = _keep(columns, limits.global_batch % (columns["dp"] * columns["micro_batch"]) == 0)
    found = table.build(columns)
    plain = constraints.rule("virtual_stages").allows(1) and constraints.rule("schedule").allows(
        "1f1b"
    )
    return found if plain else table.take(found, slice(0, 0))


def modes(constraints: Constraints) -> StrategyTable:
    """Return every mode that the constraints allow and that makes sense by itself.

    Prefetching the weights of the next layer is what overlap means where weights are sharded (ZeRO 3),
    and only there.
    """
    columns: dict[str, table.Ints] = table.cross({}, "zero", (0, 1, 2, 3))
    columns = table.cross(columns, "sequence_parallel", (0, 1))
    columns = table.cross(columns, "recompute", range(len(table.TEXTS["recompute"])))
    columns = table.cross(columns, "overlap", range(len(table.TEXTS["overlap"])))
    sharded = columns["zero"] == 3
    prefetch = columns["overlap"] == _PREFETCH
    neither = columns["overlap"] == _NO_OVERLAP
    found = table.build(_keep(columns, neither | (sharded == prefetch)))
    keep = np.ones(table.size(found), dtype=np.bool_)
    for name in ("zero", "sequence_parallel", "recompute", "overlap"):
        keep &= constraints.mask(name, getattr(found, name))
    return table.take(found, keep)


def expand(split: StrategyTable, mode: StrategyTable) -> StrategyTable:
    """Return every split in every mode that it can be in.

    Sequence parallel needs a tensor-parallel group. Of modes that are the same for a split (nothing to
    shard or to overlap on a single replica) only the plainest allowed one is listed.
    """
    return _pairs(split, mode, *np.nonzero(allowed_modes(split, mode)))


def cross_modes(split: StrategyTable, mode: StrategyTable) -> StrategyTable:
    """Return every split in every mode, split by split, whether it can be in it or not."""
    left = np.repeat(np.arange(table.size(split)), table.size(mode))
    right = np.tile(np.arange(table.size(mode)), table.size(split))
    return _pairs(split, mode, left, right)


def _pairs(
    split: StrategyTable, mode: StrategyTable, left: table.Ints, right: table.Ints
) -> StrategyTable:
    """Return the splits `left` in the modes `right`."""
    return StrategyTable(
        **{
            name: getattr(mode, name)[right] if name in MODE_COLUMNS else getattr(split, name)[left]
            for name in table.COLUMNS
        }
    )


def with_mode(split: StrategyTable, mode: StrategyTable, row: int) -> StrategyTable:
    """Return every split in one mode."""
    return cross_modes(split, table.take(mode, slice(row, row + 1)))


def leanest(split: StrategyTable, mode: StrategyTable) -> StrategyTable:
    """Return every split in the mode that shards and recomputes most, to see whether it can fit at all."""
    order = np.lexsort((mode.sequence_parallel, mode.recompute, mode.zero))
    return with_mode(split, mode, int(order[-1]))


def allowed_modes(split: StrategyTable, mode: StrategyTable) -> npt.NDArray[np.bool_]:
    """Return which modes each split can be in: shape (splits, modes)."""
    alone = (split.dp * split.cp == 1)[:, None]
    whole = ((split.tp == 1) & (split.dp * split.cp == 1) & (split.pp == 1))[:, None]
    wanted = ~(mode.sequence_parallel[None, :] & (split.tp == 1)[:, None])
    plainest_zero = mode.zero == mode.zero.min(initial=3)
    wanted &= ~alone | plainest_zero[None, :]
    sharded = mode.zero == 3
    plain: npt.NDArray[np.bool_] = np.ones(len(mode.zero), dtype=np.bool_)
    for group in (sharded, ~sharded):
        least = mode.overlap[group].min(initial=_PREFETCH)
        plain[group] = mode.overlap[group] == least
    nothing_to_hide = whole | (alone & (mode.overlap != ALL)[None, :])
    return np.asarray(wanted & (~nothing_to_hide | plain[None, :]), dtype=np.bool_)


def _counts(limits: Limits, constraints: Constraints) -> list[int]:
    named = {n for n in constraints.rule("devices").named if n <= limits.devices}
    sizes = [constraints.rule(name).pinned for name in ("tp", "pp", "cp", "dp")]
    if all(size is not None for size in sizes):
        named.add(int(np.prod(sizes)))
    usual = {*limits.counts, *(n for n in named if n <= limits.devices)}
    return sorted(constraints.keep("devices", usual))


def _interleaves(columns: Mapping[str, table.Ints], limits: Limits) -> npt.NDArray[np.bool_]:
    """Interleaving wants whole chunks, and micro-batches in groups of stages (Narayanan et al. 2021)."""
    passes = limits.global_batch // (columns["dp"] * columns["micro_batch"])
    chunks = columns["pp"] * columns["virtual_stages"]
    whole = (limits.layers % chunks == 0) & (passes % columns["pp"] == 0) & (columns["pp"] > 1)
    return np.asarray((columns["virtual_stages"] == 1) | whole, dtype=np.bool_)


def _sizes(view: ComputationView, names: Sequence[str]) -> set[int]:
    return {
        size
        for tensor in view.tensors.values()
        for axis, size in zip(tensor.axes, tensor.shape, strict=True)
        if axis in names
    }


def _common(sizes: Sequence[int]) -> list[int]:
    """Return the numbers that divide every size, 1 where there is none."""
    return divisors(int(np.gcd.reduce(sizes))) if sizes else [1]


def _packs(size: int, per_node: int) -> bool:
    """Groups that fill nodes, or that nodes are filled with."""
    return per_node % size == 0 or size % per_node == 0


def _keeps_tiles(size: int, sequence: Sequence[int]) -> bool:
    """Halves that keep at least a tile of the attention kernel on every rank."""
    return size & (size - 1) == 0 and (size == 1 or min(sequence) // size >= _TILE)


def _product(columns: Mapping[str, table.Ints]) -> table.Ints:
    used = columns["tp"]
    for name in ("cp", "pp", "dp"):
        used = used * columns.get(name, np.ones(1, dtype=np.int64))
    return used


def _keep(columns: Mapping[str, table.Ints], mask: npt.NDArray[np.bool_]) -> dict[str, table.Ints]:
    return {name: column[mask] for name, column in columns.items()}
