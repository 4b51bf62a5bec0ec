"""From a list of files to the samples that one rank holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy

from airflow_training.networks.trainer import arrays, tables
from airflow_training.networks.trainer.addresses import SampleFile
from airflow_training.networks.trainer.mistakes import TrainerError
from airflow_training.networks.trainer.samples import Samples, joined
from airflow_training.networks.trainer.settings import NetworkInput, TrainerSettings
from airflow_training.networks.trainer.shares import FilePart, cut

__all__ = ["SUFFIXES", "ShareReader", "digest_of", "recipe_of"]

SUFFIXES: Mapping[str, Sequence[str]] = {
    "csv": (".csv", ".tsv"),
    "parquet": (".parquet",),
    "libsvm": (".libsvm", ".svm", ".txt"),
    "images": (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp"),
    "npz": (".npz",),
    "text": (".txt", ".md", ".py"),
}
"""Of a format: how the names of files end that a folder stands for."""

_READERS = {
    "csv": tables.read_csv,
    "parquet": arrays.read_parquet,
    "libsvm": tables.read_libsvm,
    "npz": arrays.read_npz,
    "text": arrays.read_text,
}

_COLUMNS: Mapping[str, Callable[[SampleFile, TrainerSettings], list[str]]] = {
    "csv": tables.csv_columns,
    "parquet": lambda file, _: arrays.parquet_columns(file),
}


def digest_of(files: Sequence[SampleFile]) -> str:
    """Return the digest of a list of files, by their names and sizes: `sha256:...`."""
    told = json.dumps([[each.name, each.size] for each in files])
    return f"sha256:{hashlib.sha256(told.encode()).hexdigest()}"


def recipe_of(settings: TrainerSettings) -> Mapping[str, str]:
    """Return digests of what a training may not change when it goes on: its name in the job -> `sha256:...`."""
    data = settings.data
    columns = [[each.name, *each.columns] for each in settings.inputs]
    read = [data.format, data.label, data.query, data.classes, data.delimiter, columns]
    told = json.dumps(read)
    return {
        "network": settings.network_digest,
        "trainer.data": f"sha256:{hashlib.sha256(told.encode()).hexdigest()}",
        "optimizer": settings.optimizer,
    }


class ShareReader:
    """Reads the shares of a list of files: each is the same for whoever asks."""

    def __init__(self, files: Sequence[SampleFile], settings: TrainerSettings) -> None:
        """Take the files; of image folders the classes are found in their names."""
        self.files = files
        self.settings = settings
        if settings.data.format == "images":
            classes = arrays.class_names(files, settings)
            self.settings = replace(settings, data=replace(settings.data, classes=classes))
        elif settings.data.format in _COLUMNS and any(
            not each.columns for each in settings.features
        ):
            self.settings = replace(settings, inputs=self._named_columns(files[0]))

    def _named_columns(self, first: SampleFile) -> tuple[NetworkInput, ...]:
        """Return the inputs with the names of what the first file has left: other files may have another order."""
        settings = self.settings
        with _told([first.name]):
            names = _COLUMNS[settings.data.format](first, settings)
        columns = tables.columns_of(names, settings, place=first.name)
        return tuple(
            each
            if each.columns or each.is_label
            else replace(
                each, columns=tuple(names[at] for at in columns[each.name]), takes_rest=True
            )
            for each in settings.inputs
        )

    def parts(self, world: int) -> list[list[FilePart]]:
        """Return the share of each of `world` ranks."""
        splittable = self.settings.data.format != "images"
        return cut([each.size for each in self.files], world, splittable=splittable)

    def read(self, rank: int, world: int) -> Samples:
        """Return the samples of a rank's share; raises TrainerError with file, row and column."""
        parts = self.parts(world)[rank]
        settings = self.settings
        if not parts:
            return joined([], settings)
        with _told([self.files[part.file].name for part in parts[:3]]):
            if settings.data.format == "images":
                return arrays.read_images(
                    self.files, parts, settings, threads=settings.threads or 4
                )
            return joined([self.read_part(part) for part in parts], settings)

    def read_part(self, part: FilePart) -> Samples:
        """Return the samples in a part of one file, but of images; raises TrainerError and OSError."""
        return _READERS[self.settings.data.format](self.files[part.file], part, self.settings)

    def read_rows(self, wanted: numpy.ndarray[Any, Any], world: int) -> Samples:
        """Return samples of the shares of `world` ranks by `(share, sample)`, in that order."""
        shares = sorted({int(share) for share, _ in wanted})
        starts: dict[int, int] = {}
        held: list[Samples] = []
        for share in shares:
            starts[share] = sum(len(each) for each in held)
            held.append(self.read(share, world))
        numbers = numpy.array(
            [starts[int(share)] + sample for share, sample in wanted], numpy.int64
        )
        return joined(held, self.settings).take(numbers)


@contextmanager
def _told(names: Sequence[str]) -> Iterator[None]:
    """Tell of files that cannot be read. A storage that does not answer is no mistake: another start may reach it."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise TrainerError(", ".join(names), f"cannot be read: {error}", "see data.uri") from None
