"""Which dimension of every tensor, and which factor of every operator, each axis of a mesh splits.

Each axis of the mesh is settled alone, by claims. A seed claims a dimension of a tensor; a tensor claims
the factors that its split dimension has in the operators that touch it; an operator claims the
dimensions of its factor in all its tensors, and the same factor of its gradients. Claims are ranked:
the forward pass is settled before the backward pass, which mirrors it; then by priority; then those
that leave no partial sum; then by the length of the way they came; then by their place in the view.
They are taken in that order (Dijkstra 1959), so the result does not depend on the order of the seeds, no
settled label ever changes, and what was settled, given as further, weaker seeds, changes nothing.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_training.planning.view.computation import ComputationView, Operator
from airflow_training.planning.view.rules import OperatorRule

LAST_RESORT = 1_000
"""How many steps a split is put back that leaves a sum over the mesh."""


@dataclass(frozen=True, slots=True)
class AxisSeed:
    """A known part of the answer: mesh axis `axis` splits dimension `dim` of a tensor.

    `dim` None: it splits no dimension of it. What a seed says holds; the priority is that of what follows
    from it, and lower ones are stronger.
    """

    tensor: str
    axis: str
    dim: int | None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Labels:
    """The settled splits of one mesh axis; what is in neither mapping is replicated."""

    tensors: Mapping[str, int]
    operators: Mapping[str, str]
    """The factor along which each operator is split."""


def resolve_labels(
    view: ComputationView,
    rules: Mapping[str, OperatorRule],
    axes: Sequence[str],
    seeds: Iterable[AxisSeed],
) -> dict[str, Labels]:
    """Return the labels of every mesh axis.

    Args:
        view: The computation.
        rules: The rule of each operator, by the operator's name.
        axes: Names of the mesh axes.
        seeds: What is known, in any order.

    """
    graph = _Graph(view, rules)
    given: dict[str, list[AxisSeed]] = {axis: [] for axis in axes}
    for seed in seeds:
        if seed.axis in given:
            given[seed.axis].append(seed)
    return {axis: graph.resolve_labels(some) for axis, some in given.items()}


@dataclass(frozen=True, slots=True, order=True)
class _Claim:
    pass_: int
    """0 while the way has stayed in the forward pass."""
    priority: int
    steps: int
    position: int
    """Of the operator that the claim goes to or comes from."""
    operand: int
    name: str
    """Of the tensor that is claimed; empty for a claim on the operator itself."""
    label: str
    """A factor, or a dimension."""


class _Graph:
    def __init__(self, view: ComputationView, rules: Mapping[str, OperatorRule]) -> None:
        self.tensors = view.tensors
        self.operators: Sequence[Operator] = view.operators
        forward = (op for op in view.operators if op.phase == "forward")
        self.forward = {name for op in forward for name in (*op.inputs, *op.outputs)}
        self.gradients: dict[str, list[int]] = defaultdict(list)
        self.sums: list[frozenset[str]] = []
        """Per operator the factors whose split leaves a partial result."""
        self.boxes: list[tuple[tuple[str, tuple[str, ...]], ...]] = []
        """Per operator its tensors, each with the factors that may be split."""
        self.users: dict[str, list[tuple[int, int]]] = defaultdict(list)
        """Per tensor where it is used or made: operator and operand."""
        for position, operator in enumerate(view.operators):
            rule = rules[operator.name]
            names = (*operator.inputs, *operator.outputs)
            boxes = (*rule.inputs, *rule.outputs)
            self.boxes.append(
                tuple(
                    (name, tuple("" if f in rule.whole else f for f in box))
                    for name, box in zip(names, boxes, strict=True)
                )
            )
            made = [part for box in rule.outputs for entry in box for part in entry.split("*")]
            self.sums.append(frozenset(rule.factors()).difference(made))
            for operand, name in enumerate(names):
                self.users[name].append((position, operand))
            if operator.of:
                self.gradients[operator.of].append(position)

    def resolve_labels(self, seeds: Iterable[AxisSeed]) -> Labels:
        known: dict[str, int | None] = {}
        tensors: dict[str, int] = {}
        operators: dict[int, str] = {}
        heap: list[_Claim] = []
        for seed in sorted(seeds, key=lambda seed: seed.priority):
            if known.setdefault(seed.tensor, seed.dim) == seed.dim is not None:
                late = 0 if seed.tensor in self.forward else 1
                heap.append(_Claim(late, seed.priority, 0, -1, -1, seed.tensor, str(seed.dim)))
        heapq.heapify(heap)
        while heap:
            claim = heapq.heappop(heap)
            if claim.name:
                dim = int(claim.label)
                if claim.name in tensors or known.get(claim.name, dim) != dim:
                    continue
                if claim.name not in known and not self._splits(claim.name, dim):
                    continue
                tensors[claim.name] = dim
                claims = self._on_operators(claim, dim)
            elif claim.position not in operators:
                operators[claim.position] = claim.label
                claims = self._on_tensors(claim)
            else:
                continue
            for made in claims:
                heapq.heappush(heap, made)
        named = {self.operators[position].name: factor for position, factor in operators.items()}
        return Labels(tensors, named)

    def _splits(self, name: str, dim: int) -> bool:
        """A dimension of length 1 is split only if a seed says so, or if it stands for the batch."""
        tensor = self.tensors[name]
        return tensor.shape[dim] > 1 or "batch" in tensor.axes[dim].split("*")

    def _on_operators(self, claim: _Claim, dim: int) -> Iterator[_Claim]:
        for position, operand in self.users[claim.name]:
            factor = self.boxes[position][operand][1][dim].partition("*")[0]
            if factor:
                forward = self.operators[position].phase == "forward"
                steps = claim.steps + (LAST_RESORT if factor in self.sums[position] else 1)
                pass_ = claim.pass_ if forward else 1
                yield _Claim(pass_, claim.priority, steps, position, operand, "", factor)

    def _on_tensors(self, claim: _Claim) -> Iterator[_Claim]:
        place, factor = claim.position, claim.label
        steps = claim.steps + 1
        for operand, (name, box) in enumerate(self.boxes[place]):
            for dim, entry in enumerate(box):
                if factor in entry.split("*"):
                    yield replace(claim, steps=steps, operand=operand, name=name, label=str(dim))
        for position in self.gradients[self.operators[place].name]:
            if any(factor in entry.split("*") for _, box in self.boxes[position] for entry in box):
                yield replace(claim, steps=steps, position=position)
