"""What a growing progress file says by now: its lines, folded into one document.

Python 3.8 and newer: it runs inside pods too. What scripts write is taken as it is, and checked by
who reads the document.
"""

from __future__ import annotations

import json
from pathlib import Path

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from typing import Any

__all__ = ["NewestProgress"]

_MOST_BYTES = 1 << 16
"""Of what has grown since the last look, the newest: a script may write faster than one can read."""
_KEPT_STEPS = 50
_TOO_LARGE = 1 << 63
_MOST_PROCESSES = 128
"""Of one instance, so that what they tell fits into a report."""
_STEP = ("step", "total_steps", "epoch", "samples", "metrics")
"""What one line says of a step; the next such line replaces all of it."""


def _is_plain(value: Any) -> bool:
    """Return whether it is a number one can count with: neither infinite nor beyond any step."""
    return isinstance(value, (int, float)) and abs(value) < _TOO_LARGE


def _fold_subtask(document: dict[str, Any], told: Any) -> None:
    """Keep the newest line of each process."""
    if not isinstance(told, dict):
        return
    key = _process(told)
    others = [each for each in document.get("subtasks", []) if _process(each) != key]
    if len(others) < _MOST_PROCESSES:
        document["subtasks"] = [*others, told]


def _process(told: dict[str, Any]) -> tuple[Any, Any]:
    return told.get("group", ""), told.get("rank")


class NewestProgress:
    """Follows one file. `document` is a new object whenever something in it changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.seen_bytes = 0
        """How large the file was when it was last looked at."""
        self.step_seconds: list[float] = []
        """Of the newest steps, at most 50."""
        self._last: tuple[float, float] | None = None
        self.document: dict[str, Any] = {}

    def look(self) -> dict[str, Any]:
        """Return the document after the whole lines that came since the last look; {}: none yet."""
        try:
            with self._path.open("rb") as file:
                self.seen_bytes = size = file.seek(0, 2)
                if size < self._offset:  # somebody began it anew
                    self._offset = 0
                if size == self._offset:
                    return self.document
                start = max(self._offset, size - _MOST_BYTES)
                file.seek(start)
                whole, newline, _ = file.read(size - start).rpartition(b"\n")
        except OSError:
            return self.document
        if newline:  # what follows the last newline is half written
            self._offset = start + len(whole) + 1
            document = dict(self.document)
            for line in whole.split(b"\n"):
                self._fold(document, line)
            self.document = document
        return self.document

    def _fold(self, document: dict[str, Any], line: bytes) -> None:
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(values, dict):
            return
        if "checkpoint" in values:
            document["checkpoint"] = values["checkpoint"]
        if "subtask" in values:
            _fold_subtask(document, values["subtask"])
        if "section" in values:
            document["section"] = values["section"]
            self._last = None  # what a section takes is no step's time
        if "time" in values:
            document["time"] = values["time"]
        if not any(name in values for name in _STEP):
            return
        for name in _STEP:
            document.pop(name, None)
            if name in values:
                document[name] = values[name]
        self._time(values.get("step"), values.get("time"))

    def _time(self, step: Any, at: Any) -> None:
        if not (_is_plain(step) and _is_plain(at)):
            return
        last, self._last = self._last, (step, at)
        if last is None or step <= last[0] or at < last[1]:
            return  # it has begun again, from an earlier step
        steps = step - last[0]
        # a report of many steps counts as so many: it says nothing of them but their mean
        count = max(1, min(int(steps), _KEPT_STEPS))
        self.step_seconds += [(at - last[1]) / steps] * count
        del self.step_seconds[:-_KEPT_STEPS]
