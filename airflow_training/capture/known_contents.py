"""Contents of files that an earlier capture has read: their digest, what they name, and that no secret is in them.

Believed while a file looks as it did.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
import json
import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path

__all__ = ["KnownContents"]

_RACY_NS = 2_000_000_000
"""A file that was written so short a time ago could be written again without its time changing."""
_MOST = 200_000
_DECIDED_BY = ("contents.py", "secret_patterns.py", "secret_values.py", "secrets.py")
"""What says that nothing secret is in a file."""


_Row = tuple[list[int], str, list[str]]
"""What tells that a file is the same, its SHA-256, and the packages that it names."""


class KnownContents:
    """One file of JSON. Not for two threads; of two processes the last one's counts."""

    def __init__(self, path: Path) -> None:
        """Nothing is read before `load`."""
        self._path = path
        self._rules = ""
        self._kept: dict[str, _Row] = {}
        self._found: dict[str, _Row] = {}

    def load(self, watched: Collection[str]) -> None:
        """Read what there is, unless it is of another search: for secrets, or for what files name."""
        self._rules = _digest_of_rules(watched)
        with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
            document = json.loads(self._path.read_text(encoding="utf-8"))
            if document["rules"] == self._rules:
                self._kept = dict(document["files"])

    def find(
        self, shown: str, source: Path, info: os.stat_result
    ) -> tuple[str, Sequence[str]] | None:
        """Return the SHA-256 of a file that looks as it did, by its name in the tree, and what it names; else None."""
        key = f"{shown}\0{source}"
        row = self._kept.get(key)
        if row is None or row[0] != _facts(info):
            return None
        self._found[key] = row
        return row[1], row[2]

    def keep(
        self,
        shown: str,
        source: Path,
        info: os.stat_result,
        *,
        sha256: str,
        named: Collection[str],
    ) -> None:
        """Remember a file without secrets that is old enough to tell by its times whether it changes."""
        if time.time_ns() - max(info.st_mtime_ns, info.st_ctime_ns) >= _RACY_NS:
            self._found[f"{shown}\0{source}"] = (_facts(info), sha256, sorted(named))

    def save(self) -> None:
        """Write down what was found now, and of what was known before what still fits."""
        if all(self._kept.get(key) == row for key, row in self._found.items()):
            return
        files = {**self._found, **self._kept, **self._found}
        files = dict(list(files.items())[:_MOST])
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):  # a full disk: the files are read again next time
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft.write_text(json.dumps({"rules": self._rules, "files": files}), encoding="utf-8")
            draft.replace(self._path)


def _facts(info: os.stat_result) -> list[int]:
    return [info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino]


def _digest_of_rules(watched: Collection[str]) -> str:
    folder = importlib.resources.files("airflow_training.capture")
    found = hashlib.sha256(json.dumps(sorted(watched)).encode())
    for name in _DECIDED_BY:
        found.update(folder.joinpath(name).read_bytes())
    return found.hexdigest()
