"""Pack the agent into one `.pyz`, once per version and interpreter. Not part of the `.pyz` itself.

Training scripts import `airflow_training.checkpoints` from the same file, and a job with `spec.trainer` runs what is in it.
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
from functools import lru_cache
from pathlib import Path

__all__ = ["agent_program", "portable_agent", "remote_shell_script"]

_NOT_PACKED = frozenset({"agent/package.py", "agent/front_door.py"})
_FRONT_DOOR = "agent/front_door.py"
_PACKAGES = ("agent", "checkpoints", "networks/trainer")
_SINGLE_FILES = ("errors.py", "cloud/__init__.py", "networks/__init__.py")
"""The line that sends a script away (`cloud`) stands in the script that arrives, where it does nothing."""
_ENTRY = "agent/__main__.py"
_LONG_AGO = (2000, 1, 1, 0, 0, 0)


@lru_cache(maxsize=1)
def _sources() -> tuple[str, list[tuple[str, bytes]]]:
    """Return the digest of all files for this interpreter, and the files by name; read once."""
    root = importlib.resources.files("airflow_training")
    found = {
        f"{package}/{each.name}": each.read_bytes()
        for package in _PACKAGES
        for each in root.joinpath(package).iterdir()
        if each.name.endswith(".py")
    }
    files = {name: content for name, content in found.items() if name not in _NOT_PACKED}
    files["__init__.py"] = found[_FRONT_DOOR]
    files |= {name: root.joinpath(name).read_bytes() for name in _SINGLE_FILES}
    sources = [
        ("__main__.py", found[_ENTRY]),
        *sorted((f"airflow_training/{name}", content) for name, content in files.items()),
    ]
    digest = hashlib.sha256(_interpreter().encode())
    for name, content in sources:
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16], sources


def _interpreter() -> str:
    return sys.implementation.cache_tag or "python"


def agent_program(cache: Path) -> Path:
    """Return the packed agent in `cache`, making it where it is missing; its name is its content."""
    digest, sources = _sources()
    program = cache / f"agent-{_interpreter()}-{digest}.pyz"
    if not program.exists():
        _write(program, _pack(sources), mode=0o644)
    return program


@lru_cache(maxsize=1)
def portable_agent() -> bytes:
    """Return the packed agent for any Python from 3.8 on: sources only, the same bytes every time."""
    _, sources = _sources()
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
