"""What of an output is whole is brought away while the command still writes more of it. Python 3.8 and newer.

A file counts once two looks have found it the same and no process of the command has it open for writing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from airflow_training.agent import proc
from airflow_training.agent.finishing import open_for_writing

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from airflow_training.agent.loop import Loop
    from airflow_training.agent.order import Order

__all__ = ["EarlyOutput"]

_LOOK_SECONDS = 3.0
_SHARE = 20
"""After a look comes a pause of at least so many times as long as it took to find what is there."""


class EarlyOutput:
    """The child of an agent that does it; it ends with the command, or with its agent."""

    def __init__(
        self,
        order: Order,
        *,
        loop: Loop,
        environment: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        """`environment`: has the credentials of the storage. `say` leaves a line in the log."""
        self._order = order
        self._loop = loop
        self._environment = environment
        self._say = say
        self._child: int | None = None
        self._pid = 0

    def begin(self) -> None:
        """Start it, where the order wants it."""
        if not (self._order.output_continuous and self._order.output_uri):
            return
        agent = os.getpid()

        def live() -> None:
            proc.die_with_parent()
            if os.getppid() == agent:
                os.environ.update(self._environment)
                _follow(self._order, agent=agent, say=self._say)

        self._child = self._pid = self._loop.fork(live, ended=self._ended)

    def end(self) -> None:
        """End it at once: what is half away is brought away whole with the rest."""
        if self._child is not None:  # not waited for yet: the number is its own
            os.kill(self._child, signal.SIGKILL)

    def clean(self) -> None:
        """Remove what it has left half copied; it is over."""
        if self._pid:
            from airflow_training.agent.upload import remove_parts

            remove_parts(self._order.output_uri, self._pid)

    def _ended(self, _: int) -> None:
        self._child = None


def _follow(order: Order, *, agent: int, say: Callable[[str], None]) -> None:
    """Look again and again; never returns."""
    state = _Away(order)
    complained = False
    while True:
        began = time.monotonic()
        took = 0.0
        try:
            found = state.found()
            took = time.monotonic() - began
            state.bring(found, others=[*proc.descendants(agent)])
        except Exception as error:  # noqa: BLE001  # whatever a storage client raises
            if not complained:
                complained = True
                say(f"what is whole of the output is not away yet: {order.output_uri}: {error!r}")
        time.sleep(max(_LOOK_SECONDS, _SHARE * took))


class _Away:
    """What is at the address already, and as what it was found last."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._before: dict[str, list[int]] = {}
        """Name -> size and time at the last look."""
        self._away: dict[str, list[int]] = {}
        self._rows: dict[str, dict[str, Any]] = {}
        """What was written below the code and is away, as the list of it has it."""

    def found(self) -> dict[str, Path]:
        """Every file of the output by its name there."""
        from airflow_training.agent.upload import output_files

        found: dict[str, Path] = {}
        with contextlib.suppress(
            FileNotFoundError
        ):  # a folder of old checkpoints was removed meanwhile
            found.update(output_files(Path(self._order.output_dir)))
        if self._order.code is not None:
            from airflow_training.agent.code_setup import CHANGES_FOLDER
            from airflow_training.agent.code_tree import changed_files

            changed = changed_files(Path(self._order.code_dir))
            found.update((f"{CHANGES_FOLDER}/{name}", path) for name, path in changed.items())
        return found

    def bring(self, found: Mapping[str, Path], *, others: list[int]) -> None:
        """Bring away what is whole and was not, then the list of it; raises what the storage raises."""
        marks = {name: mark for name, path in found.items() if (mark := _mark(path))}
        folders = [self._order.output_dir, self._order.code_dir]
        written = {
            path
            for path, _ in open_for_writing(
                [each for each in others if each != os.getpid()],
                [os.path.realpath(each) for each in folders if each],
            )
        }
        whole = [
            name
            for name, mark in marks.items()
            if self._before.get(name) == mark
            and self._away.get(name) != mark
            and os.path.realpath(str(found[name])) not in written
        ]
        self._before = marks
        problems = [self._problem_of(name, found[name], marks[name]) for name in whole]
        if whole and self._order.code is not None:
            self._tell()
        for each in problems:
            if each is not None:
                raise each

    def _problem_of(self, name: str, path: Path, mark: list[int]) -> Exception | None:
        """Bring one file; whatever the storage raises is returned, so that the others come all the same."""
        try:
            self._bring_one(name, path, mark)
        except Exception as error:  # noqa: BLE001  # whatever a storage client raises
            return error if _mark(path) else None  # removed meanwhile, as old checkpoints are
        return None

    def _bring_one(self, name: str, path: Path, mark: list[int]) -> None:
        from airflow_training.agent.code_setup import CHANGES_FOLDER, change_row
        from airflow_training.agent.upload import put_file

        place, folder = "", f"{CHANGES_FOLDER}/"
        if name.startswith(folder):
            place = name[len(folder) :]
        row = change_row(place, path)
        uri = f"{self._order.output_uri.rstrip('/')}/{name}"
        if not put_file(path, uri, whole=lambda: _mark(path) == mark):
            return  # it was written again meanwhile: the next look brings it
        self._away[name] = mark
        if place:
            self._rows[place] = row

    def _tell(self) -> None:
        from airflow_training.agent.code_setup import CHANGES_FILE, changes_text
        from airflow_training.agent.upload import put

        rows = [self._rows[each] for each in sorted(self._rows)]
        put(changes_text(rows).encode(), f"{self._order.output_uri.rstrip('/')}/{CHANGES_FILE}")


def _mark(path: Path) -> list[int]:
    """Size and time of a file; empty where it is gone."""
    with contextlib.suppress(OSError):
        info = path.stat()
        return [info.st_size, info.st_mtime_ns]
    return []
