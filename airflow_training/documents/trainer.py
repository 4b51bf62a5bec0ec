"""Model of the `trainer` block: a network that is trained on files, without a script."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from airflow_training.documents.base import DnsLabel, Many, Model, Number, discriminate_by_kind

__all__ = ["NetworkSource", "OptimizerChoice", "Trainer", "TrainerData"]

Format = Literal["csv", "parquet", "libsvm", "images", "npz", "text"]


class NetworkSource(Model):
    """Where the network is: exactly one of a saved name, a file, and the document itself."""

    name: DnsLabel | None = None
    """Of a saved network."""
    version: Annotated[int, Field(ge=1)] | None = None
    """Of a saved network; None: the newest."""
    file: Annotated[str, Field(min_length=1)] | None = None
    """Beside the job's file."""
    document: dict[str, Any] | None = None
    """The whole document of kind Network."""


class TrainerData(Model):
    """How files become inputs of the network."""

    format: Format
    label: str | None = None
    """Column (of .npz: array) that the network's label takes; libsvm, images and text have their own."""
    query: str | None = None
    """Column with the id of the list that a row belongs to; of libsvm `qid`."""
    inputs: dict[
        str,
        Annotated[
            Annotated[str, Tag("<text>")] | Annotated[Many[str], Tag("<list>")],
            discriminate_by_kind("a column, or a list of columns", kinds=("<text>", "<list>")),
        ],
    ] = Field(default_factory=dict)
    """Input of the network -> its columns; without it all that are no label or query."""
    classes: Many[str] = Field(default_factory=list)
    """Names of the classes, in the order of their numbers; of images the folders' names."""
    test: Many[str] = Field(default_factory=list)
    """Files or folders to test on after each epoch, named as those of `data.files`."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """Between the columns of CSV."""


class OptimizerChoice(Model):
    name: Literal["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"] = "AdamW"
    """A class of torch.optim."""
    learning_rate: Annotated[Number, Field(gt=0)] = 0.001
    weight_decay: Annotated[Number, Field(ge=0)] | None = None
    """None: the class's own."""
    momentum: Annotated[Number, Field(ge=0, lt=1)] | None = None
    """Of SGD and RMSprop."""


class Trainer(Model):
    network: NetworkSource
    data: TrainerData
    epochs: Annotated[int, Field(ge=1)] = 10
    batch_size: Annotated[int, Field(ge=1)] = 32
    """Samples that each process takes in a step."""
    optimizer: OptimizerChoice = Field(default_factory=OptimizerChoice)
    update_interval: Annotated[int, Field(ge=1)] = 1
    """Batches whose gradients are added up before an update."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """CPU threads of each process; None: torch's own choice."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the weights and of the order of samples."""
    shuffle: bool = True
    from_params: dict[str, str] = Field(default_factory=dict)
    """Field of this block -> the parameter of `dag.params` that sets it: `optimizer.learningRate: lr`."""
    python: Annotated[Many[str], Field(min_length=1)] = Field(default_factory=lambda: ["python"])
    """Words that start Python."""
