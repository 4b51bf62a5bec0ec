"""The folder of environments that were built: which there are, whether one is whole, what goes.

An environment `<digest>/` counts from the moment its mark is there, which is written last and at once. Whoever
builds, repairs or removes it holds `<digest>.lock`; the lock passes to the installer, so that one that outlives
its parent is waited for. Whoever runs on it shares the lock of `<digest>.users` for so long: neither removed nor
repaired is what somebody runs on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_training.environments.contents import (
    damaged_files,
    listed_digest,
    other_files,
)
from airflow_training.environments.marks import (
    MARK,
    body_digest,
    is_digest,
    lock_file,
    read_mark,
    stat_digest,
)
from airflow_training.errors import TrainingError

__all__ = [
    "CachedEnvironment",
    "EnvironmentInUse",
    "cached_digests",
    "cached_environments",
    "clear",
    "collect",
    "default_folder",
    "find_cached",
    "find_whole",
    "locked",
    "pin",
    "remove",
    "touch",
    "unchanged",
    "unpin",
    "unused",
    "users_file",
    "verify",
    "write_mark",
]


class EnvironmentInUse(TrainingError):
    """A process runs on an environment that is to be removed or repaired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedEnvironment:
    """An environment that is whole, as its mark says."""

    digest: str
    folder: Path
    base: str
    """The image, or `here`."""
    kind: str
    requirements: Sequence[str]
    installed: Sequence[str]
    """`name==version` of all that lies in its folder."""
    name: str
    """`NAME@VERSION` of a named one, else empty."""
    built_at: float
    """Epoch seconds."""
    build_seconds: float
    listed_sha256: str
    """Of the RECORD files, which hold the digests of all files of the packages."""
    others: Mapping[str, str]
    """SHA-256 by path of each file that no RECORD has a digest of."""
    stat_sha256: str = ""
    """Of sizes and times of all files, as they were when all bytes were compared last; empty: they are compared."""

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def lock(self) -> Path:
        """What lies in its folder as a lock of PEP 751, where uv made it."""
        return self.folder / "pylock.toml"

    @property
    def used_at(self) -> float:
        """Epoch seconds of its last use: when its lock's file was touched last."""
        return _lock_file(self.folder.parent, self.digest).stat().st_mtime

    @property
    def pinned(self) -> bool:
        return _pin_file(self.folder.parent, self.digest).exists()


def default_folder() -> Path:
    """Return where this user keeps environments."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "airflow-training" / "environments"


def cached_digests(folder: Path) -> frozenset[str]:
    """Return the digests of what was built in a cache folder."""
    return frozenset(path.parent.name for path in folder.glob(f"*/{MARK}"))


def cached_environments(folder: Path) -> list[CachedEnvironment]:
    """Environments in a cache folder, the newest first."""
    found = [find_cached(folder, digest) for digest in cached_digests(folder)]
    return sorted((each for each in found if each), key=lambda each: -each.built_at)


def find_cached(folder: Path, digest: str) -> CachedEnvironment | None:
    """Return an environment whose mark and lists of files are whole; files themselves are not read: `verify`."""
    found = _marked(folder, digest)
    try:
        same = found is not None and listed_digest(found.folder) == found.listed_sha256
    except OSError:
        return None
    return found if same else None


def _marked(folder: Path, digest: str) -> CachedEnvironment | None:
    place = folder / digest
    body = read_mark(str(place), digest)
    try:
        return None if body is None else CachedEnvironment(folder=place, **body)
    except TypeError:  # of another version
        return None


def find_whole(folder: Path, digest: str) -> CachedEnvironment | None:
    """Return an environment none of whose bytes is another than what was installed.

    They are only read where a file has another size or time than when they were compared last. The caller holds
    its lock.
    """
    found = _marked(folder, digest)
    if found is None:
        return None
    now = stat_digest(str(found.folder))
    if now and now == found.stat_sha256:
        return found
    if find_cached(folder, digest) is None or verify(found):
        return None
    mark = json.loads((found.folder / MARK).read_bytes())["environment"]
    with suppress(OSError):  # it is whole: on a full disk all bytes are compared the next time, too
        _write_body(found.folder, {**mark, "stat_sha256": now})
    return found


def write_mark(place: Path, body: Mapping[str, Any]) -> None:
    """Say that the environment in a folder is whole, on disk before it counts."""
    listed, others = listed_digest(place), other_files(place)
    stat = {"stat_sha256": stat_digest(str(place))}
    _write_body(place, {**body, "listed_sha256": listed, "others": others, **stat})


def _write_body(place: Path, body: Mapping[str, Any]) -> None:
    import tempfile  # not at the start of each instance

    text = json.dumps({"environment": body, "sha256": body_digest(body)}, indent=1)
    with tempfile.NamedTemporaryFile("w", dir=place, prefix=".mark", delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            Path(file.name).unlink()
            raise
    Path(file.name).replace(place / MARK)


def verify(environment: CachedEnvironment) -> list[str]:
    """Return the files whose bytes are not those that were installed, by reading all; compiled files are not read."""
    return damaged_files(environment.folder, environment.others)


def locked(folder: Path, digest: str) -> AbstractContextManager[int]:
    """Be the only one that changes an environment; gives the lock's descriptor, for children that go on."""
    return _held(folder, digest, "LOCK_EX")


