"""Pack programs into one `.pyz` each, once per version and interpreter. Not part of any `.pyz` itself.

The agent: training scripts import `airflow_training.checkpoints` from the same file, and a job with `spec.trainer` runs
what is in it. And the program that has a job's environment ready (`environments/command.py`), which needs Python 3.10, on
any interpreter, with nothing installed.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import io
import os
import py_compile
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Python 3.10 has it elsewhere
    from importlib.resources.abc import Traversable

__all__ = [
    "agent_program",
    "environment_program",
    "own_files",
    "pack_sources",
    "portable_agent",
    "portable_environment_program",
    "remote_shell_script",
]

_NOT_PACKED = frozenset({"agent/package.py", "agent/front_door.py"})
_FRONT_DOOR = "agent/front_door.py"
_PACKAGES = (
    "agent",
    "checkpoints",
    "networks/trainer",
    "interception",
    "interception/bootstrap",
)
_SINGLE_FILES = ("errors.py", "cloud/__init__.py", "networks/__init__.py")
"""The line that sends a script away (`cloud`) stands in the script that arrives, where it does nothing."""
_ENTRY = "agent/__main__.py"
_ENVIRONMENT_PACKAGES = ("environments", "checkpoints")
_ENVIRONMENT_FILES = ("errors.py", "documents/__init__.py", "documents/text.py")
_ENVIRONMENT_ENTRY = b"""import sys

from airflow_training.environments.command import main


def open_storage(uri):
    from airflow_training.checkpoints.store import open_store

    return open_store(uri)


sys.exit(main(sys.argv[1], open_storage))
"""
_VENDORED = "packaging"
"""What that program needs besides: pure Python, and not everywhere installed."""
_LONG_AGO = (2000, 1, 1, 0, 0, 0)


_Sources = tuple[str, list[tuple[str, bytes]]]
"""The digest of all files of a program for this interpreter, and the files by name."""


@lru_cache(maxsize=1)
def _sources() -> _Sources:
    files = own_files(_PACKAGES, _SINGLE_FILES)
    for name in _NOT_PACKED:
        del files[f"airflow_training/{name}"]
    front_door = own_files((), (_FRONT_DOOR, _ENTRY))
    files["airflow_training/__init__.py"] = front_door[f"airflow_training/{_FRONT_DOOR}"]
    return _as_program(front_door[f"airflow_training/{_ENTRY}"], files)


@lru_cache(maxsize=1)
def _environment_sources() -> _Sources:
    files = own_files(_ENVIRONMENT_PACKAGES, _ENVIRONMENT_FILES)
    vendored = _modules_in(importlib.resources.files(_VENDORED))
    files |= {f"{_VENDORED}/{name}": content for name, content in vendored.items()}
    files["airflow_training/__init__.py"] = b""
    return _as_program(_ENVIRONMENT_ENTRY, files)


def own_files(packages: Sequence[str], singles: Sequence[str]) -> dict[str, bytes]:
    """Modules of packages, and single files of this package, by their name in a program."""
    root = importlib.resources.files("airflow_training")
    found = {name: root.joinpath(name).read_bytes() for name in singles}
    for package in packages:
        modules = _modules_in(root.joinpath(package))
        found |= {f"{package}/{name}": content for name, content in modules.items()}
    return {f"airflow_training/{name}": content for name, content in found.items()}


def _modules_in(folder: Traversable) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.name.endswith(".py")}


def _as_program(entry: bytes, files: dict[str, bytes]) -> _Sources:
    sources = [("__main__.py", entry), *sorted(files.items())]
    return _digest(sources), sources


def _digest(sources: list[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256(_interpreter().encode())
    for name, content in sources:
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _interpreter() -> str:
    return sys.implementation.cache_tag or "python"


def agent_program(cache: Path) -> Path:
    """Return the packed agent in `cache`, making it where it is missing; its name is its content."""
    return _program(cache, "agent", *_sources())


def environment_program(cache: Path) -> Path:
    """Return the packed program for environments in `cache`, as `agent_program` does."""
    return _program(cache, "environment", *_environment_sources())


def _program(cache: Path, name: str, digest: str, sources: list[tuple[str, bytes]]) -> Path:
    program = cache / f"{name}-{_interpreter()}-{digest}.pyz"
    if not program.exists():
        _write(program, _pack(sources), mode=0o644)
    return program


@lru_cache(maxsize=1)
def portable_agent() -> bytes:
    """Return the packed agent for any Python from 3.8 on: sources only, the same bytes every time."""
    return pack_sources(_sources()[1])


@lru_cache(maxsize=1)
def portable_environment_program() -> bytes:
    """Return the packed program for environments, as `portable_agent` does."""
    return pack_sources(_environment_sources()[1])


def pack_sources(sources: Sequence[tuple[str, bytes]]) -> bytes:
    """Return a zip that any Python runs: the same bytes for the same sources."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sources:
            info = zipfile.ZipInfo(name, date_time=_LONG_AGO)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return packed.getvalue()


def _pack(sources: list[tuple[str, bytes]]) -> bytes:
    """Return a zip that Python runs: sources, and their byte code for this interpreter.

    Byte code spares compiling at every start; another version of Python passes over it.
    """
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive,
        tempfile.TemporaryDirectory() as scratch,
    ):

        def add(name: str, content: bytes) -> None:
            source = Path(scratch) / "module.py"
            source.write_bytes(content)
            code = py_compile.compile(
                str(source),
                cfile=str(source) + "c",
                dfile=name,
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
            for member, data in ((name, content), (name + "c", Path(str(code)).read_bytes())):
                info = zipfile.ZipInfo(member, date_time=_LONG_AGO)
                archive.writestr(info, data)

        for name, content in sources:
            add(name, content)
    return packed.getvalue()


def remote_shell_script(cache: Path, *, python: str) -> Path:
    """Return an executable `<rsh> [options] HOST COMMAND...` for `mpirun`; see `remote_shell`."""
    program = agent_program(cache)
    text = f"#!/bin/sh\nexec '{python}' -I -S '{program}' remote-shell \"$@\"\n"
    script = cache / f"remote-shell-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if not script.exists():
        _write(script, text.encode(), mode=0o755)
    return script


def _write(path: Path, content: bytes, *, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)
