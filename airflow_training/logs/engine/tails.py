"""The end of a log as a terminal shows it."""

from __future__ import annotations

from typing import NamedTuple

from airflow_training.logs.engine.context_lines import LONGEST_CONTEXT, first_time
from airflow_training.logs.lines.cleaning import clean, parts, shown
from airflow_training.logs.lines.prefixes import prefix

TAIL_LINES = 200
TAIL_BYTES = 1 << 20
"""Looked at."""


class Tail(NamedTuple):
    """The last lines."""

    lines: tuple[str, ...]
    offsets: tuple[int, ...]
    last_time: float | None
    unended: bool
    """Whether the last line has no end."""


def tail_of(data: bytes, offset: int) -> Tail:
    """Return the last lines of `data`, the last bytes of a log, which stand at `offset`.

    Of a line that was written over (a progress bar) the last part that is not empty is shown.
    """
    if not data:
        return Tail((), (), None, unended=False)
    unended = not data.endswith(b"\n")
    data = data if unended else data[:-1]
    lines = data.rsplit(b"\n", TAIL_LINES)
    if len(lines) > TAIL_LINES or (offset and len(lines) > 1):
        lines = lines[1:]
    texts = []
    offsets = []
    position = offset + len(data)
    for line in reversed(lines):
        position -= len(line)
        text, start = _shown(line)
        texts.append(text)
        offsets.append(position + start)
        position -= 1
    return Tail(
        tuple(reversed(texts)), tuple(reversed(offsets)), first_time(reversed(lines)), unended
    )


def _shown(line: bytes) -> tuple[str, int]:
    """Return the part of a line that stays on the screen, without prefix, and where it begins."""
    found = list(parts(line))
    if not found:
        return "", 0
    start, end, _ = found[-1]
    text = clean(line[start:end])
    return shown(text[prefix(text).length :], LONGEST_CONTEXT), start
