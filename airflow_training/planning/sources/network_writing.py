"""What layers of a network are written with: tensors and operators of a computation view, and who writes which type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airflow_training.networks.nets import NetLayer
from airflow_training.networks.resolving import ResolvedLayer
from airflow_training.planning.view.computation import Operator, Tensor, TensorKind

__all__ = ["BATCH", "WRITERS", "LayerWriter", "write_unknown", "writes"]

BATCH = 2
"""Samples that a view is written for; one would look like a dimension that is broadcast."""

Write = Callable[["LayerWriter"], None]
WRITERS: dict[str, Write] = {}
"""By type of layer."""


def writes(*types: str) -> Callable[[Write], Write]:
    """Register what writes layers of these types."""

    def register(write: Write) -> Write:
        WRITERS.update(dict.fromkeys(types, write))
        return write

    return register


class LayerWriter:
    """Writes one layer: its tensors and operators are called by its name and what they are in it."""

    def __init__(
        self,
        net_layer: NetLayer,
        layer: ResolvedLayer,
        made: dict[str, str],
        tensors: dict[str, Tensor],
        operators: list[Operator],
    ) -> None:
        self.name = layer.name
        self.type = layer.flat.type
        self.kind = layer.flat.kind
        self.params = layer.inferred.params
        self.weights = layer.inferred.weights
        self.shape = (BATCH, *layer.inferred.output.shape)
        """Of its output, with the batch."""
        self.dtype = layer.inferred.output.dtype
        self.inputs = [made[name] for name in net_layer.inputs]
        self._tied_to = layer.flat.tied_to
        self._made = made
        self._tensors = tensors
        self._operators = operators

    def shape_of(self, tensor: str) -> tuple[int, ...]:
        return self._tensors[tensor].shape

    def dim(self, name: str = "dim", rank: int | None = None) -> int:
        """Return a parameter that is a dimension, counted from 0, the batch."""
        count = rank or len(self.shape_of(self.inputs[0]))
        return int(self.params[name]) % count

    def parameter(self, part: str, shape: Sequence[int] | None = None) -> str:
        """Add a parameter of the layer, by default of the shape that the catalogue says."""
        if self._tied_to is not None and part == "weight":
            return f"{self._tied_to}.weight"
        wanted = self.weights[part] if shape is None else shape
        own = [wanted] if isinstance(wanted, int) else list(wanted)
        return self.tensor(part, own, kind="parameter")

    def own_parameters(self) -> list[str]:
        """Add all parameters of the layer."""
        return [self.parameter(part) for part in self.weights]

    def tensor(
        self,
        part: str,
        shape: Sequence[int],
        *,
        dtype: str = "compute",
        kind: TensorKind = "activation",
    ) -> str:
        """Add a tensor of the layer; return its name."""
        name = f"{self.name}.{part}"
        batched = kind == "input" and len(shape) > 0
        axes = ("batch", *[""] * (len(shape) - 1)) if batched else ("",) * len(shape)
        self._tensors[name] = Tensor(
            name=name, shape=tuple(shape), axes=axes, dtype=dtype, kind=kind
        )
        return name

    def operator(
        self,
        part: str,
        kind: str,
        inputs: Sequence[str],
        shape: Sequence[int] | None = None,
        *,
        more: Sequence[str] = (),
        dtype: str = "compute",
        **attributes: Any,
    ) -> str:
        """Add an operator and the tensor that it makes, by default of the layer's shape; return the tensor.

        `more`: further tensors that it makes, which are there.
        """
        result = self.tensor(part, self.shape if shape is None else shape, dtype=dtype)
        self._operators.append(
            Operator(
                name=result,
                kind=kind,
                inputs=tuple(inputs),
                outputs=(result, *more),
                attributes=attributes,
            )
        )
        return result

    def reshape(self, part: str, tensor: str, shape: Sequence[int]) -> str:
        """Return a tensor in another shape."""
        if self.shape_of(tensor) == tuple(shape):
            return tensor
        dtype = self._tensors[tensor].dtype
        return self.operator(part, "reshape", [tensor], shape, dtype=dtype)

    def gives(self, tensor: str) -> None:
        """Let a tensor be what the layer gives."""
        self._made[self.name] = tensor


def write_unknown(writer: LayerWriter) -> None:
    """Write a layer that has no rule: every device runs all of it, and lowering warns."""
    inputs = [*writer.inputs, *writer.own_parameters()]
    shape = (1,) if writer.kind.kind == "loss" else writer.shape
    writer.gives(writer.operator("out", writer.type, inputs, shape))
