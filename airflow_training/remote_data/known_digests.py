"""Digests of files that the sharing machine has read before, as long as nothing about the file has changed."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["KnownDigests"]

_RACY_NS = 2_000_000_000
"""A file that was written so short a time ago could be written again without its time changing."""


class KnownDigests:
    """A file of JSON lines: path, size, times and inode with the digests of the chunks; the last line counts."""

    def __init__(self, path: Path) -> None:
        """Read what there is; a line that cannot be read was cut by a kill."""
        self._path = path
        self._lock = threading.Lock()
        self._known: dict[str, tuple[list[int], list[str]]] = {}
        with contextlib.suppress(FileNotFoundError):
            for line in path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError, TypeError):
                    name, facts, chunks = json.loads(line)
                    self._known[name] = (facts, chunks)

    def find(self, path: str, info: os.stat_result) -> Sequence[str]:
        """Return the digests of a file that looks as it did; none otherwise."""
        facts, chunks = self._known.get(path, ([], []))
        return tuple(chunks) if facts == _facts(info) else ()

    def keep(self, path: str, info: os.stat_result, chunks: Sequence[str]) -> None:
        """Remember the digests of a file that is old enough to tell by its times whether it changes."""
        if time.time_ns() - max(info.st_mtime_ns, info.st_ctime_ns) < _RACY_NS:
            return
        facts = _facts(info)
        with self._lock:
            self._known[path] = (facts, list(chunks))
            with contextlib.suppress(
                OSError
            ):  # a full disk: they are computed again in the next run
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([path, facts, list(chunks)]) + "\n")


def _facts(info: os.stat_result) -> list[int]:
    return [info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino]
