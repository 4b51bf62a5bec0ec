"""From raw bytes to what a person would have seen: parts of lines, without ANSI sequences."""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST_PART = 65_536
"""Bytes; what is longer is looked at in pieces of this size."""

_SEPARATOR = re.compile(rb"[\n\r\b]")
_ANSI = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?|[ -/]*[0-~])?"
)


def parts(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, line ends before) of every part of `data` that is not empty.

    A part ends at a line end, at a carriage return or at a backspace: progress bars write many into one line.
    """
    lines = 0
    position = 0
    while position < len(data):
        found = _SEPARATOR.search(data, position)
        end = len(data) if found is None else found.start()
        for piece in range(position, end, LONGEST_PART):
            yield piece, min(piece + LONGEST_PART, end), lines
        if found is None:
            return
        if data[end] == 10:
            lines += 1
        position = end + 1


def clean(part: bytes) -> bytes:
    """Return a part without ANSI sequences."""
    return _ANSI.sub(b"", part) if b"\x1b" in part else part


def shown(text: bytes, longest: int) -> str:
    """Return a cleaned part as text of at most `longest` characters."""
    return text[: longest * 4].decode(errors="replace")[:longest]


def kept_bytes(part: bytes) -> list[int]:
    """Return where in a part each byte of `clean(part)` stands."""
    kept: list[int] = []
    position = 0
    for found in _ANSI.finditer(part):
        kept.extend(range(position, found.start()))
        position = found.end()
    kept.extend(range(position, len(part)))
    return kept
