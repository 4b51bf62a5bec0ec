"""Writing a computation view operator by operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_training.planning.view.computation import (
    ComputationView,
    Operator,
    Tensor,
    TensorKind,
    Unit,
)


class ViewBuilder:
    """Collects tensors, operators and units; every method that makes a tensor returns its name."""

    def __init__(self, name: str, *, batch: int = 1) -> None:
        self.name = name
        self.batch = batch
        self.tensors: dict[str, Tensor] = {}
        self._operators: list[Operator] = []
        self._units: list[Unit] = []
        self._done = 0

    def tensor(
        self,
        name: str,
        dims: Sequence[tuple[str, int]],
        *,
        dtype: str = "compute",
        kind: TensorKind = "activation",
    ) -> str:
        """Add a tensor whose dimensions are given by name and size."""
        axes, shape = tuple(axis for axis, _ in dims), tuple(size for _, size in dims)
        self.tensors[name] = Tensor(name=name, shape=shape, axes=axes, dtype=dtype, kind=kind)
        return name

    def parameter(self, name: str, *dims: tuple[str, int]) -> str:
        """Add a weight whose dimensions are given by name and size; return its name."""
        return self.tensor(name, dims, kind="parameter")

    def dims(self, name: str) -> tuple[tuple[str, int], ...]:
        """Return names and sizes of a tensor's dimensions."""
        tensor = self.tensors[name]
        return tuple(zip(tensor.axes, tensor.shape, strict=True))

    def operator(
        self,
        name: str,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        **attributes: Any,
    ) -> None:
        """Add an operator that reads and makes tensors which are already there."""
        self.add(
            Operator(
                name=name,
                kind=kind,
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                attributes=attributes,
            )
        )

    def add(self, operator: Operator) -> None:
        """Add an operator that is already written: a condition or a loop with its bodies."""
        self._operators.append(operator)

    def unit(self, name: str, *, repeat: int = 1) -> None:
        """Make a unit of the operators added since the last one."""
        names = tuple(operator.name for operator in self._operators[self._done :])
        self._done = len(self._operators)
        self._units.append(Unit(name=name, operators=names, repeat=repeat))

    def view(self) -> ComputationView:
        """The view so far: operators, and the units made of them."""
        return ComputationView(
            name=self.name,
            tensors=dict(self.tensors),
            operators=tuple(self._operators),
            units=tuple(self._units),
            batch=self.batch,
        )
