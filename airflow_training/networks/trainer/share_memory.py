"""What a rank's share takes in memory, told before it is read: a process that is killed for memory tells nothing."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

from airflow_training.networks.trainer.addresses import SampleFile, open_file, read_bytes
from airflow_training.networks.trainer.mistakes import TrainerError
from airflow_training.networks.trainer.settings import TrainerSettings
from airflow_training.networks.trainer.shares import FilePart

if TYPE_CHECKING:
    from airflow_training.networks.trainer.reading import ShareReader

__all__ = ["check_share", "memory_limit", "processes_here", "share_bytes", "size_text"]

_PROBED_BYTES = 1 << 18
"""Of a text file, to see how much its rows take."""
_COPIES = 2
"""What was read of each file, and all of it joined, at the same time."""
_UNLIMITED = 1 << 60
_CGROUPS = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


def check_share(reader: ShareReader, rank: int, world: int, *, limit: int, processes: int) -> None:
    """Raise TrainerError where a rank's share does not fit beside those of the other processes of its instance.

    Args:
        reader: of the files.
        rank: whose share.
        world: number of ranks.
        limit: bytes that the instance may have.
        processes: ranks in the instance.
    """
    parts = reader.parts(world)[rank]
    try:
        held = share_bytes(reader, parts)
    except (FileNotFoundError, PermissionError, IsADirectoryError):  # told by who reads it
        return
    needed = _COPIES * held * processes
    if needed <= limit:
        return
    read = sum(part.stop - part.start for part in parts)
    several = f", times {processes} processes" if processes > 1 else ""
    ranks = -(-world * needed // limit)
    raise TrainerError(
        f"the share of rank {rank}",
        f"takes about {size_text(_COPIES * held)} of memory while it is read ({size_text(read)} of"
        f" {len(parts):,} files){several}, and its instance has {size_text(limit)}",
        f"train on {ranks} instances or more, give each {size_text(needed)}, or name fewer files and columns",
    )


def share_bytes(reader: ShareReader, parts: Sequence[FilePart]) -> int:
    """Estimate the bytes that a share holds once it is read; raises TrainerError for files that are no data.

    By the number of images, the headers of `.npz` and Parquet files, and the first rows of the largest text file.
    """
    if not parts:
        return 0
    settings, kind = reader.settings, reader.settings.data.format
    read = sum(part.stop - part.start for part in parts)
    if kind == "images":
        return len(parts) * _row_bytes(settings, image=True)
    if kind == "text":  # each byte once as an input, once as a label
        return 2 * numpy.dtype(numpy.int64).itemsize * read
    if kind == "npz":
        return sum(_npz_bytes(reader.files[part.file], part) for part in parts)
    largest = max(parts, key=lambda part: part.stop - part.start)
    file = reader.files[largest.file]
    if kind == "parquet":
        return _parquet_rows(file) * read // file.size * _row_bytes(settings)
    probed = FilePart(largest.file, 0, min(file.size, _PROBED_BYTES))
    found = reader.read_part(probed)
    return sum(each.nbytes for each in found.arrays.values()) * read // probed.stop


def memory_limit(
    *, proc: Path = _PROC, cgroups: Path = _CGROUPS, data_limit: int | None = None
) -> int:
    """Return how many bytes this process and its like may have: of its control groups, its `RLIMIT_DATA`, the machine.

    Args:
        proc: where the kernel tells of processes.
        cgroups: where control groups are.
        data_limit: `RLIMIT_DATA`; None: that of this process.
    """
    found = [_UNLIMITED, _data_limit() if data_limit is None else data_limit]
    for line in _lines(proc / "meminfo"):
        name, _, value = line.partition(":")
        if name == "MemTotal":
            found.append(int(value.split()[0]) * 1024)
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        below = path.strip().strip("/").split("/")
        if not controllers:
            root, name = cgroups, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = cgroups / "memory", "memory.limit_in_bytes"
        else:
            continue
        for depth in range(len(below) + 1):  # a container sees its own group as the root
            found += [
                int(text) for text in _lines(root.joinpath(*below[:depth], name)) if text.isdigit()
            ]
    return min(found)


def size_text(size: float) -> str:
    """Return bytes for people: `1.5 GiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def processes_here(environment: Mapping[str, str] = os.environ) -> int:
    """Return how many ranks there are in this instance."""
    return max(int(environment.get("LOCAL_WORLD_SIZE", "1")), 1)


def _row_bytes(settings: TrainerSettings, *, image: bool = False) -> int:
    """Return what a row of a table, or an image, takes: images stay bytes until a batch is made."""
    total = 0
    for each in settings.inputs:
        shape = each.shape[1:] if settings.data.query else each.shape
        item = 1 if image and not each.is_label else numpy.dtype(each.dtype).itemsize
        total += int(numpy.prod(shape, dtype=numpy.int64)) * item
    return total


def _npz_bytes(file: SampleFile, part: FilePart) -> int:
    """Return what the arrays of a file take: all of it is unpacked, whatever part of it is wanted."""
    try:
        with open_file(file.address) as opened:
            seekable = opened if opened.seekable() else io.BytesIO(read_bytes(file.address))
            with zipfile.ZipFile(seekable) as archive:
                whole = sum(each.file_size for each in archive.infolist())
    except (zipfile.BadZipFile, OSError):  # told by who reads it
        return 0
    return whole * (part.stop - part.start) // file.size


def _parquet_rows(file: SampleFile) -> int:
    from airflow_training.networks.trainer.arrays import parquet_file

    with open_file(file.address) as opened:
        return int(parquet_file(file, opened).metadata.num_rows)


def _data_limit() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return _UNLIMITED
    soft = resource.getrlimit(resource.RLIMIT_DATA)[0]
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def _lines(path: Path) -> Iterator[str]:
    try:
        yield from path.read_text().splitlines()
    except OSError:  # another kernel, or a container that hides it
        return
