"""The process beside a script that knows nothing of checkpoints: it commits what the script writes.

What it does is in `airflow_training.checkpoints.watching`; here it is started, heard and ended.
Python 3.8 and newer: it runs inside pods too.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from airflow_training.agent import proc
from airflow_training.agent.library import python_path

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LAST_LOOK_SECONDS", "Companion"]

LAST_LOOK_SECONDS = 120.0
"""How long it may take to commit what a script that has ended left behind."""
_MODULE = "airflow_training.checkpoints.watching"
_RESTARTS = 5
_ENDED_WELL = (0, 128 + signal.SIGTERM)
"""143: what Python scripts exit with once they have saved after SIGTERM."""


class Companion:
    """Starts the process, again where it dies beside a living script."""

    def __init__(
        self, folder: str, *, environment: Mapping[str, str], working_dir: str, log: int
    ) -> None:
        """`folder`: what is watched, below `working_dir` unless it is absolute."""
        self._folder = os.path.join(working_dir, folder)  # noqa: PTH118  # as the script means it
        self._environment = dict(environment)
        self._log = log
        self._restarts = 0
        self.pid: int | None = None

    def start(self, *, again: bool = False) -> int:
        """Start it; return the descriptor from which `answer` can be read."""
        read, write = os.pipe()
        agent = os.getpid()
        path = python_path(self._environment)
        command = [sys.executable, "-m", _MODULE, self._folder, str(write)]
        if again:
            command.append("--again")
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                for number in (
                    signal.SIGTERM,
                    signal.SIGUSR1,
                    signal.SIGUSR2,
                ):  # until it listens itself
                    signal.signal(number, signal.SIG_IGN)
                signal.pthread_sigmask(signal.SIG_SETMASK, set())
                proc.die_with_parent()
                if os.getppid() != agent:
                    os._exit(255)
                os.set_inheritable(write, True)  # noqa: FBT003  # the standard library's
                os.dup2(self._log, 1)
                os.dup2(self._log, 2)
                os.chdir("/")  # what lies beside the script is none of its modules
                os.execve(command[0], command, {**self._environment, "PYTHONPATH": path})  # noqa: S606  # what we are for
            finally:
                os._exit(255)
        os.close(write)
        self.pid = pid
        return read

    @staticmethod
    def answer(pipe: int) -> tuple[str, str]:
        """Return (reason, message) of why it cannot work, empty texts once the folder is as it should be.

        Blocks until then. `CheckpointRefused`: it never will, in this image or at this address.
        """
        with os.fdopen(pipe, "rb") as file:
            text = file.read()
        try:
            told = json.loads(text)
        except ValueError:
            return "RestoreFailed", "it ended before it had looked; the log says more"
        if "error" not in told:
            return "", ""
        return "CheckpointRefused" if told["hopeless"] else "RestoreFailed", told["error"]

    def start_again(self) -> int | None:
        """Start it once more beside the script; None where it died too often."""
        self.pid = None
        self._restarts += 1
        return None if self._restarts > _RESTARTS else self.start(again=True)

    def end(self, wait_status: int) -> None:
        """Let it go, after a last look where the script ended by itself: else files may be half written.

        `wait_status`: of the script.
        """
        whole = os.WIFEXITED(wait_status) and os.WEXITSTATUS(wait_status) in _ENDED_WELL
        if self.pid is not None:  # not waited for yet: the number is its own
            os.kill(self.pid, signal.SIGUSR2 if whole else signal.SIGUSR1)
