"""What a growing progress file says by now: its lines, folded into one document.

Python 3.8 and newer: it runs inside pods too. What scripts write is taken as it is, and checked by
who reads the document.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from airflow_training.agent.data_files import DataFiles

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

__all__ = ["MOST_POINTS", "NewestProgress", "merge_points"]

MOST_POINTS = 256
"""Of one metric in one look."""
_MOST_OF_ALL_METRICS = 4096
_MOST_BYTES = 1 << 18
"""Of what has grown since the last look, the newest: a script may write faster than one can read."""
_SMALLEST_SECONDS = 1e-6
"""Between two lines that tell the same time: two points of a metric never share one."""
_KEPT_STEPS = 50
_TOO_LARGE = 1 << 63
_MOST_PROCESSES = 128
"""Of one instance, so that what they tell fits into a report."""
_MOST_REJECTED = 8
_MOST_REGROUPED = 8
"""Checkpoints that were not restored, the newest."""
_SAMPLES = "system/samples"
"""Among the points: `control.system_metrics.SAMPLES`."""
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


def merge_points(
    earlier: Mapping[str, Sequence[Any]],
    later: Mapping[str, Sequence[Any]],
    *,
    most: int = MOST_POINTS,
) -> dict[str, list[Any]]:
    """Return the points (step, time, value) of both by metric: of each about `most`, no extreme lost."""
    return {
        name: _reduce([*earlier.get(name, ()), *later.get(name, ())], most)
        for name in {**earlier, **later}
    }


def _reduce(points: list[Any], most: int) -> list[Any]:
    """Keep the first, the lowest, the highest and the last of each stretch, and its first NaN."""
    if len(points) <= most:
        return points
    length = -(-len(points) // max(1, most // 4))
    kept = []
    for start in range(0, len(points), length):
        stretch = points[start : start + length]
        numbers = sorted((p for p in stretch if p[2] == p[2]), key=lambda point: point[2])
        not_numbers = [p for p in stretch if p[2] != p[2]]
        wanted = [stretch[0], stretch[-1], *numbers[:1], *numbers[-1:], *not_numbers[:1]]
        kept += [p for p in stretch if any(p is each for each in wanted)]
    return kept


class NewestProgress:
    """Follows one file. `document` is a new object whenever something in it changed.

    Its `points` are those of all lines that came with the last look that found any.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.seen_bytes = 0
        """How large the file was when it was last looked at."""
        self.step_seconds: list[float] = []
        """Of the newest steps, at most 50."""
        self._last: tuple[float, float] | None = None
        self._now: float | None = None
        """When a line was written that does not say so; None: at no time that is known."""
        self._line_time: float | None = None
        self._point_time = 0.0
        self._looked = False
        self._files = DataFiles()
        self.document: dict[str, Any] = {}

    def poll(self) -> dict[str, Any]:
        """Return the document after the whole lines that came since the last look; {}: none yet."""
        # what the first look finds may be old, and told of before by somebody else
        self._now = time.time() if self._looked else None
        self._looked = True
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
            document = {**self.document, "points": {}}
            for line in whole.split(b"\n"):
                self._fold(document, line)
            points = document.pop("points")
            if points:
                most = min(MOST_POINTS, _MOST_OF_ALL_METRICS // len(points))
                document["points"] = merge_points(points, {}, most=most)
            if files := self._files.document():
                document["files"] = files
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
        if isinstance(values.get("rejected"), list):
            document["rejected"] = [*document.get("rejected", []), *values["rejected"]][
                -_MOST_REJECTED:
            ]
        if isinstance(values.get("regrouped"), dict):
            told = {**values["regrouped"], "at": values.get("time")}
            document["regrouped"] = [*document.get("regrouped", []), told][-_MOST_REGROUPED:]
        if "section" in values:
            document["section"] = values["section"]
            self._last = None  # what a section takes is no step's time
        if "time" in values:
            document["time"] = values["time"]
        self._files.add(values.get("files"))
        if not any(name in values for name in _STEP):
            return
        for name in _STEP:
            document.pop(name, None)
            if name in values:
                document[name] = values[name]
        self._add_points(document["points"], values)
        self._time(values.get("step"), values.get("time"))

    def _add_points(self, points: dict[str, list[Any]], values: dict[str, Any]) -> None:
        step, at, metrics = values.get("step"), values.get("time"), values.get("metrics")
        at = at if _is_plain(at) else self._now
        told = {**metrics} if isinstance(metrics, dict) else {}
        if values.get("samples") is not None:
            told[_SAMPLES] = values["samples"]
        if at is None or not told:
            return
        if at == self._line_time:
            self._point_time += _SMALLEST_SECONDS
        else:
            self._line_time = self._point_time = at
        for name, value in told.items():
            if isinstance(value, float) or _is_plain(value):
                point = [step if _is_plain(step) else None, self._point_time, value]
                points.setdefault(name, []).append(point)

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
