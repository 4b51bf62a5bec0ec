"""Patterns over the bytes of one line, in the syntax that Hyperscan, RE2 and Python's `re` read alike."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from re import _constants, _parser  # type: ignore[attr-defined]  # `re` keeps its parser private
from typing import Any

SHORTEST_LITERAL = 4


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A text that is searched in every line, after ANSI sequences and control characters were removed.

    `^` and `$` are not allowed: what stands before a text differs from launcher to launcher.
    """

    name: str
    """Unique among the patterns of one scan."""
    pattern: str
    ignore_case: bool = False

    @cached_property
    def compiled(self) -> re.Pattern[bytes]:
        """Return the pattern for `re`."""
        return re.compile(self.pattern.encode(), re.IGNORECASE if self.ignore_case else 0)

    @cached_property
    def literal(self) -> bytes:
        """Return the longest text that every match holds, in lower case where case does not count."""
        texts = required_literals(self.pattern)
        longest = max(texts, key=len, default=b"")
        return longest.lower() if self.ignore_case else longest


def required_literals(pattern: str) -> list[bytes]:
    """Return the texts without a gap that every match of `pattern` holds; raises `re.error` if it is no pattern."""
    found: list[bytes] = []
    _collect(_parser.parse(pattern.encode()), found)
    return found


def _collect(parsed: Any, found: list[bytes]) -> None:
    text = bytearray()

    def flush() -> None:
        if text:
            found.append(bytes(text))
            text.clear()

    for operation, argument in parsed:
        if operation is _constants.LITERAL:
            text.append(argument)
            continue
        if operation is _constants.SUBPATTERN:
            inner = argument[-1]
            if all(part[0] is _constants.LITERAL for part in inner):
                text.extend(part[1] for part in inner)
                continue
            flush()
            _collect(inner, found)
        elif operation in (_constants.MAX_REPEAT, _constants.MIN_REPEAT) and argument[0] > 0:
            flush()
            _collect(argument[2], found)
        else:
            flush()
    flush()
