"""Files that a run wrote in its folder, read while it may still write them, and without following its links."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from airflow_training.agent.finishing import open_for_writing

__all__ = ["RunFiles", "open_below", "pieces_of"]

_READ_BYTES = 4 << 20


def open_below(root: Path, path: str) -> BinaryIO:
    """A regular file below a folder that others write to; raises FileNotFoundError for anything else there.

    Through a link of theirs, in any part of the path, they would read the files of this machine.
    """
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    *folders, name = path.split("/")
    safe = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        for each in folders:
            below = os.open(each, safe | os.O_DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
        file = os.open(name, safe | os.O_NONBLOCK, dir_fd=here)  # a pipe would wait
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
        raise
    finally:
        os.close(here)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return os.fdopen(file, "rb")


def pieces_of(file: BinaryIO, *, start: int, size: int) -> Iterator[bytes]:
    """`size` bytes of an open file from one on, in pieces; fewer where it ends before. Closes it."""
    with file:
        file.seek(start)
        while size > 0 and (data := file.read(min(size, _READ_BYTES))):
            yield data
            size -= len(data)


class RunFiles:
    """Digests of what runs wrote; one that is asked for again and again is read once as long as it stays the same."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, str], tuple[list[int], str]] = {}

    def rows(self, root: Path, paths: Sequence[str], *, whole: bool) -> Sequence[Mapping[str, Any]]:
        """Path, size and digest of files below a folder; those that are gone meanwhile are left out.

        `whole`: those that a process of this machine has open for writing, too, or that change as they are read.
        """
        busy = _written_below(root) if whole else frozenset()
        found = []
        for path in paths:
            if os.path.realpath(root / path) in busy:
                continue
            try:
                with open_below(root, path) as file:
                    row = self._row(root, path, file)
                    changed = whole and _mark(file) != self._known[root, path][0]
            except FileNotFoundError:
                continue
            if not changed:
                found.append(row)
        if whole and found:  # who has begun to write after the first look may have been read half
            busy = _written_below(root)
            found = [each for each in found if os.path.realpath(root / each["path"]) not in busy]
        return found

    def _row(self, root: Path, path: str, file: BinaryIO) -> Mapping[str, Any]:
        mark = _mark(file)
        before, sha256 = self._known.get((root, path), ([], ""))
        if before != mark:
            digest = hashlib.sha256()
            while data := file.read(_READ_BYTES):
                digest.update(data)
            sha256 = digest.hexdigest()
            self._known[root, path] = mark, sha256
        return {"path": path, "size": mark[0], "sha256": sha256}


def _mark(file: BinaryIO) -> list[int]:
    info = os.fstat(file.fileno())
    return [info.st_size, info.st_mtime_ns, info.st_ino, info.st_ctime_ns]


def _written_below(root: Path) -> Collection[str]:
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    return {path for path, _ in open_for_writing(pids, [os.path.realpath(root)])}
