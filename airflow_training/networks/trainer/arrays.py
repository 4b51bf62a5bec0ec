"""Parquet, .npz, image folders and plain text: files whose rows are counted, not searched for."""

from __future__ import annotations

import io
import posixpath
import zipfile
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy

from airflow_training.networks.trainer.addresses import SampleFile, open_file, read_bytes
from airflow_training.networks.trainer.mistakes import TrainerError
from airflow_training.networks.trainer.samples import Samples
from airflow_training.networks.trainer.settings import NetworkInput, TrainerSettings
from airflow_training.networks.trainer.shares import FilePart
from airflow_training.networks.trainer.tables import (
    columns_of,
    misfit_of,
    rows_to_samples,
    to_fractions,
    to_numbers,
)

__all__ = [
    "array_name",
    "class_names",
    "parquet_columns",
    "parquet_file",
    "read_images",
    "read_npz",
    "read_parquet",
    "read_text",
]

Array = numpy.ndarray[Any, Any]


def read_npz(file: SampleFile, part: FilePart, settings: TrainerSettings) -> Samples:
    """Return the rows of the arrays in a .npz file that lie in a part of it; raises TrainerError, OSError."""
    try:
        archive = numpy.load(io.BytesIO(read_bytes(file.address)), allow_pickle=False)
        found = {name: archive[name] for name in archive.files}
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        fix = "write it with numpy.savez(file, name=array), of numbers"
        raise TrainerError(file.name, f"is no .npz file of numbers: {error}", fix) from None
    wanted = {each.name: array_name(each, settings) for each in settings.inputs}
    for name in (*wanted.values(), *filter(None, [settings.data.query])):
        if name not in found:
            fix = f"its arrays are {', '.join(found)}: name the right one in trainer.data.inputs"
            raise TrainerError(file.name, f"has no array '{name}'", fix)
    for name in wanted.values():
        if not found[name].ndim:
            raise TrainerError(
                f"{file.name}, array '{name}'", "is one number", "each row is a sample"
            )
    counts = {len(found[name]) for name in wanted.values()}
    if len(counts) > 1:
        told = ", ".join(f"{name}: {len(found[name])}" for name in wanted.values())
        raise TrainerError(
            file.name, f"its arrays have different lengths: {told}", "each row is a sample"
        )
    queries = [str(each) for each in found[settings.data.query]] if settings.data.query else []
    low, high = _rows(len(found[next(iter(wanted.values()))]), file, part, queries)
    arrays = {
        each.name: _fitting(found[wanted[each.name]][low:high], each, wanted[each.name], low, file)
        for each in settings.inputs
    }
    return rows_to_samples(
        arrays, queries[low:high], settings=settings, file=file, number=part.file
    )


def read_parquet(file: SampleFile, part: FilePart, settings: TrainerSettings) -> Samples:
    """Return the rows of a Parquet file that lie in a part of it; only the row groups they are in are read."""
    with open_file(file.address) as opened:
        table = parquet_file(file, opened)
        names = list(table.schema_arrow.names)
        columns = columns_of(names, settings, place=file.name)
        query = settings.data.query
        queries = [str(each) for each in table.read([query]).column(0).to_pylist()] if query else []
        low, high = _rows(table.metadata.num_rows, file, part, queries)
        groups, first = _row_groups(table.metadata, low, high)
        wanted = sorted({place for places in columns.values() for place in places})
        read = table.read_row_groups(groups, [names[place] for place in wanted]).slice(
            low - first, high - low
        )
        found = {place: read.column(names[place]).to_pylist() for place in wanted}
    arrays = {}
    for each in settings.inputs:
        values = [
            _column(found[place], names[place], each, low, file, settings)
            for place in columns[each.name]
        ]
        arrays[each.name] = numpy.stack(values, 1) if values else numpy.zeros((high - low, 0))
    return rows_to_samples(
        arrays, queries[low:high], settings=settings, file=file, number=part.file
    )


def parquet_columns(file: SampleFile) -> list[str]:
    """Return the names of a Parquet file's columns; raises TrainerError, OSError."""
    with open_file(file.address) as opened:
        return [*parquet_file(file, opened).schema_arrow.names]


def parquet_file(file: SampleFile, opened: Any) -> Any:
    """Open a Parquet file, its rows unread; raises TrainerError."""
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        fix = "add pyarrow to the environment"
        raise TrainerError(file.name, "pyarrow is needed to read Parquet", fix) from None
    try:
        return parquet.ParquetFile(opened)
    except ArrowInvalid as error:
        raise TrainerError(file.name, f"is no Parquet file: {error}") from None


def read_text(file: SampleFile, part: FilePart, settings: TrainerSettings) -> Samples:
    """Return the pieces of a text that lie in a part of it: its bytes, and for each the byte that follows."""
    feature, label = settings.features[0], settings.labels[0]
    length = feature.shape[0]
    count = (file.size - 1) // length
    low, high = count * part.start // file.size, count * part.stop // file.size
    with open_file(file.address) as opened:
        opened.seek(low * length)
        raw = numpy.frombuffer(opened.read((high - low) * length + 1), numpy.uint8)
    before = raw[: (high - low) * length].reshape(high - low, length).astype(numpy.int64)
    after = raw[1 : (high - low) * length + 1].reshape(high - low, length).astype(numpy.int64)
    return Samples({feature.name: before, label.name: after}, numpy.full(high - low, part.file))


