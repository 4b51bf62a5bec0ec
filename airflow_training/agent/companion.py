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
    from collections.abc import Callable, Mapping

    from airflow_training.agent.loop import Loop

__all__ = ["Companion"]

_LAST_LOOK_SECONDS = 120.0
"""How long it may take to commit what a script that has ended left behind."""
_MODULE = "airflow_training.checkpoints.watching"
_RESTARTS = 5
_ENDED_WELL = (0, 128 + signal.SIGTERM)
"""143: what Python scripts exit with once they have saved after SIGTERM."""


class Companion:
    """Starts the process, again where it dies beside a living script."""

    def __init__(
        self,
        folder: str,
        *,
        loop: Loop,
        environment: Mapping[str, str],
        working_dir: str,
        log: int,
        say: Callable[[str], None],
    ) -> None:
        """`folder`: what is watched, below `working_dir` unless it is absolute."""
        self._folder = os.path.join(working_dir, folder)  # noqa: PTH118  # as the script means it
        self._loop = loop
        self._environment = dict(environment)
        self._log = log
        self._say = say
        self._restarts = 0
        self._is_beside_script = False
        self._ended: Callable[[], None] | None = None
        self.pid: int | None = None

    def start(self, answered: Callable[[str, str], None]) -> None:
        """Start it; `answered` gets reason and message of why it cannot work.

        Empty texts: the folder is as it should be. `CheckpointRefused`: it never will, in this image
        or at this address.
        """
        pipe = self._start()

        def read() -> None:
            self._loop.forget(pipe)
            answered(*_answer(pipe))

        self._loop.when_readable(pipe, read)

    def script_started(self) -> None:
        """Keep it alive from now on."""
        self._is_beside_script = True

    def end(self, wait_status: int, ended: Callable[[], None]) -> None:
        """Let it go, after a last look where the script ended by itself: else files may be half written.

        `wait_status`: of the script. `ended` is called once it is gone, or has had its time.
        """
        self._is_beside_script = False
        if self.pid is None:
            ended()
            return
        whole = os.WIFEXITED(wait_status) and os.WEXITSTATUS(wait_status) in _ENDED_WELL
        self._ended = ended
        self._loop.after(_LAST_LOOK_SECONDS, "last look", self._is_over)
        # not waited for yet: the number is its own
        os.kill(self.pid, signal.SIGUSR2 if whole else signal.SIGUSR1)

    def kill(self) -> None:
        """End it before there was a script: nothing was written since the last time."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)

    def _was_ended(self, wait_status: int) -> None:
        self.pid = None
        if self._ended is not None:
            self._is_over()
        elif wait_status != 0 and self._is_beside_script:
            self._start_again()

    def _is_over(self) -> None:
        """Say so once: it may end only after its time was up."""
        self._loop.cancel("last look")
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()

    def _start_again(self) -> None:
        self._restarts += 1
        if self._restarts > _RESTARTS:
            self._say("checkpoints are not committed any more: what watches the folder died")
            return
        pipe = self._start("--again")

        def read() -> None:
            self._loop.forget(pipe)
            _, problem = _answer(pipe)
            if problem:
                self._say(f"checkpoints are not committed any more: {problem}")

        self._loop.when_readable(pipe, read)

    def _start(self, *options: str) -> int:
        """Start the process; return the descriptor from which its answer can be read."""
        read, write = os.pipe()
        agent = os.getpid()
        path = python_path(self._environment)
        command = [sys.executable, "-m", _MODULE, self._folder, str(write), *options]
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
        self._loop.when_ended(pid, self._was_ended)
        return read


def _answer(pipe: int) -> tuple[str, str]:
    with os.fdopen(pipe, "rb") as file:
        text = file.read()
    try:
        told = json.loads(text)
    except ValueError:
        return "RestoreFailed", "it ended before it had looked; the log says more"
    if "error" not in told:
        return "", ""
    return "CheckpointRefused" if told["hopeless"] else "RestoreFailed", told["error"]
