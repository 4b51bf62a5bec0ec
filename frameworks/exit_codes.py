"""Named tables of exit codes that may, and may not, be tried again. Data only."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_training.spec.resolved import ExitCodeTable

__all__ = ["TABLES"]

_SHELL_ERRORS = (1, 2, 126, 127, 128)
"""General error, misuse, not executable, not found, bad argument to exit."""

TABLES: Mapping[str, ExitCodeTable] = {
    # 75: EX_TEMPFAIL of sysexits.h. 134: abort(), how communication libraries give up on a lost
    # peer. 135: SIGBUS, a full /dev/shm. 130, 137, 143: INT, KILL, TERM from outside.
    # 132, 139: illegal instruction, segmentation fault: the same binary does it again.
    "default": ExitCodeTable(
        name="default",
        retryable=(75, 130, 134, 135, 137, 138, 143),
        permanent=(*_SHELL_ERRORS, 132, 139),
    ),
    # 138: SIGUSR1, which its training operator leaves to the user to say "try again".
    "kubeflow": ExitCodeTable(
        name="kubeflow", retryable=(130, 137, 138, 143), permanent=(*_SHELL_ERRORS, 139)
    ),
    "kubedl": ExitCodeTable(
        name="kubedl", retryable=(130, 137, 138, 143), permanent=(*_SHELL_ERRORS, 139)
    ),
}
