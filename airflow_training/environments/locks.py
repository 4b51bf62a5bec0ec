"""Lock files of uv, pip, poetry and pdm: versions, hashes and where each is needed.

A lock says what may be installed, a record what is: the record's versions count, the lock adds the hashes of
their files and what other platforms need. Only `uv.lock` is read by its own tool, where that is there.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_training.environments.addresses import public_url
from airflow_training.environments.model import PackageOrigin
from airflow_training.environments.programs import find_uv
from airflow_training.errors import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Lock", "LockedPackage", "find_lock", "parse_lock", "read_lock"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPackage:
    """One version of a package; a name can stand in a lock with several, each with its own marker."""

    name: str
    version: str
    marker: str = ""
    origin: PackageOrigin = "index"
    url: str = ""
    commit: str = ""
    hashes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    source: str
    """The file's name."""
    packages: Sequence[LockedPackage]


def find_lock(root: Path) -> Path | None:
    """Return the lock file of a project: the first of uv's, PEP 751's, poetry's, pdm's, pip's with hashes."""
    names = ("uv.lock", "pylock.toml", "poetry.lock", "pdm.lock")
    found = [root / name for name in names] + sorted(root.glob("pylock.*.toml"))
    for path in found:
        if path.is_file():
            return path
    requirements = root / "requirements.txt"
    if requirements.is_file() and "--hash=" in requirements.read_text("utf-8", errors="replace"):
        return requirements
    return None


