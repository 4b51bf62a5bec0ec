"""What a script says it has read of its files, line by line, as one answer.

Python 3.8 and newer: it runs inside pods too. Names and numbers are taken as scripts write them, and
checked again by who reads the answer.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from typing import Any

__all__ = ["MOST_TOLD", "DataFiles"]

MOST_TOLD = 128
"""Files in a report: those that were read last."""
_MOST_NAME_BYTES = 1 << 14
"""Of their names in a report, which has 64 KiB for everything."""
_LONGEST_NAME = 200
"""Of a longer one the end, which says which file of a folder it is."""
_MOST_KEPT = 4096
_TOO_LARGE = 1 << 63


class DataFiles:
    """Follows `files: [{name, read, total}]` of one attempt."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[float, float | None]] = {}
        """Name -> read, total; what was read last is last."""
        self._read = 0.0
        """Of all files together. A file that is read anew counts again."""

    def add(self, told: Any) -> None:
        """Take what one line says; what is no name with a number read is left out."""
        for each in told if isinstance(told, list) else ():
            if not isinstance(each, dict):
                continue
            name, total = each.get("name"), each.get("total")
            read: Any = each.get("read")
            if isinstance(name, str) and name and _is_amount(read):
                self._put(name[-_LONGEST_NAME:], read, total if _is_amount(total) else None)

    def _put(self, name: str, read: float, total: float | None) -> None:
        earlier = self._files.get(name)
        before = 0.0 if earlier is None or earlier[0] > read else earlier[0]
        self._read += read - before
        if earlier is None or read != earlier[0]:
            self._files.pop(name, None)
        self._files[name] = (read, total)
        if len(self._files) > _MOST_KEPT:
            del self._files[next(iter(self._files))]

    def document(self) -> dict[str, Any]:
        """Return `{read, known, done, newest: [{name, read, total}]}`; {} before any file was told."""
        if not self._files:
            return {}
        newest: list[dict[str, Any]] = []
        room = _MOST_NAME_BYTES
        for name in reversed(self._files):
            room -= len(json.dumps(name))
            if room < 0 or len(newest) == MOST_TOLD:
                break
            read, total = self._files[name]
            newest.append({"name": name, "read": read, "total": total})
        done = sum(total is not None and read >= total for read, total in self._files.values())
        return {"read": self._read, "known": len(self._files), "done": done, "newest": newest}


def _is_amount(value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value < _TOO_LARGE
