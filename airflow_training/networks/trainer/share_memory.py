"""What a rank's share takes in memory, told before it is read: a process that is killed for memory tells nothing.

All estimates err downwards: a training that fits is never refused, and one that hardly does not may be killed all the same.
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from airflow_training.networks.trainer.addresses import SampleFile, open_file, read_bytes
from airflow_training.networks.trainer.mistakes import TrainerError
from airflow_training.networks.trainer.settings import NetworkInput, TrainerSettings
from airflow_training.networks.trainer.shares import FilePart

if TYPE_CHECKING:
    from airflow_training.networks.trainer.reading import ShareReader

__all__ = [
    "check_share",
    "data_limit",
    "held_bytes",
    "may_grow",
    "memory_limit",
    "ranks_here",
    "share_bytes",
    "size_text",
]

_PROBES = 8
"""Places of a share that are looked at: files, and places in them where there are fewer files."""
_BLOCKS = (1 << 18, 1 << 22)
"""Bytes of a text file that are read at a place; the second where the first holds no whole row."""
_COPIES = 2
"""What was read of each file, and all of it joined, at the same time."""
_UNLIMITED = 1 << 60
_CGROUPS = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


def check_share(
    reader: ShareReader,
    rank: int,
    world: int,
    *,
    share: int | None = None,
    held: Mapping[int, int],
    limit: int,
    own_limit: int = _UNLIMITED,
) -> None:
    """Raise TrainerError where a rank's share does not fit beside those of the other processes of its instance.

    Args:
        reader: of the files.
        rank: whose share.
        world: number of shares.
        share: its number, where ranks have some together; None: that of the rank.
        held: of each rank of the instance, itself too, the bytes of its share, by `held_bytes`.
        limit: bytes that the instance may have, by `memory_limit`.
        own_limit: bytes that each process may have, by `data_limit`.
    """
    own, processes = _COPIES * held[rank], len(held)
    # all are kept, and the last one that is read is there twice: the others need not be read at that moment
    needed = sum(held.values()) + min(held.values())
    if needed <= limit and own <= own_limit:
        return
    parts = reader.parts(world)[rank if share is None else share]
    read = sum(part.stop - part.start for part in parts)
    taken = (
        f"{size_text(own)} of memory while it is read ({size_text(read)} of {len(parts):,} files)"
    )
    if needed > limit:
        several = f", {size_text(needed)} with the other processes" if processes > 1 else ""
        owner = f"its instance has {size_text(limit)}"
    else:
        several, owner = "", f"its process may have {size_text(own_limit)} (RLIMIT_DATA)"
        needed, limit = own, own_limit
    instances = -(-world * needed // (max(limit, 1) * processes))
    raise TrainerError(
        f"the share of rank {rank}",
        f"takes about {taken}{several}, and {owner}",
        f"train on {instances} instances or more, give each {size_text(needed)}, or name fewer files and columns",
    )


def held_bytes(reader: ShareReader, rank: int, world: int) -> int:
    """Estimate what a rank's share holds once it is read; 0 for files that cannot be, as who reads them says why.

    Raises OSError for a storage that does not answer.
    """
    try:
        return share_bytes(reader, reader.parts(world)[rank])
    except (TrainerError, FileNotFoundError, PermissionError, IsADirectoryError):
        return 0


def share_bytes(reader: ShareReader, parts: Sequence[FilePart]) -> int:
    """Estimate the bytes that a share holds once it is read; raises TrainerError for files that are no data.

    By the number of images, the headers of `.npz` and Parquet files, and the lengths of rows at some places of text files. Of
    many files some are looked at, and the others are taken to hold as little as the one of these that holds least.
    """
    parts = [part for part in parts if part.start < part.stop]
    if not parts:
        return 0
    settings, kind = reader.settings, reader.settings.data.format
    read = sum(part.stop - part.start for part in parts)
    if kind == "images":
        return len(parts) * _row_bytes(settings, image=True)
    if kind == "text":  # each byte once as an input, once as a label
        return 2 * numpy.dtype(numpy.int64).itemsize * read
    seen = [parts[len(parts) * number // _PROBES] for number in range(_PROBES)]
    seen = list(dict.fromkeys(seen))
    held, least, known = 0.0, float("inf"), 0
    for part in seen:
        file, size = reader.files[part.file], part.stop - part.start
        if kind == "npz":
            each = _npz_bytes(file, settings) / file.size
        elif kind == "parquet":
            each = _parquet_rows(file) / file.size * _row_bytes(settings)
        else:
            each = _rows_per_byte(file, part, _PROBES // len(seen)) * _row_bytes(settings)
        held, known, least = held + each * size, known + size, min(least, each)
    return int(held + least * (read - known))


def memory_limit(*, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Return how many bytes the processes of this instance may have, by its control groups and the machine, with swap.

    Args:
        proc: where the kernel tells of processes.
        cgroups: where control groups are.
    """
    found = [_UNLIMITED]
    told = dict(line.split(":", 1) for line in _lines(proc / "meminfo") if ":" in line)
    swap = int(told.get("SwapTotal", "0").split()[0]) * 1024
    if "MemTotal" in told:
        found.append(int(told["MemTotal"].split()[0]) * 1024)
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
    return min(found) + swap


