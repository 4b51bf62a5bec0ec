"""Having an environment in the cache: found whole, or made once for however many ask at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_training.environments.cache import (
    CachedEnvironment,
    EnvironmentInUse,
    clear,
    find_cached,
    find_whole,
    locked,
    touch,
    unchanged,
    unused,
    verify,
    write_mark,
)

__all__ = ["EnvironmentBuild", "PreparedEnvironment", "find_prepared", "installed_in", "make_once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedEnvironment:
    """An interpreter that has what the script needs."""

    python: Path
    installed: Sequence[str]
    """`name==version` of what was put into its folder, on top of the image or alone; empty for an image."""
    seconds: float
    """How long it took to have it, waiting for others included."""
    cached: bool
    """Whether it was there already; true for an image."""
    digest: str = ""
    """Its name in the cache; empty for an image."""
    lock: Path | None = None
    """A lock of PEP 751 of what was installed, where uv made it."""

    def to_json(self) -> Mapping[str, Any]:
        return {
            "python": str(self.python),
            "installed": [*self.installed],
            "cached": self.cached,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentBuild:
    """One build, in a folder that nobody else touches."""

    place: Path
    lock: int
    """Descriptor of the cache's lock, for children that may outlive us."""
    damaged: bool
    """It replaces one whose bytes had changed: what an installer has linked there has them too."""


def find_prepared(
    cache_dir: Path, digest: str, *, check_files: bool = False
) -> PreparedEnvironment | None:
    """Return an environment that is there and whole, used from now on."""
    began = time.monotonic()
    with unchanged(cache_dir, digest):
        found = _usable(cache_dir, digest, check_files=check_files)
    return None if found is None else _prepared(found, began, cached=True)


def make_once(
    cache_dir: Path,
    digest: str,
    build: Callable[[EnvironmentBuild], Mapping[str, Any]],
    *,
    check_files: bool = False,
    name: str = "",
) -> PreparedEnvironment:
    """Return an environment of the cache; `build` makes it where it is missing, and says `base`, `kind`, `requirements`.

    One that was changed is built again; with `check_files` each byte is compared before it is used, else where a
    file has another size or time. What a killed build left is removed first. Raises EnvironmentInUse for a changed
    one on which a process runs.
    """
    began = time.monotonic()
    found = find_prepared(cache_dir, digest, check_files=check_files)
    if found is not None:
        return found
    with locked(cache_dir, digest) as lock:
        whole = _usable(cache_dir, digest, check_files=check_files)
        if whole is not None:
            return _prepared(whole, began, cached=True)
        made = _make(cache_dir, digest, build, lock, name)
        touch(made)
    return _prepared(made, began, cached=False)


def installed_in(place: Path) -> list[str]:
    """Return `name==version` of each distribution in the folder of an environment."""
    from packaging.utils import canonicalize_name  # not at the start of each instance

    stems = [each.stem for each in place.glob("lib/python*/site-packages/*.dist-info")]
    pairs = [stem.rpartition("-") for stem in stems]
    return sorted(f"{canonicalize_name(name)}=={version}" for name, _, version in pairs)


def _prepared(found: CachedEnvironment, began: float, *, cached: bool) -> PreparedEnvironment:
    return PreparedEnvironment(
        python=found.python,
        installed=found.installed,
        seconds=time.monotonic() - began,
        cached=cached,
        digest=found.digest,
        lock=found.lock if found.lock.exists() else None,
    )


def _usable(cache_dir: Path, digest: str, *, check_files: bool) -> CachedEnvironment | None:
    """Return what the cache has, used from now on; the caller holds its lock, so that nobody removes it meanwhile."""
    found = find_whole(cache_dir, digest)
    if found is None or (check_files and verify(found)):
        return None
    touch(found)
    return found


def _make(
    cache_dir: Path,
    digest: str,
    build: Callable[[EnvironmentBuild], Mapping[str, Any]],
    lock: int,
    name: str,
) -> CachedEnvironment:
    """Build the environment; the caller holds its lock."""
    place = cache_dir / digest
    damaged = (place / "environment.json").exists()
    with unused(cache_dir, digest) as may_go:
        if not may_go:
            raise EnvironmentInUse(
                f"{place}: its files were changed, and a job runs on it; it is built again once that has ended"
            )
        clear(place)
    began = time.monotonic()
    try:
        said = build(EnvironmentBuild(place=place, lock=lock, damaged=damaged))
    except BaseException:
        clear(place)  # on a full disk others need the room
        raise
    body = {
        "digest": digest,
        "name": name,
        **said,
        "installed": installed_in(place),
        "built_at": time.time(),
        "build_seconds": round(time.monotonic() - began, 3),
    }
    write_mark(place, body)
    built = find_cached(cache_dir, digest)
    if built is None:
        raise OSError(f"{place}: changed while it was built")
    return built
