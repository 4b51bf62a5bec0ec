"""Files on this machine and in object storage: their names, sizes and bytes."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from airflow_training.networks.trainer.mistakes import TrainerError

__all__ = ["SampleFile", "find_files", "join", "open_file", "read_bytes"]

_AT_ONCE = 16
"""Questions to a storage."""


@dataclass(frozen=True)
class SampleFile:
    """A file of the data."""

    name: str
    """As the job names it."""
    address: str
    size: int
    """Bytes."""


def join(root: str, name: str) -> str:
    """Return the address of a name below a root; one that is an address already stays."""
    if "://" in name or name.startswith("/") or not root:
        return name
    return posixpath.join(root, name)


def open_file(address: str) -> BinaryIO:
    """Open a file for reading; raises OSError."""
    if local := _local(address):
        return Path(local).open("rb")
    opened: Any = _storage(address).open(address, "rb")
    return opened  # type: ignore[no-any-return]  # fsspec has no types


def read_bytes(address: str) -> bytes:
    """Return a whole file; raises OSError."""
    with open_file(address) as file:
        return file.read()


def find_files(root: str, names: Sequence[str], suffixes: Sequence[str]) -> list[SampleFile]:
    """Return the files that names stand for, in their order; without names all below the root.

    A folder stands for the files in it with one of the suffixes, however deep, in the order of their names.

    Raises:
        TrainerError: one is not there, or empty.
    """
    wanted = list(names) or [""]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = [
            each
            for files in pool.map(lambda name: _files_of(root, name, suffixes), wanted)
            for each in files
        ]
    for each in found:
        if each.size == 0:
            raise TrainerError(each.name, "is empty", "take it out of data.files, or fill it")
    if not found:
        endings = ", ".join(suffixes)
        fix = f"name the files in data.files, or let their names end with {endings}"
        raise TrainerError(root or ".", "holds no file of the format", fix)
    return found


def _files_of(root: str, name: str, suffixes: Sequence[str]) -> list[SampleFile]:
    address = join(root, name) if name else root or "."
    try:
        listed = _local_files(address) if _local(address) else _stored_files(address)
    except OSError as error:
        what = (
            "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        )
        fix = f"looked for it at {address}: see data.uri and data.files"
        raise TrainerError(name or address, what, fix) from None
    if len(listed) == 1 and listed[0][0] == "":
        return [SampleFile(name or address, address, listed[0][1])]
    return [
        SampleFile(posixpath.join(name, below) if name else below, join(address, below), size)
        for below, size in sorted(listed)
        if below.lower().endswith(tuple(suffixes))
    ]


def _local(address: str) -> str:
    """Return the path of a file on this machine; "" for other addresses."""
    if address.startswith("file://"):
        return address.removeprefix("file://")
    return "" if "://" in address else address


def _local_files(address: str) -> list[tuple[str, int]]:
    top = _local(address)
    if not Path(top).is_dir():
        return [("", Path(top).stat().st_size)]
    return [*_walk(top, "")]


def _walk(folder: str, below: str) -> Iterable[tuple[str, int]]:
    with os.scandir(folder) as entries:
        for each in entries:
            if each.name.startswith("."):
                continue
            name = f"{below}{each.name}"
            if each.is_dir():
                yield from _walk(each.path, f"{name}/")
            elif each.is_file():
                yield name, each.stat().st_size


def _stored_files(address: str) -> list[tuple[str, int]]:
    storage = _storage(address)
    if storage.isfile(address):
        return [("", int(storage.size(address)))]
    top = storage._strip_protocol(address).rstrip("/") + "/"
    found = storage.find(address, detail=True)
    if not found:
        raise FileNotFoundError(address)
    return [(path.removeprefix(top), int(entry["size"])) for path, entry in found.items()]


def _storage(address: str) -> Any:
    try:
        import fsspec
    except ImportError:
        fix = "add fsspec and the driver of this storage to the environment"
        raise TrainerError(address, "fsspec is needed to read it", fix) from None
    core: Any = fsspec.core  # without types
    try:
        return core.url_to_fs(address)[0]
    except (ImportError, ValueError) as error:
        raise TrainerError(address, str(error), "add its driver to the environment") from None
