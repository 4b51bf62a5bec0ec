"""Where the threads of a process that hangs stand, written into the instance's log.

Python 3.8 and newer: it runs inside pods too.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import time

from airflow_training.agent import proc

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DUMP_SECONDS", "dump_stacks"]

DUMP_SECONDS = 20.0
"""How long all dumps together may take."""
_ONE_SECONDS = 8.0
_MOST_PROCESSES = 16
_ABORT_SECONDS = 0.5


def dump_stacks(tree: Mapping[int, int], *, log: int, search_path: str) -> None:
    """Write the stacks of every Python process of `tree` (pid -> start time) to the file `log`.

    With py-spy where it is found on `search_path`, which leaves the process alone. Otherwise by
    Python's own faulthandler: SIGABRT makes a process that was started with PYTHONFAULTHANDLER
    print its stacks, and ends it. Only for processes that are to be ended anyway.
    """
    until = time.monotonic() + DUMP_SECONDS
    spy = shutil.which("py-spy", path=search_path)
    aborted = False
    for pid, start in sorted(tree.items())[:_MOST_PROCESSES]:
        if not _is_python(pid) or time.monotonic() > until:
            continue
        if spy is not None and _spy_out(spy, pid, log):
            continue
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))  # nobody wants its memory on disk
        aborted |= proc.kill_exactly(pid, start, signal.SIGABRT)
    if aborted:
        time.sleep(_ABORT_SECONDS)  # nothing tells when it has printed all


def _is_python(pid: int) -> bool:
    try:
        name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))  # noqa: PTH115, PTH119  # Python 3.8
    except OSError:
        return False
    return name.startswith(("python", "pypy"))


def _spy_out(spy: str, pid: int, log: int) -> bool:
    try:
        done = subprocess.run(
            [spy, "dump", "--nonblocking", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.DEVNULL,
            timeout=_ONE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