def class_names(files: Sequence[SampleFile], settings: TrainerSettings) -> tuple[str, ...]:
    """Return the classes of image folders: those of the settings, else the folders' names in their order.

    Raises TrainerError where they are not as many as the network needs.
    """
    if settings.data.classes:
        return settings.data.classes
    found = tuple(sorted({posixpath.basename(posixpath.dirname(each.address)) for each in files}))
    if len(found) == 1:
        fix = "put the images of each class into a folder of its name"
        raise TrainerError(files[0].name, f"and all others are of one class, '{found[0]}'", fix)
    for each in settings.labels:
        if each.below is not None and len(found) > each.below:
            message = f"lie in {len(found)} folders ({', '.join(found[:20])}), and the network has {each.below} classes"
            fix = f"give the layer before the loss {len(found)} outputs"
            raise TrainerError("the images", message, fix)
    return found


def read_images(
    files: Sequence[SampleFile],
    parts: Sequence[FilePart],
    settings: TrainerSettings,
    *,
    threads: int,
) -> Samples:
    """Return images as bytes, and the place of their folder's name among the classes."""
    feature = settings.features[0]
    known = {name: number for number, name in enumerate(settings.data.classes)}

    def class_of(file: SampleFile) -> int:
        name = posixpath.basename(posixpath.dirname(file.address))
        if name not in known:
            fix = f"trainer.data.classes has {', '.join(settings.data.classes[:20])}"
            raise TrainerError(file.name, f"lies in the folder '{name}', which is no class", fix)
        return known[name]

    with ThreadPoolExecutor(max(1, threads)) as pool:
        pixels = [*pool.map(lambda part: _image(files[part.file], feature.shape), parts)]
    arrays = {feature.name: numpy.stack(pixels)}
    for each in settings.labels:
        arrays[each.name] = numpy.array([class_of(files[part.file]) for part in parts], each.dtype)
    return Samples(arrays, numpy.array([part.file for part in parts]))


def _image(file: SampleFile, shape: Sequence[int]) -> Array:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        fix = "add pillow to the environment"
        raise TrainerError(file.name, "Pillow is needed to read images", fix) from None
    channels, height, width = shape
    try:
        with Image.open(io.BytesIO(read_bytes(file.address))) as opened:
            picture: Image.Image = opened
            if opened.mode.startswith("I"):  # 16 bits, which `convert` would cut off above 255
                picture = Image.fromarray((numpy.asarray(opened) >> 8).astype(numpy.uint8))
            image = picture.convert("L" if channels == 1 else "RGB")
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        raise TrainerError(
            file.name, f"is no image: {error}", "take it out of the folder"
        ) from None
    if image.size != (width, height):
        image = image.resize((width, height))
    pixels = numpy.asarray(image, numpy.uint8)
    return pixels[None] if channels == 1 else numpy.moveaxis(pixels, 2, 0)


def _rows(count: int, file: SampleFile, part: FilePart, queries: Sequence[str]) -> tuple[int, int]:
    """Return the rows that are in a part of a file's bytes, with whole lists."""

    def place(byte: int) -> int:
        row = count * byte // file.size
        while queries and 0 < row < count and queries[row] == queries[row - 1]:
            row += 1
        return row

    return place(part.start), place(part.stop)


def _row_groups(metadata: Any, low: int, high: int) -> tuple[list[int], int]:
    """Return the row groups that hold some rows, and the first row of the first group."""
    groups: list[int] = []
    first, start = 0, 0
    for number in range(metadata.num_row_groups):
        stop = start + metadata.row_group(number).num_rows
        if start < high and low < stop:
            first = first if groups else start
            groups.append(number)
        start = stop
    return groups, first if groups else low


def array_name(wanted: NetworkInput, settings: TrainerSettings) -> str:
    """Return the name of the array of a .npz file that an input takes."""
    if wanted.columns:
        return wanted.columns[0]
    return settings.data.label if wanted.is_label and settings.data.label else wanted.name


def _fitting(values: Array, wanted: NetworkInput, name: str, low: int, file: SampleFile) -> Array:
    if values.dtype.kind not in "biuf":
        fix = "save an array of numbers"
        raise TrainerError(f"{file.name}, array '{name}'", f"holds {values.dtype}", fix)
    seen = (
        to_fractions(values) if wanted.dtype == "float32" and values.dtype.kind == "f" else values
    )
    wrong = wanted.misfit(seen)
    if wrong >= 0:
        row = low + wrong // (values.size // len(values))
        number = float(seen.ravel()[wrong])
        message, fix = wanted.misfit_reason(number)
        raise TrainerError(
            f"{file.name}, array '{name}', row {row}", f"'{number:g}' {message}", fix
        )
    return seen


def _column(
    values: Sequence[Any],
    name: str,
    wanted: NetworkInput,
    low: int,
    file: SampleFile,
    settings: TrainerSettings,
) -> Array:
    texts = [
        "" if each is None else str(int(each) if isinstance(each, bool) else each)
        for each in values
    ]
    numbers, wrong = to_numbers(texts, wanted, settings.data.classes)
    if numbers is None:
        message, fix = misfit_of(texts[wrong], wanted, settings.data.classes)
        place = f"{file.name}, row {low + wrong}, column '{name}'"
        raise TrainerError(place, f"'{texts[wrong][:40]}' {message}", fix)
    return numbers
