"""What a trainer is told: the document that travels with the job, as dataclasses. Standard library and numpy."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from airflow_training.networks.trainer.mistakes import TrainerError

__all__ = ["DataSettings", "MetricLayer", "NetworkInput", "TrainerSettings", "read_settings"]


@dataclass(frozen=True, kw_only=True)
class NetworkInput:
    """An input of the network, and where the data has it."""

    name: str
    shape: tuple[int, ...]
    """Of one sample."""
    dtype: str
    """`float32` or `int64`."""
    is_label: bool
    """Only losses and metrics take it."""
    columns: tuple[str, ...] = ()
    """Of a table, or the one array; empty: the label column for a label, else all that are left."""
    takes_rest: bool = False
    """Whether the columns are all that the first file has left, so that no other file may have more."""
    below: int | None = None
    """Of whole numbers: 0 to this, as many as there are classes or embeddings; None: any."""
    ignored: int | None = None
    """A number that losses pass over, whatever `below` says."""

    def misfit(self, values: numpy.ndarray[Any, Any]) -> int:
        """Return the place of the first of some numbers that the network cannot take; -1: it takes all."""
        if not numpy.isfinite(values).all():
            return int(numpy.argmin(numpy.isfinite(values)))
        if self.dtype != "int64" or not values.size:
            return -1
        wrong = values != numpy.floor(values)
        if self.below is not None:
            wrong |= ((values < 0) | (values >= self.below)) & (values != self.ignored)
        return int(numpy.argmax(wrong)) if wrong.any() else -1

    def misfit_reason(self, number: float) -> tuple[str, str]:
        """Return why the network cannot take a number, and what can be done."""
        if not numpy.isfinite(number):
            return f"is not finite (as {self.dtype})", "fill the cell, or take out the row"
        if number != numpy.floor(number):
            fix = f"the input '{self.name}' has dtype int64: float32 takes fractions"
            return "is no whole number", fix
        fix = (
            "count classes from 0, or name them in trainer.data.classes; the layer before the loss has one output a class"
            if self.is_label
            else "give the Embedding a larger num_embeddings, or mend the row"
        )
        return (
            f"is not 0 to {(self.below or 0) - 1}, which the network takes for '{self.name}'",
            fix,
        )


@dataclass(frozen=True, kw_only=True)
class MetricLayer:
    """A metric of the test net."""

    name: str
    type: str
    k: int | None
    """Of NDCG: how many places count; None: all."""
    scores: str
    """The output that it judges."""
    labels: str
    """The input with the truth."""


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """How files become inputs of the network."""

    format: str
    label: str
    query: str
    """Column with the id of the list that a row belongs to; empty: rows are no lists."""
    classes: tuple[str, ...]
    """Names of classes: their places are their numbers."""
    delimiter: str
    files: tuple[str, ...]
    """To train on, or folders of them; empty: all there are."""
    test: tuple[str, ...]
    """To test on, named in the same way."""


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """The whole of it."""

    network: Mapping[str, Any]
    """The document of kind Network."""
    network_digest: str
    module: str
    """Source with `TrainNet` and `TestNet`."""
    inputs: tuple[NetworkInput, ...]
    train_inputs: tuple[str, ...]
    """In the order of `TrainNet.forward`."""
    test_inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    """Of the test net, without metrics."""
    metrics: tuple[MetricLayer, ...]
    data: DataSettings
    epochs: int
    batch_size: int
    """Samples that one process takes in a step."""
    optimizer: str
    """A class of `torch.optim`."""
    optimizer_options: Mapping[str, float]
    update_interval: int
    """Batches whose gradients are added up before an update."""
    threads: int | None
    seed: int
    shuffle: bool
    by_plan: bool
    """Whether the job's plan splits the network; then a batch is that of all ranks."""
    document: Mapping[str, Any]
    """All of it as it was read, for whoever packs the training."""

    @property
    def features(self) -> tuple[NetworkInput, ...]:
        """The inputs that layers compute with."""
        return tuple(each for each in self.inputs if not each.is_label)

    @property
    def labels(self) -> tuple[NetworkInput, ...]:
        """The inputs that losses and metrics compare with."""
        return tuple(each for each in self.inputs if each.is_label)

    @classmethod
    def from_document(cls, found: Mapping[str, Any]) -> TrainerSettings:
        """Read the file's document; raises KeyError where it is of another version."""
        optimizer: Mapping[str, Any] = found["optimizer"]
        data: Mapping[str, Any] = found["data"]
        return cls(
            network=found["network"],
            network_digest=found["networkDigest"],
            module=found["module"],
            inputs=tuple(
                NetworkInput(
                    name=each["name"],
                    shape=tuple(each["shape"]),
                    dtype=each["dtype"],
                    is_label=each["isLabel"],
                    columns=tuple(each["columns"]),
                    below=each.get("below"),
                    ignored=each.get("ignored"),
                )
                for each in found["inputs"]
            ),
            train_inputs=tuple(found["trainInputs"]),
            test_inputs=tuple(found["testInputs"]),
            outputs=tuple(found["outputs"]),
            metrics=tuple(MetricLayer(**each) for each in found["metrics"]),
            data=DataSettings(
                format=data["format"],
                label=data["label"],
                query=data["query"],
                classes=tuple(data["classes"]),
                delimiter=data["delimiter"],
                files=tuple(data["files"]),
                test=tuple(data["test"]),
            ),
            epochs=found["epochs"],
            batch_size=found["batchSize"],
            optimizer=optimizer["name"],
            optimizer_options=optimizer["options"],
            update_interval=found["updateInterval"],
            threads=found["threads"],
            seed=found["seed"],
            shuffle=found["shuffle"],
            by_plan=found.get("byPlan", False),
            document=found,
        )


def read_settings(environment: Mapping[str, str] = os.environ) -> TrainerSettings:
    """Read the file that `TRAINER_FILE` names; raises TrainerError where its digest is not that of the job."""
    path = environment.get("TRAINER_FILE", "")
    if not path:
        fix = "give a job `spec.trainer`, or name the file of a packed training"
        raise TrainerError("TRAINER_FILE", "is not set, so nothing says what to train", fix)
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise TrainerError(path, f"cannot be read: {error.strerror}") from None
    wanted = environment.get("TRAINER_DIGEST", "")
    found = f"sha256:{hashlib.sha256(text).hexdigest()}"
    if wanted and wanted != found:
        fix = "start the run again: the file was changed after the job was admitted"
        raise TrainerError(path, f"has the digest {found}, not {wanted}", fix)
    return TrainerSettings.from_document(json.loads(text))
