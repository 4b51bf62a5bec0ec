"""Where a process that an agent starts finds our library: in the agent's own file. Python 3.8 and newer."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["library_path", "python_path"]

_PARAMETERS = "TRAINING_PARAMETERS"
_HOOK = "airflow_training/interception/bootstrap"
"""Of this program: what a Python that finds it there runs at its start."""


def python_path(environment: Mapping[str, str]) -> str:
    """Return a PYTHONPATH that holds this program too, after whatever the user wants."""
    # `resolve` follows links, `absolute` keeps `..`
    return library_path(os.path.abspath(sys.argv[0]), environment)  # noqa: PTH100  # pathlib is not imported yet


def library_path(program: str, environment: Mapping[str, str]) -> str:
    """Return the PYTHONPATH of an environment with a program; before all, its hook where the job wants it."""
    hook = f"{program}/{_HOOK}" if environment.get(_PARAMETERS) else ""
    paths = (hook, environment.get("PYTHONPATH", ""), program)
    return os.pathsep.join(each for each in paths if each)
