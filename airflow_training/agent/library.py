"""Where a process that an agent starts finds our library: in the agent's own file. Python 3.8 and newer."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["python_path"]


def python_path(environment: Mapping[str, str]) -> str:
    """Return a PYTHONPATH that holds this program too, after whatever the user wants."""
    program = os.path.abspath(sys.argv[0])  # noqa: PTH100  # `resolve` follows links, `absolute` keeps `..`
    own = environment.get("PYTHONPATH")
    return f"{own}{os.pathsep}{program}" if own else program
