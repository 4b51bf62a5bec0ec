"""Which files are at an address on this machine, and how large they are: what a form offers to train on."""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel

__all__ = ["DataFileAnswer", "DataFilesAnswer", "list_data_files"]

_MOST_FILES = 500
_MOST_LOOKED_AT = 20_000
"""Names of a tree, of folders and hidden files too: a wrong address, as `/`, must not keep the server busy."""
_LONGEST_LOOK_SECONDS = 10.0
"""For a slow disk; less than a proxy waits for an answer."""


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
    look = _Look(path)
    try:
        status = path.stat()
        if stat.S_ISREG(status.st_mode):
            alone = DataFileAnswer(name=path.name, bytes=status.st_size)
            return DataFilesAnswer(files=[alone], more=False, why="")
        look.into_tree()
    except (OSError, ValueError) as error:  # ValueError: its name is no text
        return DataFilesAnswer(files=[], more=False, why=f"{uri} cannot be read: {_words(error)}")
    look.found.sort(key=lambda each: each.name)
    why = "" if look.found else f"no file is in {uri}"
    if why and look.cut:
        why = f"no file is among the first {look.looked_at} names in {uri}: give a folder further down"
    return DataFilesAnswer(
        files=look.found[:_MOST_FILES], more=look.cut or len(look.found) > _MOST_FILES, why=why
    )


def _path_of(uri: str, folder: Path | None) -> tuple[Path | None, str]:
    """Return the file or folder, or None and why there is none."""
    if not uri or "{{" in uri or "\0" in uri:
        return None, "the address is not known before the run starts" if uri else "no address"
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        return None, f"{uri} is no address: {error}"
    scheme = parts.scheme
    if len(scheme) > 1 and scheme != "file":  # one letter is a drive
        return None, f"files of {scheme}:// are not listed here; write their names"
    path = Path(unquote(parts.path) if scheme == "file" else uri)
    if not path.is_absolute() and folder is None:
        return None, f"{uri} starts from no folder that is known here; write the whole path, from /"
    try:
        path = (folder or Path()) / path
        path = path.resolve()
        there = path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        return None, f"{uri} cannot be read: {_words(error)}"
    if there:
        return path, ""
    return None, f"there is no {uri}" + (
        f" in {folder}" if folder and not uri.startswith("/") else " on this server's machine"
    )


def _words(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


@dataclass(slots=True)
class _Look:
    """Files of a tree as far as one looks: folders above before those below, links to folders not followed."""

    top: Path
    found: list[DataFileAnswer] = field(default_factory=list)
    looked_at: int = 0
    cut: bool = False

    def into_tree(self) -> None:
        """Fill `found`; raises OSError where the folder itself cannot be read."""
        until = time.monotonic() + _LONGEST_LOOK_SECONDS
        folders = deque([""])
        while folders:
            inside = folders.popleft()
            try:
                entries = os.scandir(self.top / inside)
            except OSError:
                if not inside:
                    raise
                continue  # gone in between, or another's
            with entries:
                for each in entries:
                    if self.looked_at >= _MOST_LOOKED_AT or time.monotonic() > until:
                        self.cut = True
                        return
                    self.looked_at += 1
                    if not each.name.startswith("."):
                        self._note(each, f"{inside}{each.name}", folders)

    def _note(self, entry: os.DirEntry[str], name: str, folders: deque[str]) -> None:
        try:
            name.encode()
            if entry.is_dir(follow_symlinks=False):
                folders.append(f"{name}/")
                return
            status = entry.stat()
        except (OSError, UnicodeEncodeError):
            return  # gone in between, a link that leads nowhere, or a name that no document can hold
        if stat.S_ISREG(status.st_mode):
            self.found.append(DataFileAnswer(name=name, bytes=status.st_size))
