"""The process that fetches data on demand for a command whose code was laid out by its agent.

What it does is in `airflow_training.remote_data.beside_command`, which comes with the tree of the code; here it is started,
heard and ended. Python 3.8 and newer: it runs inside pods too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

from airflow_training.agent import proc
from airflow_training.agent.code_tree import remove_folder

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from airflow_training.agent.loop import Loop

__all__ = ["PROGRAM_FOLDER", "DataFetcher", "listed_files"]

PROGRAM_FOLDER = "on-demand"
"""Of the tree: the package that fetches, and `data.json`, the list of what it fetches."""
_LIST = "data.json"
_MODULE = "airflow_training.remote_data.beside_command"
_RESTARTS = 5
_LAST_LOOK_SECONDS = 120.0
_READ_BYTES = 1 << 16
_REASON = "DataError"


class DataFetcher:
    """Starts the process, again where it dies beside a living command."""

    def __init__(
        self,
        folder: Path,
        *,
        python: str,
        state: Path,
        loop: Loop,
        environment: Mapping[str, str],
        log: int,
        say: Callable[[str], None],
    ) -> None:
        """`folder`: of the code. `python`: of the command. `state`: of this attempt only."""
        self._folder = folder
        self._python = python
        self._state = state
        self._loop = loop
        self._environment = environment
        self._log = log
        self._say = say
        self._restarts = 0
        self._pid: int | None = None
        self._input = -1
        self._answers = b""
        self._answered: Callable[[str, str], None] | None = None
        self._ended: Callable[[tuple[str, str] | None], None] | None = None
        self.variables: Mapping[str, str] = {}
        """What the command is told, so that it waits for its data."""

    def start(self, answered: Callable[[str, str], None]) -> None:
        """Lay the data out without content; `answered` gets reason and message of why that is impossible, or "", ""."""
        self._answered = answered
        remove_folder(self._state)
        self._start()

    def processes(self) -> set[int]:
        """What fetches; nothing of the attempt."""
        if self._pid is None:
            return set()
        return {self._pid, *proc.descendants(self._pid)}

    def end(self, ended: Callable[[tuple[str, str] | None], None]) -> None:
        """Have it look for the last time; `ended` gets reason and message of what was not there when it was read."""
        self._ended = ended
        self._restarts = _RESTARTS
        if self._pid is None:
            self._lost()
            return
        self._loop.after(_LAST_LOOK_SECONDS, "data", self._kill)
        self._let_go()

    def close(self) -> None:
        """Let it end by itself, where nobody asks how it went."""
        self._answered = self._ended = None
        self._restarts = _RESTARTS
        self._let_go()

    def _let_go(self) -> None:
        if self._input >= 0:
            with contextlib.suppress(OSError):  # it is gone already
                os.write(self._input, b"\n")  # our other children hold the pipe open
            os.close(self._input)
            self._input = -1

    def _kill(self) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _start(self) -> None:
        self._state.mkdir(parents=True, exist_ok=True)
        words, self._input = os.pipe()
        answers, write = os.pipe()
        agent = os.getpid()
        python = self._python or sys.executable
        command = [python, "-m", _MODULE, str(self._folder), str(self._state)]
        environment = {
            name: text for name, text in self._environment.items() if name != "PYTHONPATH"
        }
        environment["PYTHONPATH"] = str(self._folder / PROGRAM_FOLDER)
        pid = os.fork()
        if pid == 0:
            try:
                self._loop.leave()
                proc.die_with_parent()
                if os.getppid() != agent:
                    os._exit(255)
                os.dup2(words, 0)
                os.dup2(write, 1)
                os.dup2(self._log, 2)
                os.chdir(str(self._state))
                os.execvpe(command[0], command, environment)  # noqa: S606  # what we are for
            finally:
                os._exit(255)
        os.close(words)
        os.close(write)
        self._pid, self._answers = pid, b""
        self._loop.when_ended(pid, lambda _: self._died(answers))
        self._loop.when_readable(answers, lambda: self._read(answers))

    def _read(self, answers: int) -> None:
        data = os.read(answers, _READ_BYTES)
        self._answers += data
        if not data:
            self._loop.forget(answers)
            return
        while b"\n" in self._answers:
            line, _, self._answers = self._answers.partition(b"\n")
            try:
                told = json.loads(line)
            except ValueError:  # what an image prints whenever its Python starts
                continue
            if isinstance(told, dict):
                self._hear(told)

    def _hear(self, told: Mapping[str, Any]) -> None:
        if "variables" in told:
            self.variables = told["variables"]
            self._answer("", "")
        elif "failure" in told:
            failure = told["failure"]
            self._finish(None if failure is None else (str(failure[0]), str(failure[1])))
        elif "error" in told:
            self._answer(str(told["error"]), str(told["message"]))

    def _answer(self, reason: str, message: str) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(reason, message)

    def _finish(self, failure: tuple[str, str] | None) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            self._loop.cancel("data")
            ended(failure)

    def _died(self, answers: int) -> None:
        self._let_go()
        with contextlib.suppress(OSError, ValueError):  # what it said last, and was not read yet
            os.set_blocking(answers, False)
            self._read(answers)
        self._loop.forget(answers)
        os.close(answers)
        self._pid = None
        if self._answered is not None:
            self._answer(_REASON, "what fetches the data did not start; the log says more")
        elif self._ended is not None:
            self._lost()
        elif self.variables and self._restarts < _RESTARTS:
            self._restarts += 1
            self._say("what fetches the data has died and is started again")
            self._start()

    def _lost(self) -> None:
        self._finish((_REASON, "what fetches the data ended before the command did"))


def listed_files(folder: Path) -> Mapping[str, tuple[int, int]]:
    """Size and time of each file of a laid out tree that comes on demand, by its name; none without such."""
    path = folder / PROGRAM_FOLDER / _LIST
    if not path.is_file():
        return {}
    return {
        f"{root['name']}/{name}": (size, mtime)
        for root in json.loads(path.read_text(encoding="utf-8"))
        for name, size, mtime, _ in root["files"]
    }
