"""What a training was set to, as the hook in it has told: one document of all its lines.

Python 3.8 and newer: it runs inside pods too. Names and values are taken as they are, and checked again by who reads them.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

__all__ = ["MOST_BYTES", "ParametersFile"]

MOST_BYTES = 4096
"""Of the document; what is told later is left out."""
_READ_BYTES = 1 << 16
_NAME = "parameters.jsonl"
"""As `interception.protocol` has it."""


class ParametersFile:
    """Follows the file beside that of the progress."""

    def __init__(self, progress: Path) -> None:
        """`progress`: where a script's progress is."""
        self._path = str(progress.with_name(_NAME))
        self._size = 0
        self.document: dict[str, dict[str, Any]] = {}
        """Who tells -> name -> value."""

    def poll(self) -> bool:
        """Read what has come; return whether something has."""
        try:
            size = os.stat(self._path).st_size  # noqa: PTH116  # pathlib is slow, and this is each look
            if size == self._size:
                return False
            with open(self._path, "rb") as file:  # noqa: PTH123  # as above
                content = file.read(_READ_BYTES)
        except OSError:
            return False
        self._size = size
        self.document = {}
        for line in content.split(b"\n")[:-1]:  # what follows the last one is half written
            self._add(line)
        return True

    def _add(self, line: bytes) -> None:
        try:
            told = json.loads(line)
            json.dumps(told, allow_nan=False)  # NaN is no JSON, and equals nothing, not itself
            source, values = told["from"], told["values"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return
        if not isinstance(source, str) or not isinstance(values, dict):
            return
        name, number = source, 1
        while any(
            self.document.get(name, {}).get(key, each) != each for key, each in values.items()
        ):
            number += 1
            name = f"{source} ({number})"
        found = {**self.document, name: {**self.document.get(name, {}), **values}}
        if len(json.dumps(found)) <= MOST_BYTES:
            self.document = found
