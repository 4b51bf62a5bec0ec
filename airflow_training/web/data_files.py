"""Which files are at an address on this machine, and how large they are: what a form offers to train on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel

__all__ = ["DataFileAnswer", "DataFilesAnswer", "list_data_files"]

_MOST_FILES = 500
_MOST_LOOKED_AT = 20_000
"""Of a tree: a wrong address, as `/`, must not keep the server busy."""


class DataFileAnswer(BaseModel):
    name: str
    """Relative to the address, as `spec.data.files` has it."""
    bytes: int


class DataFilesAnswer(BaseModel):
    files: list[DataFileAnswer]
    more: bool
    """There are more than are told."""
    why: str
    """Why none are told; empty: they are."""


def list_data_files(uri: str, *, folder: Path | None) -> DataFilesAnswer:
    """List files below an address, by name; hidden ones are left out. `folder`: where relative ones start; None: nowhere."""
    path, why = _path_of(uri.strip(), folder)
    if path is None:
        return DataFilesAnswer(files=[], more=False, why=why)
    if path.is_file():
        return DataFilesAnswer(
            files=[DataFileAnswer(name=path.name, bytes=path.stat().st_size)], more=False, why=""
        )
    found = sorted(islice(_files(path), _MOST_LOOKED_AT), key=lambda each: each.name)
    why = "" if found else f"no file is in {uri}"
    return DataFilesAnswer(files=found[:_MOST_FILES], more=len(found) > _MOST_FILES, why=why)


def _path_of(uri: str, folder: Path | None) -> tuple[Path | None, str]:
    """Return the file or folder, or None and why there is none."""
    scheme = urlsplit(uri).scheme
    if not uri or "{{" in uri or "\0" in uri:
        return None, "the address is not known before the run starts" if uri else "no address"
    if len(scheme) > 1 and scheme != "file":  # one letter is a drive
        return None, f"files of {scheme}:// are not listed here; write their names"
    path = Path(unquote(urlsplit(uri).path) if scheme == "file" else uri)
    if not path.is_absolute() and folder is None:
        return None, f"{uri} starts from no folder that is known here; write the whole path, from /"
    try:
        path = (folder or Path()) / path
        path = path.resolve()
        there = path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        return None, f"{uri} cannot be read: {error}"
    if there:
        return path, ""
    return None, f"there is no {uri}" + (
        f" in {folder}" if folder and not uri.startswith("/") else " on this server's machine"
    )


def _files(path: Path) -> Iterator[DataFileAnswer]:
    for root, folders, names in os.walk(path, followlinks=False):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for name in sorted(names):
            file = Path(root, name)
            if name.startswith("."):
                continue
            try:
                size = file.stat().st_size
            except OSError:  # gone in between, or a link that leads nowhere
                continue
            yield DataFileAnswer(name=file.relative_to(path).as_posix(), bytes=size)