def unchanged(folder: Path, digest: str) -> AbstractContextManager[int]:
    """Look at an environment while nobody changes it; a build that goes on is waited for."""
    return _held(folder, digest, "LOCK_SH")


@contextmanager
def _held(folder: Path, digest: str, operation: str) -> Iterator[int]:
    import fcntl  # a laptop without it records too

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = _lock_file(folder, digest)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, getattr(fcntl, operation))
        yield descriptor
    finally:
        os.close(descriptor)


def touch(environment: CachedEnvironment) -> None:
    """Say that an environment is used now."""
    _lock_file(environment.folder.parent, environment.digest).touch()


def pin(environment: CachedEnvironment) -> None:
    """Keep an environment from `collect`."""
    _pin_file(environment.folder.parent, environment.digest).touch()


def unpin(environment: CachedEnvironment) -> None:
    """Let `collect` have it again."""
    _pin_file(environment.folder.parent, environment.digest).unlink(missing_ok=True)


@contextmanager
def unused(folder: Path, digest: str) -> Iterator[bool]:
    """Give whether no process runs on an environment, and let none begin to meanwhile.

    Who begins shares the lock of `users_file`, and then looks for the mark again.
    """
    import fcntl

    descriptor = os.open(users_file(folder, digest), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def users_file(folder: Path, digest: str) -> Path:
    """The file whose lock everybody shares who runs on an environment; it stays when that is removed."""
    return folder / f"{digest}.users"


def remove(folder: Path, digest: str) -> int:
    """Remove an environment, or what is left of one; returns the bytes that it took, hard links counted.

    Raises EnvironmentInUse while a process runs on it.
    """
    if not is_digest(digest):
        raise ValueError(digest)
    with locked(folder, digest), unused(folder, digest) as may_go:
        if not may_go:
            raise EnvironmentInUse(f"a job runs on the environment {digest[:12]}")
        _pin_file(folder, digest).unlink(missing_ok=True)
        return clear(folder / digest)


def collect(folder: Path, *, before: float) -> Mapping[str, int]:
    """Remove what nobody has used since `before` (epoch seconds) and what killed builds left.

    Nothing pinned goes, and nothing that a process runs on. Returns the bytes by digest. A build that goes on is waited for.
    """
    removed: dict[str, int] = {}
    for place in sorted(folder.iterdir() if folder.is_dir() else ()):
        if not is_digest(place.name) or not place.is_dir():
            continue
        with locked(folder, place.name), unused(folder, place.name) as may_go:
            found = find_cached(folder, place.name)
            goes = found is None or (found.used_at < before and not found.pinned)
            if may_go and goes:
                removed[place.name] = clear(place)
    for path in (folder / "named").glob("[!.]*"):  # what `ready` finds them by
        with suppress(OSError):
            if not (folder / path.read_text("utf-8") / MARK).exists():
                path.unlink()
    for path in (folder / "files").glob("*/*"):  # wheels of named ones, for others that share them
        with suppress(
            FileNotFoundError
        ):  # who fetches has replaced it, or another `collect` was faster
            if path.stat().st_mtime < before:
                path.unlink()
    return removed


def clear(place: Path) -> int:
    """Remove a folder, its mark first: a kill in between leaves nothing that counts. The caller holds its lock."""
    import shutil

    (place / MARK).unlink(missing_ok=True)  # first: from now on it does not count
    size = sum(path.lstat().st_size for path in place.rglob("*") if not path.is_dir())
    shutil.rmtree(place, ignore_errors=True)
    return size


def _lock_file(folder: Path, digest: str) -> Path:
    return Path(lock_file(str(folder), digest))


def _pin_file(folder: Path, digest: str) -> Path:
    return folder / f"{digest}.pinned"
