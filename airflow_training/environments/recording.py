"""Recording a Python: this one, or another, which one short process asks. Reads metadata, imports nothing of it."""

from __future__ import annotations

import importlib.resources
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_training.environments.addresses import public_url
from airflow_training.environments.locks import Lock, LockedPackage, find_lock, read_lock
from airflow_training.environments.markers import holds
from airflow_training.environments.model import (
    InstalledDistribution,
    PackageOrigin,
    PythonEnvironment,
)
from airflow_training.environments.scan import scan
from airflow_training.errors import InputError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable  # from 3.11 on; `importlib.abc` before

__all__ = ["project_python", "record", "record_of", "scan_program", "with_lock"]

_SCAN = "scan.py"
_PATIENCE_SECONDS = 60.0


def project_python(root: Path) -> Path:
    """Return the interpreter that a project's scripts run on: its `.venv`, the active environment, or this one."""
    active = os.environ.get("VIRTUAL_ENV")
    for folder in (root / ".venv", *([Path(active)] if active else [])):
        for name in ("bin/python", "Scripts/python.exe"):
            if (folder / name).is_file():
                return folder / name
    return Path(sys.executable)


def record(python: str | Path | None = None, *, root: Path | None = None) -> PythonEnvironment:
    """Describe an interpreter (by default the running one), with the lock of the project in `root`.

    All that is installed counts, development tools too: what a script imports cannot be known before it runs.
    Raises InputError for an interpreter that does not answer and a lock that cannot be read.
    """
    found = record_of(scan() if python is None else _asked(Path(python)))
    path = find_lock(root) if root else None
    return with_lock(found, read_lock(path)) if path else found


def scan_program() -> str:
    """Return the program that any Python from 3.8 on runs to print what `record_of` reads."""
    return _scan_file().read_text("utf-8")


def record_of(scanned: Mapping[str, Any]) -> PythonEnvironment:
    """Return the record of what `scan` has found."""
    rows = [_distribution(row) for row in scanned["distributions"]]
    return PythonEnvironment(**{**scanned, "distributions": rows})


def with_lock(found: PythonEnvironment, lock: Lock) -> PythonEnvironment:
    """Add a lock's hashes to the versions that are installed, and what it names for other platforms.

    An installed version that the lock does not name keeps its version, without hashes: the script was built on it.
    """
    locked: dict[tuple[str, str, str], list[LockedPackage]] = {}
    versions: dict[str, list[str]] = {}
    for package in lock.packages:
        locked.setdefault((package.name, package.version, package.origin), []).append(package)
        if package.version:  # PEP 751: of a git commit and of a folder it may be left out
            versions.setdefault(package.name, []).append(package.version)
    rows = []
    for each in found.distributions:
        same = locked.get((each.name, each.version, each.origin), [])
        hashes = {digest: None for package in same for digest in package.hashes}
        # a marker that is false here, of an extra or of a group, says nothing about what is installed all the same
        here = [package.marker for package in same if holds(package.marker, found)]
        marker = here[0] if here and here[0] else each.marker
        rows.append(replace(each, hashes=tuple(hashes) or each.hashes, marker=marker))
    installed = {each.name for each in rows}
    for package in lock.packages:
        elsewhere = package.marker and not holds(package.marker, found)
        if package.name not in installed and elsewhere and package.origin == "index":
            rows.append(
                InstalledDistribution(
                    name=package.name,
                    version=package.version,
                    marker=package.marker,
                    hashes=package.hashes,
                    installed=False,
                )
            )
    rows.sort(key=lambda row: (row.name, row.version))
    deviations = tuple(
        f"{each.name} {each.version}, {lock.source} has {' or '.join(versions[each.name])}"
        for each in found.distributions
        if each.name in versions and each.version not in versions[each.name] and each.version
    )
    return replace(found, lock=lock.source, lock_deviations=deviations, distributions=rows)


def _scan_file() -> Traversable:
    return importlib.resources.files(__package__).joinpath(_SCAN)


def _asked(python: Path) -> Mapping[str, Any]:
    try:
        # packed into one file with others, it is unpacked for the moment
        with importlib.resources.as_file(_scan_file()) as program:
            done = subprocess.run(
                [str(python), str(program)],
                capture_output=True,
                text=True,
                check=True,
                timeout=_PATIENCE_SECONDS,
            )
        answer: Mapping[str, Any] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise InputError.of(
            code="bad_reference",
            field="python",
            message=f"does not say what it has installed: {said[-1] if said else 'no answer'}",
            value=str(python),
            hint="the path of a Python 3.8 or newer",
        ) from error
    return answer


def _distribution(row: Mapping[str, Any]) -> InstalledDistribution:
    direct = row.get("direct_url") or {}
    origin: PackageOrigin = row.get("origin", "index")
    url = public_url(direct.get("url", ""))
    vcs, archive = direct.get("vcs_info", {}), direct.get("archive_info", {})
    if vcs:
        # of Mercurial and the like no target has the program: as if it lay here
        origin = "git" if vcs.get("vcs") == "git" else "folder"
    elif "dir_info" in direct:
        origin = "editable" if direct["dir_info"].get("editable") else "folder"
    elif direct:
        origin = "folder" if url.startswith("file:") else "archive"
    if direct.get("subdirectory"):
        url += f"#subdirectory={direct['subdirectory']}"
    digest = archive.get("hashes", {}).get("sha256") or re.sub(
        r"^sha256=", "", archive.get("hash", "")
    )
    return InstalledDistribution(
        name=row["name"],
        version=row["version"],
        origin=origin,
        url=url,
        commit=vcs.get("commit_id", "") if origin == "git" else "",
        build=row.get("build", ""),
        marker=" or ".join(f"({each})" for each in row.get("markers", ())),
        hashes=(f"sha256:{digest}",) if digest and origin == "archive" else (),
    )
