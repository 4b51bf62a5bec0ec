"""Pack the agent into one `.pyz`, once per version and interpreter. Not part of the `.pyz` itself."""

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

_NOT_PACKED = frozenset({"package.py"})
_LONG_AGO = (2000, 1, 1, 0, 0, 0)


@lru_cache(maxsize=1)
def _sources() -> tuple[str, list[tuple[str, bytes]]]:
    """Return the digest of all modules for this interpreter, and the modules; read once."""
    folder = importlib.resources.files("airflow_training.agent")
    sources = sorted(
        (each.name, each.read_bytes())
        for each in folder.iterdir()
        if each.name.endswith(".py") and each.name not in _NOT_PACKED
    )
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
        for name, content in _members(sources):
            info = zipfile.ZipInfo(name, date_time=_LONG_AGO)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return packed.getvalue()


def _members(sources: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Return the files of the `.pyz` by their names in it."""
    inside = [(f"airflow_training/agent/{name}", content) for name, content in sources]
    entry = [(name, content) for name, content in sources if name == "__main__.py"]
    return [("airflow_training/__init__.py", b""), *inside, *entry]


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

        for name, content in _members(sources):
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
