"""A network that is described as layers (`kind: Network`), as a computation view. No torch, nothing runs.

The view is of the training net, from its inputs to its losses. `network_layers` and `network_sequences` say what each
type of layer is; here is what they write with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_training.documents.paths import Loc, format_path, split_path
from airflow_training.errors import InputError
from airflow_training.networks.nets import NetLayer
from airflow_training.networks.reading import parse_network_data
from airflow_training.networks.resolving import ResolvedLayer, ResolvedNetwork
from airflow_training.planning.view.computation import ComputationView, Operator, Tensor, TensorKind
from airflow_training.planning.view.units import cut_into_units

__all__ = ["LayerWriter", "is_network", "network_view", "parse_network_view", "writes"]

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


def is_network(document: object) -> bool:
    """Return whether a document of a model is a network."""
    return isinstance(document, Mapping) and document.get("kind") == "Network"


def parse_network_view(document: Mapping[str, Any], *, at: Loc) -> ComputationView:
    """Return the view of a document of kind Network; raises InputError with every mistake."""
    network, problems = parse_network_data(document)
    if network is None:
        raise InputError(
            problems=[
                replace(each, field=format_path((*at, *(split_path(each.field) or ()))))
                for each in problems
            ]
        )
    return network_view(network)


def network_view(network: ResolvedNetwork) -> ComputationView:
    """Return the view of the training net, cut into the units that a pipeline may part."""
    from airflow_training.planning.sources import (  # noqa: F401 - registers them
        network_layers,
        network_sequences,
    )

    tensors: dict[str, Tensor] = {}
    operators: list[Operator] = []
    net = network.nets["train"]
    needed = {each.layer.name for each in net.inputs}
    made: dict[str, str] = {}
    for each in net.layers:
        name = each.layer.name
        if each.layer.kind.kind == "input" and name not in needed:
            continue
        writer = LayerWriter(each, network.layers[name], made, tensors, operators)
        write = WRITERS.get(each.layer.type, _write_unknown)
        if each.layer.type != "Embedding" and "buffer" in {tensors[own].kind for own in writer.inputs}:
            write = _write_unknown  # numbers without a batch that somebody counts with
        write(writer)
    losses = [each.layer.name for each in net.of_kind("loss")]
    for name in losses or net.outputs.values():
        tensors[made[name]] = replace(tensors[made[name]], kind="output")
    used = _used(tensors, operators)
    touched = {name for each in used for name in (*each.inputs, *each.outputs)}
    return cut_into_units(
        ComputationView(
            name=network.metadata.name,
            tensors={
                name: each
                for name, each in tensors.items()
                if name in touched or each.kind == "input"
            },
            operators=used,
            units=(),
            batch=BATCH,
        )
    )


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


def _write_unknown(writer: LayerWriter) -> None:
    """Write a layer that has no rule: every device runs all of it, and lowering warns."""
    inputs = [*writer.inputs, *writer.own_parameters()]
    shape = (1,) if writer.kind.kind == "loss" else writer.shape
    writer.gives(writer.operator("out", writer.type, inputs, shape))


def _used(tensors: Mapping[str, Tensor], operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """Return the operators whose results some output is made from."""
    read = {name for name, each in tensors.items() if each.kind == "output"}
    used: list[Operator] = []
    for each in reversed(operators):
        if read.intersection(each.outputs):
            used.append(each)
            read.update(each.inputs)
    return tuple(reversed(used))
