"""The environment that needs no registry: made of the Python that this package is installed in, by copies of its files.

It has this package and what it trains with: its own requirements, those of its extras for examples and storages, and
what all of these need. What else is installed there (Airflow, for one) is no part of it.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from airflow_training.environments.contents import changed_files, sha256_of
from airflow_training.environments.interpreters import interpreter_identity
from airflow_training.environments.orders import BuiltinSource
from airflow_training.environments.preparing import (
    EnvironmentBuild,
    PreparedEnvironment,
    make_once,
)
from airflow_training.environments.ready import remember
from airflow_training.errors import InputError, Problem

__all__ = [
    "BUILTIN",
    "BuiltinEnvironment",
    "builtin_environment",
    "builtin_folder",
    "have_builtin",
    "script_for",
]

BUILTIN = "builtin"
"""Its name; its version is the one of this package."""
_PACKAGE = "airflow-training"
_FOLDER = "airflow_training"
_EXTRAS = ("checkpoints", "examples", "s3")
_BESIDE = ("pyarrow",)
"""What the trainer reads data with, where it is installed."""
_LEFT_OUT = ("__pycache__", "node_modules")
_BLOCK_BYTES = 1 << 20
_FICLONE = 0x40049409
"""Of Linux (`ioctl_ficlone`): Btrfs, XFS and others copy nothing then."""
_OWN_METADATA = ("METADATA", "entry_points.txt", "INSTALLER", "WHEEL", "top_level.txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinEnvironment:
    version: str
    digest: str
    """SHA-256 over the interpreter's version, the lists of files of all distributions, and this package's files."""
    python: str
    """`3.11.7`."""
    packages: Sequence[str]
    """`name==version`, sorted."""


def builtin_environment(source: BuiltinSource) -> BuiltinEnvironment:
    """Describe it without making it; `source` is of the running interpreter.

    Raises InputError for what is installed without a list of its files, or as a folder that changes.
    """
    rows = _distributions(source)
    _check(rows)
    version = next((each.version for each in rows if each.is_own), "")
    document = {
        "python": [sys.version, sys.implementation.name, sysconfig.get_platform()],
        "libc": platform.libc_ver(),
        "distributions": [
            [each.name, each.version, _text_digest(each.record)] for each in rows if not each.is_own
        ],
        "package": [version, _folder_digest(Path(source.package))],
    }
    return BuiltinEnvironment(
        version=version,
        digest=_text_digest(json.dumps(document, sort_keys=True)),
        python=platform.python_version(),
        packages=sorted(f"{each.name}=={each.version}" for each in rows),
    )


def _version(source: BuiltinSource) -> str:
    own = _find(source.paths, _PACKAGE)
    return own.version if own else ""


def builtin_folder(source: BuiltinSource, digest: str) -> str:
    """What the cache calls the environment of a digest that lies on the interpreter of a source."""
    return _text_digest(json.dumps([BUILTIN, digest, *interpreter_identity(source.python)]))


def have_builtin(source: BuiltinSource, digest: str, cache_dir: Path) -> PreparedEnvironment:
    """Have the environment of a digest in a cache folder, made once for however many ask.

    Raises InputError where what is installed is not, or no longer, what the digest says.
    """
    build = partial(_build, source, digest)
    folder = builtin_folder(source, digest)
    name = f"{BUILTIN}@{_version(source)}"
    found = make_once(cache_dir.absolute(), folder, build, name=name)
    remember(cache_dir, digest, source.python, folder)
    return found


def _build(source: BuiltinSource, digest: str, build: EnvironmentBuild) -> Mapping[str, Any]:
    found = builtin_environment(source)
    if found.digest != digest:
        raise InputError.of(
            code="conflict",
            field="spec.environment",
            value=f"{BUILTIN}@{found.version}",
            message=f"what is installed here has the digest {found.digest[:12]}, the run was admitted with"
            f" {digest[:12]}: packages were changed since, or another Python has admitted it",
            hint="run it again",
        )
    subprocess.run(
        [source.python, "-I", "-m", "venv", "--without-pip", str(build.place)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        pass_fds=(build.lock,),
    )
    (packages,) = build.place.glob("lib/python*/site-packages")
    for each in _distributions(source):
        if each.is_own:
            _copy_own(each, Path(source.package), packages)
        else:
            _copy(each, packages, build.place)
    changed = changed_files(build.place)
    if changed:
        raise InputError(
            problems=[
                Problem(
                    code="bad_value",
                    field="spec.environment",
                    value=name,
                    message="is not as it was installed: its bytes are others than its package lists",
                    hint="install the package again: pip install --force-reinstall",
                )
                for name in changed[:5]
            ]
        )
    requirements = [row for row in found.packages if not row.startswith(f"{_PACKAGE}==")]
    return {"base": "here", "kind": "own", "requirements": requirements}


# what belongs to it --------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class _Installed:
    """One distribution, its metadata parsed once."""

    name: str
    version: str
    requires: Sequence[Requirement]
    record: str
    """The text of its RECORD; empty: it has none."""
    source: Distribution

    @property
    def is_own(self) -> bool:
        return self.name == _PACKAGE

    @property
    def is_editable(self) -> bool:
        direct = json.loads(self.source.read_text("direct_url.json") or "{}")
        return bool(direct.get("dir_info", {}).get("editable"))

    def needs(self, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
        """Names and extras of what it requires."""
        environments = [{"extra": extra} for extra in extras] or [{"extra": ""}]
        for row in self.requires:
            if row.marker is None or any(row.marker.evaluate(each) for each in environments):
                yield canonicalize_name(row.name), frozenset(row.extras)


def _distributions(source: BuiltinSource) -> list[_Installed]:
    """Return this package and all that it trains with, sorted by name."""
    found: dict[str, _Installed | None] = {}
    waiting = [(_PACKAGE, frozenset(_EXTRAS)), *((name, frozenset[str]()) for name in _BESIDE)]
    seen = set()
    while waiting:
        name, extras = waiting.pop()
        if name not in found:
            found[name] = _find(source.paths, name)
        each = found[name]
        if each is not None and (name, extras) not in seen:
            seen.add((name, extras))
            waiting += each.needs(extras)
    rows = [each for each in found.values() if each is not None]
    return sorted(rows, key=lambda each: each.name)


def _find(paths: Sequence[str], name: str) -> _Installed | None:
    context = DistributionFinder.Context(name=name, path=[*paths])
    found = next(iter(Distribution.discover(context=context)), None)
    if found is None:
        return None
    metadata = found.metadata
    return _Installed(
        name=canonicalize_name(metadata["Name"]),
        version=metadata["Version"],
        requires=[Requirement(line) for line in metadata.get_all("Requires-Dist") or ()],
        record=found.read_text("RECORD") or "",
        source=found,
    )


def _check(rows: Sequence[_Installed]) -> None:
    problems = [
        Problem(
            code="not_allowed",
            field=each.name,
            message="is an editable install: its files may change at any time"
            if each.record
            else "has no list of its files",
            hint=f"pip install --force-reinstall {each.name}=={each.version}",
        )
        for each in rows
        if not each.is_own and (not each.record or each.is_editable)
    ]
    if not any(each.is_own for each in rows):
        message = "is not installed in this Python, so that nothing says what it needs"
        problems.append(Problem(code="not_installed", field=_PACKAGE, message=message))
    if problems:
        raise InputError(problems=problems)


def _folder_digest(folder: Path) -> str:
    lines = [f"{name}\0{sha256_of(path).hex()}\n" for name, path in sorted(_own_files(folder))]
    return _text_digest("".join(lines))


def _own_files(folder: Path, below: str = "") -> Iterator[tuple[str, Path]]:
    for path in folder.iterdir():
        if path.name in _LEFT_OUT:
            continue
        if path.is_dir():  # links too: in the sources some folders are
            yield from _own_files(path, f"{below}{path.name}/")
        elif path.is_file():
            yield f"{below}{path.name}", path


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# its files -----------------------------------------------------------------------------------------
def _copy_own(own: _Installed, folder: Path, packages: Path) -> None:
    """Copy this package: what is installed as a folder of sources may be changed in place."""
    for name, path in _own_files(folder):
        target = packages / _FOLDER / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    metadata = packages / f"{_FOLDER}-{own.version}.dist-info"
    metadata.mkdir()
    for name in _OWN_METADATA:
        text = own.source.read_text(name)
        if text is not None:
            (metadata / name).write_text(text, "utf-8")


def _copy(each: _Installed, packages: Path, place: Path) -> None:
    """Copy the files of a distribution, without what lies outside; scripts are written for the new interpreter."""
    rows = []
    for row in csv.reader(io.StringIO(each.record)):
        if not row:
            continue
        source = Path(str(each.source.locate_file(row[0])))
        target = Path(os.path.normpath(packages / row[0]))
        if not target.is_relative_to(place) or row[0].endswith("/RECORD"):
            continue
        if row[0].endswith(".pyc") and not source.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_symlink():
            continue  # one of the interpreter's own: what is written to it is written to that
        if target.parent == place / "bin":
            text = script_for(place / "bin" / "python", source.read_bytes())
            target.write_bytes(text)
            target.chmod(0o755)
            continue  # its bytes are others than RECORD says
        _copy_file(source, target)
        rows.append(row)
    metadata = next(row[0].split("/")[0] for row in rows if row[0].endswith(".dist-info/METADATA"))
    record = packages / metadata / "RECORD"
    with record.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([*rows, [f"{metadata}/RECORD", "", ""]])


def _copy_file(source: Path, target: Path) -> None:
    """Give a file of its own to the environment: what a training writes there is not written to what is installed."""
    if target.exists():  # two distributions may have one file
        return
    try:
        with source.open("rb") as read, target.open("wb") as written:
            if not _shares_blocks(read.fileno(), written.fileno()):
                shutil.copyfileobj(read, written, _BLOCK_BYTES)
        shutil.copystat(source, target)
    except FileNotFoundError:
        raise InputError.of(
            code="bad_value",
            field="spec.environment",
            value=str(source),
            message="is not there, and its package lists it",
            hint="install the package again: pip install --force-reinstall",
        ) from None


def _shares_blocks(source: int, target: int) -> bool:
    """Let a file have the blocks of another until one of them is written to; False where the file system cannot."""
    if sys.platform != "linux":
        return False
    import fcntl  # a laptop without it describes environments too

    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


_SHEBANG = re.compile(rb"^#!(?:/bin/sh\n'''exec' [^\n]*\n' '''|[^\n]*python[^\n]*)\n")


def script_for(python: Path, script: bytes) -> bytes:
    """Return a script that an installer has made, for an interpreter, however long its path."""
    head = b"#!/bin/sh\n'''exec' \"" + os.fsencode(python) + b'" "$0" "$@"\n' + b"' '''\n"
    return _SHEBANG.sub(lambda _: head, script, count=1)
