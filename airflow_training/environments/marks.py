"""The mark of an environment that is whole, and what shows that none of its files was written since.

All that most starts of an instance need: it imports little, as each import is waited for by every one of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import time

TYPE_CHECKING = False  # `typing` is waited for, too
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

__all__ = [
    "LEFT_OUT",
    "MARK",
    "body_digest",
    "find_unchanged",
    "index_file",
    "is_digest",
    "lock_file",
    "read_mark",
    "stat_digest",
]

MARK = "environment.json"
LEFT_OUT = (MARK, ".mark")
"""Beginnings of names of files in an environment's folder that are none of it."""
_TICK_NS = 50_000_000
"""How far apart two writes have to be so that file systems give them other times."""


def find_unchanged(cache_dir: str, digest: str, identity: Sequence[str]) -> str:
    """Return the name of the environment of a digest for an interpreter, used from now on.

    Empty where it is missing, or was written to since its bytes were compared: `cache` finds out more.

    Args:
        cache_dir: the folder of environments.
        digest: of the environment that a job names.
        identity: of the interpreter, by `interpreter_identity`.
    """
    import fcntl

    try:
        name = _read(index_file(cache_dir, digest, identity)).decode()
        if not is_digest(name):
            return ""
        descriptor = os.open(lock_file(cache_dir, name), os.O_RDWR | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # nobody removes or repairs it meanwhile
        place = f"{cache_dir}/{name}"
        body = read_mark(place, name)
        now = stat_digest(place) if body else ""
        if not body or not now or now != body.get("stat_sha256"):
            return ""
        os.utime(descriptor)
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return name


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib is waited for, too
        return file.read()


def read_mark(place: str, digest: str) -> dict[str, Any] | None:
    """Read the mark in a folder; None for none, a damaged one, and one without its interpreter."""
    try:
        mark = json.loads(_read(f"{place}/{MARK}"))
        body: dict[str, Any] = mark["environment"]
        if mark["sha256"] != body_digest(body) or body["digest"] != digest:
            return None
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return body if os.access(f"{place}/bin/python", os.X_OK) else None


def body_digest(body: Mapping[str, Any]) -> str:
    """SHA-256 of what a mark says."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def is_digest(text: str) -> bool:
    """Say whether a text is what an environment's folder may be called."""
    return len(text) == 64 and not set(text) - set("0123456789abcdef")


def lock_file(cache_dir: str, digest: str) -> str:
    """The file that is locked by whoever changes an environment, and touched by whoever uses it."""
    return f"{cache_dir}/{digest}.lock"


def index_file(cache_dir: str, digest: str, identity: Sequence[str]) -> str:
    """The file with the name that the environment of a digest has in the cache, for an interpreter."""
    key = json.dumps([digest, *identity])
    return f"{cache_dir}/named/{hashlib.sha256(key.encode()).hexdigest()}"


def stat_digest(place: str) -> str:
    """SHA-256 over path, size and time of change of all files and links: equal where nobody has written meanwhile.

    Empty where one was written just now: another write in the same tick of the clock would not be seen. Ten thousand
    files take some 50 ms, where reading their bytes takes seconds. Compiled files are left out.
    """
    lines: list[str] = []
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        newest = _add_statuses(descriptor, "", lines)
    finally:
        os.close(descriptor)
    if newest > time.time_ns() - _TICK_NS:
        return ""
    lines.sort()
    return hashlib.sha256(os.fsencode("\n".join(lines))).hexdigest()


def _add_statuses(folder: int, below: str, lines: list[str]) -> int:
    """Add a line for each file; returns when the newest was written, in nanoseconds of the epoch.

    By descriptors of folders, as the kernel walks each path that it is given: a fifth of the time.
    """
    newest = 0
    with os.scandir(folder) as entries:
        for each in entries:
            name = below + each.name
            if each.is_dir(follow_symlinks=False):
                if each.name == "__pycache__":
                    continue
                inside = os.open(each.name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
                try:
                    newest = max(newest, _add_statuses(inside, f"{name}/", lines))
                finally:
                    os.close(inside)
            elif below or not name.startswith(LEFT_OUT):
                status = each.stat(follow_symlinks=False)
                changed = status.st_mtime_ns
                if changed > newest:
                    newest = changed
                lines.append(f"{name}\0{status.st_size}\0{changed}")
    return newest
