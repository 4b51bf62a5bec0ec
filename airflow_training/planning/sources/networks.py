"""A network that is described as layers (`kind: Network`), as a computation view. No torch, nothing runs.

The view is of the training net, from its inputs to its losses. `network_layers` and `network_sequences` say what each
type of layer is, `network_writing` what they write with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_training.documents.paths import Loc, format_path, split_path
from airflow_training.errors import InputError
from airflow_training.networks.reading import parse_network_data
from airflow_training.networks.resolving import ResolvedNetwork
from airflow_training.planning.sources import (  # noqa: F401 - they register what they write
    network_layers,
    network_sequences,
)
from airflow_training.planning.sources.network_writing import (
    BATCH,
    WRITERS,
    LayerWriter,
    write_unknown,
)
from airflow_training.planning.view.computation import ComputationView, Operator, Tensor
from airflow_training.planning.view.units import cut_into_units

__all__ = ["is_network", "network_view", "parse_network_view"]

MAX_OPERATORS = 100_000
"""Of a view: a recurrent layer alone may have thousands."""


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
    return network_view(network, at=at)


def network_view(network: ResolvedNetwork, *, at: Loc = ()) -> ComputationView:
    """Return the view of the training net, cut into the units that a pipeline may part.

    Raises InputError, at the place of the network, where it has more operators than can be planned for.
    """
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
        write = WRITERS.get(each.layer.type, write_unknown)
        if each.layer.type != "Embedding" and "buffer" in {
            tensors[own].kind for own in writer.inputs
        }:
            write = write_unknown  # numbers without a batch that somebody counts with
        write(writer)
        if len(operators) > MAX_OPERATORS:
            raise InputError.of(
                code="too_large",
                field=format_path(at),
                message=f"the network has more than {MAX_OPERATORS} operators up to layer '{name}'",
                hint="a smaller `repeat` or `num_layers`",
            )
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


def _used(tensors: Mapping[str, Tensor], operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """Return the operators whose results some output is made from."""
    read = {name for name, each in tensors.items() if each.kind == "output"}
    used: list[Operator] = []
    for each in reversed(operators):
        if read.intersection(each.outputs):
            used.append(each)
            read.update(each.inputs)
    return tuple(reversed(used))
