"""Named tables of exit codes that may, and may not, be tried again. Data only."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_training.documents.resolved import ExitCodeTable

__all__ = ["TABLES"]

_SHELL_ERRORS = (1, 2, 126, 127, 128)
"""General error, misuse, not executable, not found, bad argument to exit."""
_KUBEDL_RETRYABLE = (130, 137, 138, 143)
"""INT, KILL, USR1, TERM."""

TABLES: Mapping[str, ExitCodeTable] = {
    # 75: EX_TEMPFAIL of sysexits.h. 134: abort(), how communication libraries give up on a lost
    # peer. 135: SIGBUS, a full /dev/shm. 130, 137, 143: INT, KILL, TERM from outside.
    # 132, 139: illegal instruction, segmentation fault: the same binary does it again.
    "default": ExitCodeTable(
        name="default",
        retryable=(75, 130, 134, 135, 137, 138, 143),
        permanent=(*_SHELL_ERRORS, 132, 139),
    ),
    # Its training operator (v1): 1 to 127 is the program's own fault, 128 and above a signal.
    "kubeflow": ExitCodeTable(
        name="kubeflow", retryable=tuple(range(128, 256)), permanent=tuple(range(1, 128))
    ),
    # What Kubeflow's first operators did, too. 138: SIGUSR1, left to the user to say "try again";
    # every code that is not named is permanent.
    "kubedl": ExitCodeTable(
        name="kubedl",
        retryable=_KUBEDL_RETRYABLE,
        permanent=tuple(code for code in range(1, 256) if code not in _KUBEDL_RETRYABLE),
    ),
}
