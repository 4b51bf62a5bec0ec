"""The samples that a rank holds: arrays by input, and where each sample came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

from airflow_training.networks.trainer.mistakes import TrainerError
from airflow_training.networks.trainer.settings import NetworkInput, TrainerSettings

__all__ = ["Samples", "blank", "joined", "lists_of", "shaped"]

Array = numpy.ndarray[Any, Any]


@dataclass
class Samples:
    """What was read of some files."""

    arrays: dict[str, Array]
    """Input -> one row a sample."""
    files: Array
    """Of each sample the number of its file."""
    lengths: Array | None = None
    """Of lists: how many places of a sample are documents; the rest repeats them."""
    queries: Array | None = None
    """Of lists: which samples are pieces of one list."""
    names: list[str] = field(default_factory=list)
    """Of lists: the query of each number in `queries`."""

    def __len__(self) -> int:
        return len(self.files)

    def take(self, numbers: Array) -> Samples:
        """Return some of the samples, in that order."""
        return Samples(
            arrays={name: each[numbers] for name, each in self.arrays.items()},
            files=self.files[numbers],
            lengths=None if self.lengths is None else self.lengths[numbers],
            queries=None if self.queries is None else self.queries[numbers],
            names=self.names,
        )


def joined(parts: Sequence[Samples], settings: TrainerSettings) -> Samples:
    """Return samples one after the other; without parts none, of the right shapes."""
    if not parts:
        arrays = {each.name: numpy.zeros((0, *each.shape), each.dtype) for each in settings.inputs}
        empty = numpy.zeros(0, numpy.int64)
        lists = empty if settings.data.query else None
        return Samples(arrays, empty, lists, lists)
    names: list[str] = []
    queries = []
    for part in parts:
        if part.queries is not None:
            queries.append(part.queries + len(names))
            names += part.names
    lengths = [each.lengths for each in parts if each.lengths is not None]
    return Samples(
        arrays={
            name: numpy.concatenate([each.arrays[name] for each in parts])
            for name in parts[0].arrays
        },
        files=numpy.concatenate([each.files for each in parts]),
        lengths=numpy.concatenate(lengths) if lengths else None,
        queries=numpy.concatenate(queries) if queries else None,
        names=names,
    )


def blank(settings: TrainerSettings) -> Samples:
    """Return one sample of zeros: for a rank that has none left while others train."""
    arrays = {each.name: numpy.zeros((1, *each.shape), each.dtype) for each in settings.inputs}
    return Samples(arrays, numpy.zeros(1, numpy.int64))


def shaped(values: Array, wanted: NetworkInput, *, place: str) -> Array:
    """Return rows of numbers in the shape and dtype of an input; raises TrainerError where they have another.

    Bytes for an input of fractions are brightnesses: 0 to 255 become 0 to 1, when a batch is made.
    """
    size = int(numpy.prod(wanted.shape, dtype=numpy.int64))
    rows = len(values)
    if values.size != rows * size:
        each = values.size // max(rows, 1)
        raise TrainerError(
            place,
            f"has {each} numbers in a row, and the input '{wanted.name}' of the network takes"
            f" {size} (shape {list(wanted.shape)})",
            f"change the shape of '{wanted.name}', or name its columns in trainer.data.inputs",
        )
    kept = values.dtype == numpy.uint8 and wanted.dtype == "float32"
    dtype = values.dtype if kept else numpy.dtype(wanted.dtype)
    return values.reshape(rows, *wanted.shape).astype(dtype, copy=False)


def lists_of(
    rows: Mapping[str, Array], queries: Sequence[str], *, settings: TrainerSettings, file: int
) -> Samples:
    """Return lists of documents as samples of the length that the network takes.

    A list that is longer than that becomes several samples, and metrics put it together again. In one that is
    shorter its documents are repeated, so that no document is made up; metrics count each once.

    Args:
        rows: input -> one row a document.
        queries: of each document its list; equal ones stand together.
        settings: with the inputs of the network, whose first size is the length of a list.
        file: number of the file.
    """
    length = settings.features[0].shape[0]
    taken: list[Array] = []
    lengths: list[int] = []
    numbers: list[int] = []
    names: list[str] = []
    start = 0
    while start < len(queries):
        stop = start + 1
        while stop < len(queries) and queries[stop] == queries[start]:
            stop += 1
        for begin in range(start, stop, length):
            size = min(length, stop - begin)
            taken.append(begin + numpy.arange(length) % size)
            lengths.append(size)
            numbers.append(len(names))
        names.append(queries[start])
        start = stop
    places = numpy.stack(taken) if taken else numpy.zeros((0, length), numpy.int64)
    return Samples(
        arrays={name: each[places] for name, each in rows.items()},
        files=numpy.full(len(places), file),
        lengths=numpy.array(lengths, numpy.int64),
        queries=numpy.array(numbers, numpy.int64),
        names=names,
    )
