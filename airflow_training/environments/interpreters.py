"""Which interpreter an environment is made of, and what tells it from another one."""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False  # `typing` and `pathlib` are waited for at the start of each instance
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["find_python", "interpreter_identity"]

_IDENTITY = "import json,sys; print(json.dumps([sys.version]))"
_PATIENCE_SECONDS = 60.0


def find_python(minor: str) -> str:
    """Path of an interpreter of a minor version, `3.11`: the running one, else of PATH, else one that uv has.

    Raises InputError where this machine has none.
    """
    if not minor or minor == "{}.{}".format(*sys.version_info[:2]):
        return sys.executable
    # not at the start of each instance
    import shutil
    import subprocess

    from airflow_training.environments.programs import find_uv
    from airflow_training.errors import InputError

    found, uv = shutil.which(f"python{minor}"), find_uv()
    if found is None and uv:
        done = subprocess.run(
            [uv, "python", "find", "--no-project", "--no-python-downloads", minor],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        found = done.stdout.strip() if done.returncode == 0 else None
    if not found:
        raise InputError.of(
            code="environment_difference",
            field="python",
            message=f"the environment is for Python {minor}, and this machine has none",
            value="{}.{}".format(*sys.version_info[:2]),
            allowed=(minor,),
            hint=f"uv python install {minor}",
        )
    return found


def interpreter_identity(python: str) -> Sequence[str]:
    """What an environment that lies on an interpreter depends on: its path, version, machine and libc."""
    # pathlib is waited for at the start of each instance
    path = python if python.startswith(os.sep) else f"{os.getcwd()}{os.sep}{python}"  # noqa: PTH109 - as above
    if python == sys.executable:
        return [path, sys.version, os.uname().machine, _libc()]
    import subprocess

    done = subprocess.run(
        [python, "-I", "-S", "-c", _IDENTITY],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=_PATIENCE_SECONDS,
    )
    return [path, *json.loads(done.stdout), os.uname().machine, _libc()]


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):  # musl has none
        return ""
