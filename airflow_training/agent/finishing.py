"""A command is ended early as one that has done all, so that its output is brought away. Python 3.8 and newer."""

from __future__ import annotations

import os
import signal
import time

from airflow_training.agent import proc

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from airflow_training.agent.loop import Loop

__all__ = ["EarlyEnd", "open_for_writing"]

_LOOK_SECONDS = 0.1
_WRITING_SECONDS = 60.0
"""How long a file that is being written may take at most, before the command is told to end all the same."""
_UNCHANGED_SECONDS = 1.0
"""A file that is open, and does not grow for so long, is not being written."""
_LOG_SUFFIXES = (".log", ".txt", ".csv", ".jsonl", ".out", ".err")
_EVENTS = "tfevents"
"""In the names of TensorBoard's files, which stay open."""


class EarlyEnd:
    """The order to finish, of one attempt: told once a file that is being written is whole."""

    def __init__(
        self,
        folders: Collection[str],
        *,
        loop: Loop,
        tree: Callable[[], Mapping[int, int]],
        kill: Callable[[], None],
    ) -> None:
        """`folders`: where output is written. `tree`: pid -> start time of what lives. `kill` ends it at once."""
        self._folders = [os.path.realpath(each) for each in folders if each]
        self._loop = loop
        self._tree = tree
        self._kill = kill
        self._grace_seconds = 0.0
        self._until = 0.0
        self._sizes: dict[str, tuple[int, float]] = {}
        """Open file -> its size, and since when it has that."""
        self.ordered = False
        self.told = False
        """The command was sent TERM: however it ends from then on, that is well."""
        self.killed = False

    def begin(self, grace_seconds: float) -> None:
        """Let the command end: TERM to its whole tree, KILL after the grace. Once, however often it is ordered."""
        if self.ordered:
            return
        self.ordered, self._grace_seconds = True, grace_seconds
        self._until = time.monotonic() + _WRITING_SECONDS
        self._look()

    def over(self) -> None:
        """Nothing of the command lives any more."""
        self._loop.cancel("early end")
        if self.told:
            self._loop.cancel("kill")

    def message(self, exit_code: int) -> str:
        """How the command took it, for people."""
        if self.killed:
            return (
                f"told to finish, and killed as it did not end within {self._grace_seconds:g} s:"
                " a file that it was writing may not be whole"
            )
        return f"told to finish, and ended with exit code {exit_code}"

    def _look(self) -> None:
        now = time.monotonic()
        tree = self._tree()
        if now < self._until and self._is_writing(tree, now):
            self._loop.after(_LOOK_SECONDS, "early end", self._look)
            return
        self.told = True
        self._loop.after(self._grace_seconds, "kill", self._end_now)
        proc.signal_processes(tree, signal.SIGTERM, signal.SIGCONT)

    def _is_writing(self, tree: Collection[int], now: float) -> bool:
        found = {}
        for path, size in open_for_writing(tree, self._folders):
            before, since = self._sizes.get(path, (-1, now))
            found[path] = (size, since if size == before else now)
        self._sizes = found
        return any(now - since < _UNCHANGED_SECONDS for _, since in found.values())

    def _end_now(self) -> None:
        self.killed = True
        self._kill()


def open_for_writing(pids: Collection[int], folders: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield (path, size) of files below `folders` that processes are writing anew; no logs, which stay open."""
    for pid in pids:
        try:
            numbers = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208  # pathlib costs more, and it runs in every look
        except OSError:  # it has ended, or is another user's
            continue
        for number in numbers:
            try:
                path = os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115  # as above
                if not any(path.startswith(f"{folder}/") for folder in folders) or _is_log(path):
                    continue
                with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii") as file:  # noqa: PTH123  # as above
                    flags = int(file.read().partition("flags:")[2].split()[0], 8)
                if flags & os.O_ACCMODE != os.O_RDONLY and not flags & os.O_APPEND:
                    yield path, os.stat(path).st_size  # noqa: PTH116  # as above
            except (OSError, IndexError, ValueError):  # closed, or renamed, meanwhile
                continue


def _is_log(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(_LOG_SUFFIXES) or _EVENTS in name
