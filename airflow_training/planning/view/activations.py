"""Which tensors a unit keeps for its backward pass, and which live only for a moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_training.planning.view.computation import ComputationView, Operator
from airflow_training.planning.view.partition import recompute_modes
from airflow_training.planning.view.program import Recompute
from airflow_training.planning.view.rules import OperatorRule
from airflow_training.planning.view.training import is_parameter_gradient

KEPT = frozenset({"activation", "input", "output"})


class Activations:
    """The life of the tensors of one unit."""

    def __init__(
        self,
        view: ComputationView,
        rules: Mapping[str, OperatorRule],
        operators: Sequence[Operator],
    ) -> None:
        self.tensors = view.tensors
        self.forward = [operator for operator in operators if operator.phase == "forward"]
        self.backward = [operator for operator in operators if operator.phase == "backward"]
        self.makers = {name: op.name for op in self.forward for name in op.outputs}
        self.turns = {name: op.count for op in self.forward for name in op.outputs}
        self.bases = {
            name: operator.inputs[0]
            for operator in operators
            if rules[operator.name].free
            for name in operator.outputs
        }
        for operator in self.backward:
            if rules[operator.name].in_place:
                of = operator.attributes["like"][len(operator.inputs) :]
                self.bases.update(zip(operator.outputs, of, strict=True))
        """Tensors that are another look at the memory of the one named."""

    def base(self, name: str) -> str:
        """Return the tensor that owns the memory."""
        while name in self.bases:
            name = self.bases[name]
        return name

    def times(self, name: str) -> float:
        """Return how many copies of a tensor are kept: one per turn of the loop that makes it."""
        return max(1.0, self.turns.get(name, 1.0))

    def saved(self, mode: Recompute) -> tuple[str, ...]:
        """Return the tensors kept from forward to backward.

        Those that the backward pass reads and does not compute again, and those from which it starts to
        compute again.
        """
        again = {op.name for op in self.forward if mode in recompute_modes(op)}
        found: dict[str, None] = {}
        for operator in self.backward:
            for name in operator.inputs:
                if self.makers.get(name) not in again or operator.of not in again:
                    found[self.base(name)] = None
        for operator in self.forward:
            if operator.name in again:
                for name in operator.inputs:
                    if self.makers.get(name) not in again:
                        found[self.base(name)] = None
        return tuple(name for name in found if self.tensors[name].kind in KEPT)

    def alive(self) -> tuple[tuple[Operator, tuple[str, ...]], ...]:
        """Return, at each operator, the tensors in memory that are not among those kept anyway."""
        kept = set(self.saved("none"))
        steps = [*self.forward, *self.backward]
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for place, operator in enumerate(steps):
            for name in (*operator.inputs, *operator.outputs):
                base = self.base(name)
                if base not in kept and self._passing(base):
                    first.setdefault(base, place)
                    last[base] = place
        return tuple(
            (operator, tuple(name for name in first if first[name] <= place <= last[name]))
            for place, operator in enumerate(steps)
        )

    def _passing(self, name: str) -> bool:
        tensor = self.tensors[name]
        if tensor.kind == "gradient":
            return not is_parameter_gradient(name, self.tensors)
        return tensor.kind in KEPT and name in self.makers
