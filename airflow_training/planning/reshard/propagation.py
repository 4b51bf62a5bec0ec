"""Completes a partial annotation of a view: where every tensor lies and every operator runs.

Attributes of tensors and of operators are separate. Where an operator wants a tensor elsewhere than it
lies, or makes it elsewhere, a reshard stands between them; if only the devices differ, it is a send and
a receive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem
from airflow_training.planning.reshard.distribution import Distribution, Mesh, even_slices
from airflow_training.planning.reshard.reshard import Path, reshard
from airflow_training.planning.view.computation import ComputationView, Operator
from airflow_training.planning.view.control_flow import inline_bodies
from airflow_training.planning.view.labels import AxisSeed, resolve_labels
from airflow_training.planning.view.layouts import Layout, Layouts, layouts
from airflow_training.planning.view.rules import OperatorRule, rule_of
from airflow_training.planning.view.symbols import BYTES

__all__ = ["AxisSeed", "DistributedView", "OperatorPlacement", "Reshard", "complete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPlacement:
    """One operator with where it runs: what it wants of its inputs and makes of its outputs."""

    operator: Operator
    mesh: Mesh
    factors: Mapping[str, tuple[str, ...]]
    """The mesh axes along which each factor of its rule is split."""
    inputs: tuple[Distribution, ...]
    outputs: tuple[Distribution, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshard:
    """The move of one tensor from where it lies to where it is wanted."""

    tensor: str
    operator: str
    """The operator that wants it so, or that made it so."""
    source: Distribution
    target: Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedView:
    """A view whose tensors and operators all have their place."""

    view: ComputationView
    tensors: Mapping[str, Distribution]
    steps: tuple[OperatorPlacement | Reshard, ...]
    """In an order in which they can run."""
    warnings: tuple[str, ...] = ()

    @property
    def reshards(self) -> tuple[Reshard, ...]:
        return tuple(step for step in self.steps if isinstance(step, Reshard))

    def path(self, move: Reshard, *, precision: str = "bf16") -> Path:
        """Return the cheapest steps of a move, each with its bytes.

        Args:
            move: One of `reshards`.
            precision: What the dtype `compute` is.

        """
        tensor = self.view.tensors[move.tensor]
        element_bytes = BYTES[precision if tensor.dtype == "compute" else tensor.dtype]
        return reshard(tensor, move.source, move.target, element_bytes=element_bytes)


def complete(
    view: ComputationView,
    mesh: Mesh,
    seeds: Iterable[AxisSeed],
    *,
    placement: Mapping[str, Mesh] | None = None,
    shares: Mapping[str, Sequence[int]] | None = None,
) -> DistributedView:
    """Return the view with every annotation filled in; loops and branches are laid open in it.

    Operators of a kind that no rule knows run whole on every device, and a warning says so.

    Args:
        view: The computation.
        mesh: Where it runs.
        seeds: What is known of its tensors, in any order.
        placement: Meshes of their own for units, by name: other devices with the same axes.
        shares: For a mesh axis whose devices are not equally fast, how much each takes of whatever is
            split along it; otherwise slices are even.

    Raises:
        InputError: A seed names a tensor, a dimension or a mesh axis that is not there, two seeds
            contradict each other, or the shares are not one per device.

    """
    known = tuple(seeds)
    view = inline_bodies(view)
    placement = placement or {}
    cutter = _Cutter(shares or {})
    _check(view, mesh, known, placement, cutter.shares)
    operators = {operator.name: operator for operator in view.operators}
    rules = {
        name: rule_of(operator, view.tensors, operators) for name, operator in operators.items()
    }
    settled = resolve_labels(view, rules, mesh.axes, known)
    fixed = frozenset(seed.tensor for seed in known)
    placed = layouts(view, rules, settled, fixed=fixed)
    meshes = _meshes(view, mesh, placement)
    homes = _homes(view, meshes, mesh)
    tensors = {
        name: cutter.distribution(homes[name], layout, view.tensors[name].shape)
        for name, layout in placed.tensors.items()
    }
    steps = tuple(_steps(view, rules, placed, meshes, tensors, cutter))
    unknown = sorted({operators[name].kind for name, rule in rules.items() if not rule.known})
    warnings = tuple(f"no rule for operators of kind {k!r}: every device runs all" for k in unknown)
    return DistributedView(view=view, tensors=tensors, steps=steps, warnings=warnings)


class _Cutter:
    """Cuts dimensions into the slices of devices, evenly or by shares."""

    def __init__(self, shares: Mapping[str, Sequence[int]]) -> None:
        self.shares = shares

    def distribution(
        self,
        mesh: Mesh,
        layout: Layout,
        shape: tuple[int, ...],
        blocks: tuple[int, ...] | None = None,
    ) -> Distribution:
        """Return the distribution of a tensor whose dimensions fall into so many blocks."""
        sizes = tuple(
            self._slices(mesh, axes, size, count) if axes and count and size % count == 0 else None
            for axes, size, count in zip(layout.dims, shape, blocks or shape, strict=True)
        )
        return Distribution(mesh=mesh, dims=layout.dims, partial=tuple(layout.partial), sizes=sizes)

    def _slices(
        self, mesh: Mesh, axes: tuple[str, ...], size: int, blocks: int
    ) -> tuple[int, ...] | None:
        """Return the slices, or None where they are the even ones."""
        slices: tuple[int, ...] = (blocks,)
        for axis in axes:
            shares = self.shares.get(axis, (1,) * mesh.size(axis))
            slices = tuple(part for whole in slices for part in portions(whole, shares))
        slices = tuple(size // blocks * part for part in slices)
        even = even_slices(size, *(mesh.size(axis) for axis in axes))
        return None if slices == even else slices


def portions(count: int, shares: Sequence[int]) -> tuple[int, ...]:
    """Split `count` in proportion to `shares`; what is left over goes to the largest rests.

    >>> portions(10, (1, 1, 1, 1)), portions(10, (3, 1))
    ((3, 3, 2, 2), (8, 2))
    """
    total = sum(shares)
    whole = [count * share // total for share in shares]
    rests = sorted(range(len(shares)), key=lambda i: (-(count * shares[i] % total), i))
    for place in rests[: count - sum(whole)]:
        whole[place] += 1
    return tuple(whole)


def _steps(
    view: ComputationView,
    rules: Mapping[str, OperatorRule],
    placed: Layouts,
    meshes: Mapping[str, Mesh],
    tensors: Mapping[str, Distribution],
    cutter: _Cutter,
) -> Iterator[OperatorPlacement | Reshard]:
    for operator in view.operators:
        name, rule, mesh = operator.name, rules[operator.name], meshes[operator.name]
        blocks = _blocks(view, operator, rule)
        wanted = [
            cutter.distribution(
                mesh, layout, view.tensors[tensor].shape, tuple(blocks[f] for f in box)
            )
            for tensor, box, layout in zip(
                (*operator.inputs, *operator.outputs),
                (*rule.inputs, *rule.outputs),
                (*placed.inputs[name], *placed.outputs[name]),
                strict=True,
            )
        ]
        inputs = tuple(wanted[: len(operator.inputs)])
        outputs = tuple(wanted[len(operator.inputs) :])
        for tensor, target in dict.fromkeys(zip(operator.inputs, inputs, strict=True)):
            if tensors[tensor] != target:
                yield Reshard(tensor=tensor, operator=name, source=tensors[tensor], target=target)
        yield OperatorPlacement(
            operator=operator,
            mesh=mesh,
            factors=placed.factors[name],
            inputs=inputs,
            outputs=outputs,
        )
        for tensor, source in zip(operator.outputs, outputs, strict=True):
            if tensors[tensor] != source:
                yield Reshard(tensor=tensor, operator=name, source=source, target=tensors[tensor])


def _blocks(view: ComputationView, operator: Operator, rule: OperatorRule) -> dict[str, int]:
    """Return into how many indivisible blocks each factor of an operator falls.

    A merged dimension splits only between the slices of its major part, query heads only together with
    their key and value heads: the shortest dimension of a factor counts its blocks.
    """
    blocks: dict[str, int] = {}
    names = (*operator.inputs, *operator.outputs)
    for name, box in zip(names, (*rule.inputs, *rule.outputs), strict=True):
        for factor, size in zip(box, view.tensors[name].shape, strict=True):
            blocks[factor] = min(size, blocks.get(factor, size))
    return blocks


def _meshes(view: ComputationView, mesh: Mesh, placement: Mapping[str, Mesh]) -> dict[str, Mesh]:
    """Return the mesh of every operator: that of its unit."""
    meshes = {operator.name: mesh for operator in view.operators}
    for unit in view.units:
        meshes.update(dict.fromkeys(unit.operators, placement.get(unit.name, mesh)))
    return meshes


def _homes(view: ComputationView, meshes: Mapping[str, Mesh], mesh: Mesh) -> dict[str, Mesh]:
    """Return the mesh of every tensor: where it is made, or first used if it is there at the start."""
    homes: dict[str, Mesh] = {}
    for operator in view.operators:
        for name in operator.inputs:
            homes.setdefault(name, meshes[operator.name])
        homes.update(dict.fromkeys(operator.outputs, meshes[operator.name]))
    return {name: homes.get(name, mesh) for name in view.tensors}


def _check(
    view: ComputationView,
    mesh: Mesh,
    seeds: tuple[AxisSeed, ...],
    placement: Mapping[str, Mesh],
    shares: Mapping[str, Sequence[int]],
) -> None:
    problems: list[Problem] = []
    settled: dict[tuple[str, str, int], int | None] = {}
    for seed in seeds:
        if seed.tensor not in view.tensors:
            problems.append(_problem("tensor", seed.tensor, "no such tensor", view.tensors))
            continue
        if seed.axis not in mesh.axes:
            problems.append(_problem("axis", seed.axis, "the mesh has no such axis", mesh.axes))
        rank = len(view.tensors[seed.tensor].shape)
        if seed.dim is not None and not 0 <= seed.dim < rank:
            message = f"{seed.tensor} has dimensions 0 to {rank - 1}"
            problems.append(_problem("dim", seed.dim, message))
        key = (seed.tensor, seed.axis, seed.priority)
        if settled.setdefault(key, seed.dim) != seed.dim:
            message = f"{seed.axis} is to split dimension {settled[key]} of {seed.tensor} too"
            problems.append(_problem("dim", seed.dim, message))
    units = [unit.name for unit in view.units]
    for name, own in placement.items():
        if name not in units:
            problems.append(_problem("placement", name, "no such unit", units))
        if own.axes != mesh.axes:
            message = f"the mesh of {name} needs the same axes"
            problems.append(_problem("placement", own.axes, message, mesh.axes))
    for axis, each in shares.items():
        if axis not in mesh.axes:
            problems.append(_problem("shares", axis, "the mesh has no such axis", mesh.axes))
        elif len(each) != mesh.size(axis) or min(each) < 0 or not sum(each):
            message = f"{axis} needs a share for each of its {mesh.size(axis)} devices"
            problems.append(_problem("shares", tuple(each), message))
    if problems:
        raise InputError(problems)


def _problem(field: str, value: object, message: str, allowed: Iterable[str] = ()) -> Problem:
    names = tuple(allowed)
    return Problem(
        code="bad_annotation",
        field=field,
        value=value,
        message=f"{message}: {value!r}",
        allowed=names if len(names) <= 20 else (),
        hint=did_you_mean(value, names),
    )