def read_lock(path: Path) -> Lock:
    """Read a lock file; raises InputError where it cannot be understood. uv exports its own, without network."""
    uv = find_uv() if path.name == "uv.lock" else None
    if uv:
        export = [uv, "export", "--quiet", "--frozen", "--offline", "--all-extras", "--all-groups"]
        # extras that exclude each other cannot be exported together; then the file itself is read
        done = subprocess.run(
            [*export, "--format", "pylock.toml", "--project", str(path.parent)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return Lock(source=path.name, packages=parse_lock(done.stdout, "pylock.toml").packages)
    return parse_lock(path.read_text("utf-8"), path.name)


def _canonical(name: str) -> str:
    from packaging.utils import canonicalize_name  # when it is needed: most scripts have no lock

    return canonicalize_name(name)


def parse_lock(text: str, name: str) -> Lock:
    """Return the lock of a file's text; its name says which form it has. Raises InputError."""
    if name.endswith(".txt"):
        return Lock(source=name, packages=[*_requirements(text)])
    try:
        document = tomllib.loads(text)
        rows = _REDUCERS[name.partition(".")[0]](document)
        return Lock(source=name, packages=[*rows])
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise InputError.of(
            code="syntax",
            field="",
            message=f"is no lock file that can be read: {error}",
            hint="make it anew with the tool that writes it",
            path=name,
        ) from error


def _pylock(document: Mapping[str, Any]) -> Iterable[LockedPackage]:
    """PEP 751."""
    for row in document["packages"]:
        files = [*row.get("wheels", ()), *_present(row.get("sdist")), *_present(row.get("archive"))]
        vcs, archive, directory = (row.get(key) or {} for key in ("vcs", "archive", "directory"))
        origin: PackageOrigin = "index"
        if vcs:
            origin = "git" if vcs.get("type") == "git" else "folder"
        elif archive:
            origin = "archive"
        elif directory:
            origin = "editable" if directory.get("editable") else "folder"
        yield LockedPackage(
            name=_canonical(row["name"]),
            version=row.get("version", ""),
            marker=row.get("marker", ""),
            origin=origin,
            url=public_url(vcs.get("url") or archive.get("url") or directory.get("path") or ""),
            commit=vcs.get("commit-id", "") if origin == "git" else "",
            hashes=tuple(
                f"{kind}:{value}"
                for file in files
                for kind, value in file.get("hashes", {}).items()
                if kind == "sha256"
            ),
        )


def _uv(document: Mapping[str, Any]) -> Iterable[LockedPackage]:
    for row in document.get("package", ()):
        source = row.get("source", {})
        kind = next(iter(source), "registry")
        if kind in ("virtual", "editable", "directory") and source[kind] == ".":
            continue  # the project itself: its code travels with it
        files = [*row.get("wheels", ()), *_present(row.get("sdist"))]
        address, _, commit = source.get("git", "").partition("#")
        yield LockedPackage(
            name=_canonical(row["name"]),
            version=row.get("version", ""),
            marker=" or ".join(f"({each})" for each in row.get("resolution-markers", ())),
            origin=_UV_ORIGINS.get(kind, "index"),
            url=public_url(address or source.get("url") or source.get(kind, ""))
            if kind != "registry"
            else "",
            commit=commit,
            hashes=_sha256(files),
        )


_UV_ORIGINS: Mapping[str, PackageOrigin] = {
    "git": "git",
    "url": "archive",
    "path": "folder",
    "directory": "folder",
    "virtual": "folder",
    "editable": "editable",
}


def _poetry(document: Mapping[str, Any]) -> Iterable[LockedPackage]:
    for row in document.get("package", ()):
        source = row.get("source", {})
        kind = source.get("type", "legacy")
        markers = row.get("markers", "")  # one text, or one per group
        if isinstance(markers, Mapping):
            markers = " or ".join(f"({each})" for each in dict.fromkeys(markers.values()))
        yield LockedPackage(
            name=_canonical(row["name"]),
            version=row["version"],
            marker=markers,
            origin=_POETRY_ORIGINS.get(kind, "index"),
            url=public_url(source.get("url", "")) if kind != "legacy" else "",
            commit=source.get("resolved_reference", "") if kind == "git" else "",
            hashes=_sha256(row.get("files", ())),
        )


_POETRY_ORIGINS: Mapping[str, PackageOrigin] = {
    "git": "git",
    "url": "archive",
    "file": "folder",
    "directory": "folder",
}


def _pdm(document: Mapping[str, Any]) -> Iterable[LockedPackage]:
    for row in document.get("package", ()):
        origin: PackageOrigin = "index"
        if "git" in row:
            origin = "git"
        elif "url" in row:
            origin = "archive"
        elif "path" in row:
            origin = "editable" if row.get("editable") else "folder"
        yield LockedPackage(
            name=_canonical(row["name"]),
            version=row["version"],
            marker=row.get("marker", ""),
            origin=origin,
            url=public_url(row.get("git") or row.get("url") or row.get("path") or ""),
            commit=row.get("revision", ""),
            hashes=_sha256(row.get("files", ())),
        )


_REDUCERS: Mapping[str, Callable[[Mapping[str, Any]], Iterable[LockedPackage]]] = {
    "pylock": _pylock,
    "uv": _uv,
    "poetry": _poetry,
    "pdm": _pdm,
}


_PIN = re.compile(r"([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?\s*===?\s*([^\s;]+)\s*(?:;\s*(.*))?")


def _requirements(text: str) -> Iterable[LockedPackage]:
    """Exact requirements with hashes, as `pip-compile` and `uv pip compile` write them."""
    joined = re.sub(r"\\\s*\n\s*", " ", text)
    for line in joined.splitlines():
        hashes = re.findall(r"--hash=(sha256:[0-9a-f]{64})", line)
        match = _PIN.match(re.sub(r"\s*(--hash=\S+|#.*)", "", line).strip())
        if match:
            yield LockedPackage(
                name=_canonical(match[1]),
                version=match[2],
                marker=(match[3] or "").strip(),
                hashes=tuple(hashes),
            )


def _sha256(files: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    found = (file.get("hash", "") for file in files)
    return tuple(digest for digest in found if digest.startswith("sha256:"))


def _present(row: Any) -> list[Mapping[str, Any]]:
    return [row] if row else []
