"""What a training process is told by its environment, and the lines that it writes and asks. See docs/data-on-demand.md.

Python 3.8 and newer, standard library only: it runs in whatever Python the training has.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` costs the training's start
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "CODE_ROOTS",
    "DATA_GUARD",
    "DATA_RANGES",
    "DATA_ROOTS",
    "DATA_SOCKET",
    "LOADS_FILE",
    "PARAMETERS",
    "PARAMETERS_NAME",
    "RANGE_BYTES",
    "HookSettings",
    "hook_environment",
]

LOADS_FILE = "TRAINING_LOADS_FILE"
"""A file or FIFO: one JSON line for each path that is opened for the first time."""
DATA_SOCKET = "TRAINING_DATA_SOCKET"
"""A Unix socket: who listens makes files ready that are read below the data roots."""
DATA_ROOTS = "TRAINING_DATA_ROOTS"
"""Folders and files whose content comes on demand, separated as in PATH."""
DATA_GUARD = "TRAINING_DATA_GUARD"
"""`leases` where the kernel itself holds back whoever opens a file that is not there yet."""
DATA_RANGES = "TRAINING_DATA_RANGES"
"""From how many bytes on a file is read in ranges, where it is read by `open(path, "rb")`; no file where not said."""
CODE_ROOTS = "TRAINING_CODE_ROOTS"
"""Folders of the program, separated as in PATH; the working directory where not said."""

PARAMETERS = "TRAINING_PARAMETERS"
"""`tell`: what the training was set to goes to `PARAMETERS_NAME` beside `$TRAINING_PROGRESS_FILE`."""
PARAMETERS_NAME = "parameters.jsonl"
_PROGRESS_FILE = "TRAINING_PROGRESS_FILE"

RANGE_BYTES = 256 << 10
"""A range of a file begins at a multiple of it; the last one may be shorter."""

_BOOTSTRAP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bootstrap")  # noqa: PTH100,PTH118,PTH120  # may lie in a zip


class HookSettings:
    """What one process is told; empty texts and lists: nothing of that kind."""

    __slots__ = (
        "code_roots",
        "data_roots",
        "guard",
        "loads_file",
        "parameters_file",
        "ranges_from",
        "socket",
    )

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Read it from the environment of the process."""
        self.loads_file = environment.get(LOADS_FILE, "")
        self.socket = environment.get(DATA_SOCKET, "")
        self.guard = environment.get(DATA_GUARD, "")
        ranges_from = environment.get(DATA_RANGES, "")
        self.ranges_from = int(ranges_from) if ranges_from.isdecimal() else 0
        self.data_roots = _paths(environment.get(DATA_ROOTS, ""))
        progress = environment.get(_PROGRESS_FILE, "")
        is_told = progress and environment.get(PARAMETERS) and _is_first(environment)
        self.parameters_file = (
            os.path.join(os.path.dirname(progress), PARAMETERS_NAME) if is_told else ""  # noqa: PTH118,PTH120  # pathlib is not imported yet
        )
        self.code_roots = _paths(environment.get(CODE_ROOTS, "")) or (os.getcwd(),)  # noqa: PTH109  # as above

    @property
    def is_wanted(self) -> bool:
        """Whether a hook has anything to do about what is opened."""
        return bool(self.loads_file or (self.socket and self.data_roots))


def _is_first(environment: Mapping[str, str]) -> bool:
    """Whether a process is the first of its instance: all of them are set to the same."""
    return environment.get("LOCAL_RANK", "0") == "0"


def _paths(text: str) -> tuple[str, ...]:
    return tuple(os.path.realpath(each) for each in text.split(os.pathsep) if each)


def hook_environment(
    *,
    loads_file: str = "",
    socket: str = "",
    data_roots: Sequence[str] = (),
    guard: str = "",
    code_roots: Sequence[str] = (),
    python_path: str = "",
    ranges_from: int = 0,
    parameters: bool = False,
) -> dict[str, str]:
    """Return the variables that install the hook in every Python process which gets them.

    Args:
        loads_file: where it says what is opened.
        socket: where it asks for data.
        data_roots: what of.
        guard: `leases` where the kernel holds readers back.
        code_roots: folders of the program.
        python_path: the PYTHONPATH that the processes would have otherwise.
        ranges_from: bytes from which on a file is read in ranges; 0: none is.
        parameters: whether it says what the training was set to.
    """
    told = {
        LOADS_FILE: loads_file,
        DATA_SOCKET: socket,
        DATA_ROOTS: os.pathsep.join(data_roots),
        DATA_GUARD: guard,
        DATA_RANGES: str(ranges_from or ""),
        CODE_ROOTS: os.pathsep.join(code_roots),
        PARAMETERS: "tell" if parameters else "",
        "PYTHONPATH": os.pathsep.join(each for each in (_BOOTSTRAP, python_path) if each),
    }
    return {name: value for name, value in told.items() if value}