def data_limit() -> int:
    """Return how many bytes each process may have: its `RLIMIT_DATA`."""
    try:
        import resource
    except ImportError:  # Windows
        return _UNLIMITED
    soft = resource.getrlimit(resource.RLIMIT_DATA)[0]
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def may_grow(limit: int, environment: Mapping[str, str] = os.environ) -> int:
    """Return a limit, or what another attempt may get where the job gives more memory to one that ran out of it."""
    return max(limit, int(environment.get("TRAINER_MEMORY_UP_TO") or 0))


def size_text(size: float) -> str:
    """Return bytes for people: `1.5 GiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def ranks_here(rank: int, world: int, environment: Mapping[str, str] = os.environ) -> range:
    """Return the ranks of this instance: torchrun numbers those of one without gaps."""
    processes = max(int(environment.get("LOCAL_WORLD_SIZE") or 1), 1)
    first = rank - int(environment.get("LOCAL_RANK") or 0) if processes > 1 else rank
    return range(max(first, 0), min(first + processes, world))


def _row_bytes(settings: TrainerSettings, *, image: bool = False) -> int:
    """Return what a row of a table, or an image, takes: images stay bytes until a batch is made."""
    total = 0
    for each in settings.inputs:
        shape = each.shape[1:] if settings.data.query else each.shape
        item = 1 if image and not each.is_label else numpy.dtype(each.dtype).itemsize
        total += int(numpy.prod(shape, dtype=numpy.int64)) * item
    return total


def _rows_per_byte(file: SampleFile, part: FilePart, places: int) -> float:
    """Return how many rows a byte of a text file has, where they are longest; 0: they are too long to tell."""
    least = float("inf")
    with open_file(file.address) as opened:
        for number in range(places):
            place = part.start + (part.stop - part.start) * number // places
            whole = b""
            for size in _BLOCKS:
                opened.seek(place)
                whole = opened.read(min(size, part.stop - place)).partition(b"\n")[2]
                whole = whole[: whole.rfind(b"\n") + 1]
                if whole:
                    break
            rows = sum(1 for line in whole.split(b"\n") if line.strip())
            least = min(least, rows / len(whole) if whole else 0.0)
    return least


def _npz_bytes(file: SampleFile, settings: TrainerSettings) -> int:
    """Return what the inputs in a file take, by the headers of their arrays."""
    from airflow_training.networks.trainer.arrays import array_name

    try:
        with open_file(file.address) as opened:
            seekable = opened if opened.seekable() else io.BytesIO(read_bytes(file.address))
            with zipfile.ZipFile(seekable) as archive:
                return sum(
                    _array_bytes(archive, array_name(each, settings), each)
                    for each in settings.inputs
                )
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError):  # told by who reads it
        return 0


def _array_bytes(archive: zipfile.ZipFile, name: str, wanted: NetworkInput) -> int:
    read: Any = numpy.lib.format  # without types
    with archive.open(f"{name}.npy") as member:
        version = read.read_magic(member)
        header = read.read_array_header_1_0 if version == (1, 0) else read.read_array_header_2_0
        shape, _, dtype = header(member)
    # bytes for an input of fractions stay bytes until a batch is made
    item = (
        1
        if dtype == numpy.uint8 and wanted.dtype == "float32"
        else numpy.dtype(wanted.dtype).itemsize
    )
    return int(numpy.prod(shape, dtype=numpy.int64)) * item


def _parquet_rows(file: SampleFile) -> int:
    from airflow_training.networks.trainer.arrays import parquet_file

    with open_file(file.address) as opened:
        return int(parquet_file(file, opened).metadata.num_rows)


def _lines(path: Path) -> Iterator[str]:
    try:
        yield from path.read_text().splitlines()
    except OSError:  # another kernel, or a container that hides it
        return
