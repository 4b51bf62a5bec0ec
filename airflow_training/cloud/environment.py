"""What a program was built on, and what it gets elsewhere. The seam between this room and `environments`."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_training.errors import InputError

__all__ = ["MatchedEnvironment", "match_environment", "record_environment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedEnvironment:
    interpreter: str
    description: str


def record_environment() -> bytes:
    """The environment of this interpreter as it is sent: equal environments give equal bytes."""
    record = {
        "executable": sys.executable,
        "prefix": sys.prefix,
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "platform": sys.platform,
        "machine": platform.machine(),
    }
    return json.dumps(record, sort_keys=True).encode()


def match_environment(record: bytes, *, same_machine: bool) -> MatchedEnvironment:
    """What a program of that environment runs in here; raises InputError with the difference.

    `same_machine`: its interpreter is this machine's too, and is used as it is.
    """
    try:
        wanted: Mapping[str, Any] = json.loads(record)
        executable, python = str(wanted["executable"]), str(wanted["python"])
    except (ValueError, KeyError, TypeError):
        raise InputError.of(
            code="wrong_type", field="environment", message="is no record of an environment"
        ) from None
    if same_machine and os.access(executable, os.X_OK):
        return MatchedEnvironment(
            interpreter=executable, description=f"Python {python} of {wanted.get('prefix', '')}"
        )
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    theirs = ".".join(python.split(".")[:2])
    if theirs != mine or wanted.get("platform") != sys.platform:
        raise InputError.of(
            code="not_supported",
            field="environment.python",
            message=f"the program runs on Python {theirs} of {wanted.get('platform')}, and here is"
            f" Python {mine} of {sys.platform}",
            value=python,
            allowed=[mine],
            hint=f"make an environment of Python {mine} and submit from there",
        )
    return MatchedEnvironment(
        interpreter=sys.executable, description=f"Python {platform.python_version()} of the service"
    )
