"""Whether a network and the data of its job go together, as far as no file has to be read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_training.documents.spelling import did_you_mean
from airflow_training.documents.trainer import Trainer
from airflow_training.errors import Problem
from airflow_training.networks.resolving import Net, ResolvedNetwork

__all__ = ["InputLayer", "fit_problems", "input_layers"]

_FIELD = "spec.trainer"


@dataclass(frozen=True, slots=True)
class InputLayer:
    """An input of the network."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_label: bool
    """Whether nothing but losses and metrics takes it."""
    below: int | None
    """Of whole numbers: those that layers can take are 0 to this; None: any."""
    ignored: int | None
    """The number that losses pass over."""


def input_layers(network: ResolvedNetwork) -> list[InputLayer]:
    """Return the inputs of both nets, in the order of the document."""
    names = dict.fromkeys(each.layer.name for net in network.nets.values() for each in net.inputs)
    computed = {
        name
        for net in network.nets.values()
        for each in net.layers
        if each.layer.kind.kind == "layer"
        for name in each.inputs
    }
    return [
        InputLayer(
            name,
            tuple(network.layers[name].inferred.output.shape),
            network.layers[name].inferred.output.dtype,
            name not in computed,
            *_range(network, name),
        )
        for name in network.layers
        if name in names
    ]


def _range(network: ResolvedNetwork, name: str) -> tuple[int | None, int | None]:
    """Return `below` and `ignored` of an input: of classes that are told apart, and of embeddings."""
    takers = {
        each.layer.name: each
        for net in network.nets.values()
        for each in net.layers
        if name in each.inputs
    }
    limits: list[int] = []
    ignored = None
    for each in takers.values():
        params = network.layers[each.layer.name].inferred.params
        if each.layer.type == "Embedding":
            limits.append(params["num_embeddings"])
        elif each.layer.type in ("CrossEntropyLoss", "Accuracy") and each.inputs[1] == name:
            limits.append(network.layers[each.inputs[0]].inferred.output.shape[0])
            ignored = params.get("ignore_index", ignored)
    return min(limits, default=None), ignored


def fit_problems(trainer: Trainer, network: ResolvedNetwork) -> Iterator[Problem]:
    """Yield why the network cannot be trained on what `trainer.data` describes."""
    inputs = input_layers(network)
    features = [each for each in inputs if not each.is_label]
    labels = [each for each in inputs if each.is_label]
    train: Net = network.nets["train"]
    if not train.of_kind("loss"):
        hint = "add a layer such as {name: loss, type: CrossEntropyLoss, inputs: [logits, label]}"
        yield _problem(
            "missing", "network", "has no loss, so nothing says what to train for", hint=hint
        )
    yield from _named_inputs(trainer, inputs)
    yield from _label_problems(trainer, labels)
    yield from _format_problems(trainer, features, labels)
    if trainer.data.query is not None:
        yield from _list_problems(features, labels)


def _named_inputs(trainer: Trainer, inputs: Sequence[InputLayer]) -> Iterator[Problem]:
    known = [each.name for each in inputs]
    for name in trainer.data.inputs:
        if name not in known:
            yield Problem(
                code="bad_reference",
                field=f"{_FIELD}.data.inputs.{name}",
                value=name,
                message=f"the network has no input '{name}'",
                allowed=known,
                hint=did_you_mean(name, known),
            )
        elif trainer.data.format == "npz" and isinstance(trainer.data.inputs[name], list):
            message = "is one array: a list of columns is for csv and parquet"
            yield _problem("wrong_type", f"data.inputs.{name}", message)


def _label_problems(trainer: Trainer, labels: Sequence[InputLayer]) -> Iterator[Problem]:
    data = trainer.data
    unnamed = [each.name for each in labels if each.name not in data.inputs]
    tabular = data.format in ("csv", "parquet")
    if tabular and unnamed and data.label is None:
        hint = f"label: a column, or inputs: {{{unnamed[0]}: a column}}"
        message = f"says nothing of the label '{unnamed[0]}' of the network"
        yield _problem("missing", "data.label", message, hint=hint)
    if data.label is not None and len(unnamed) > 1:
        message = (
            f"the network has {len(unnamed)} labels ({', '.join(unnamed)}), and label is one column"
        )
        yield _problem(
            "conflict", "data.label", message, value=data.label, hint="name their columns in inputs"
        )
    if data.label is not None and not labels:
        message = "no input of the network is a label: all are taken by layers"
        yield _problem("conflict", "data.label", message, value=data.label)
    if data.classes and not any(each.dtype == "int64" for each in labels):
        message = "are for a label of dtype int64, and the network has none"
        yield _problem("conflict", "data.classes", message, value=list(data.classes))
    for each in labels:
        if each.below is not None and len(data.classes) > each.below:
            message = f"are {len(data.classes)}, and the network tells {each.below} classes apart"
            hint = f"give the layer before the loss {len(data.classes)} outputs"
            yield _problem("conflict", "data.classes", message, value=list(data.classes), hint=hint)


def _format_problems(
    trainer: Trainer, features: Sequence[InputLayer], labels: Sequence[InputLayer]
) -> Iterator[Problem]:
    data = trainer.data
    if data.format in ("libsvm", "images", "text") and (len(features) != 1 or len(labels) != 1):
        message = f"brings one input and one label; the network takes {_listed(features)} and the label {_listed(labels)}"
        yield _problem("conflict", "data.format", message, value=data.format)
        return
    if data.format in ("csv", "parquet"):
        open_ones = [each.name for each in features if each.name not in data.inputs]
        if len(open_ones) > 1:
            message = f"the network takes {len(open_ones)} inputs ({', '.join(open_ones)}): say which columns each has"
            yield _problem("missing", "data.inputs", message)
    if data.format == "images" and (
        len(features[0].shape) != 3 or features[0].shape[0] not in (1, 3)
    ):
        message = f"takes an input of shape [1 or 3, height, width], and '{features[0].name}' has {list(features[0].shape)}"
        yield _problem("bad_shape", "data.format", message, value=data.format)
    if data.format == "text":
        for each in (*features, *labels):
            if len(each.shape) != 1 or each.dtype != "int64":
                message = f"takes inputs of shape [length] and dtype int64, and '{each.name}' has {list(each.shape)} and {each.dtype}"
                yield _problem("bad_shape", "data.format", message, value=data.format)
        if features[0].shape != labels[0].shape:
            message = f"'{labels[0].name}' is what follows '{features[0].name}', of equal shape"
            yield _problem("bad_shape", "data.format", message, value=data.format)


def _list_problems(
    features: Sequence[InputLayer], labels: Sequence[InputLayer]
) -> Iterator[Problem]:
    lengths = {each.shape[0] if each.shape else None for each in (*features, *labels)}
    if len(lengths) != 1 or None in lengths:
        message = (
            "makes lists of documents: the first size of every input is the length of a list, and they have "
            f"{_listed([*features, *labels])}"
        )
        hint = "such as shape: [32, 64] for 32 documents of 64 numbers, and shape: [32] for their relevance"
        yield _problem("bad_shape", "data.query", message, hint=hint)


def _listed(inputs: Sequence[InputLayer]) -> str:
    return ", ".join(f"'{each.name}' {list(each.shape)}" for each in inputs) or "none"


def _problem(code: str, key: str, message: str, *, value: Any = None, hint: str = "") -> Problem:
    return Problem(code=code, field=f"{_FIELD}.{key}", value=value, message=message, hint=hint)
