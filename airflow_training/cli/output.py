"""What the command line prints: results on stdout (a table or one JSON document), all else on stderr."""

from __future__ import annotations

import json
import logging
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from enum import Enum
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from airflow_training.documents.text import printable
from airflow_training.errors import InputError, Problem

if TYPE_CHECKING:
    from airflow_training.control.model import Event  # 0.1 s that few commands need

__all__ = [
    "OutputFormat",
    "command_line",
    "event_json",
    "event_line",
    "fail",
    "hanging",
    "log_to_stderr",
    "next_step",
    "note",
    "print_json",
    "print_table",
    "print_warnings",
    "problem_json",
    "protect_terminal",
    "table_lines",
    "terminal",
    "terminal_width",
    "time_text",
]

_RESET = "\x1b[0m"
EventLevel = Literal["info", "warning", "error"]


class _PrintableStream:
    """A text stream that lets no control character through; bytes written to `buffer` stay raw."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        # colorama, which other libraries import, ends each process with a reset of the style
        return self.stream.write(text if text == _RESET else printable(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def protect_terminal() -> None:
    """Let names and values that others wrote do nothing to the terminal, whoever prints them."""
    for name in ("stdout", "stderr"):
        stream: Any = _PrintableStream(terminal(getattr(sys, name)))
        setattr(sys, name, stream)


def terminal(stream: TextIO) -> TextIO:
    """Return the stream itself, for who draws; what others wrote has to pass `printable` before."""
    return stream.stream if isinstance(stream, _PrintableStream) else stream


class OutputFormat(str, Enum):
    """How results are printed."""

    table = "table"
    json = "json"


def note(text: str) -> None:
    """Print a message for people on stderr."""
    print(text, file=sys.stderr, flush=True)


def next_step(*words: str | Path) -> None:
    """Say which of our commands to type next, ready to be pasted into a shell."""
    note(f"next: {command_line(*words)}")


def command_line(*words: str | Path) -> str:
    """Return one of our commands as a shell takes it."""
    return shlex.join(["airflow-training", *(str(word) for word in words)])


def print_json(document: Any) -> None:
    """Print one JSON document on one line: the only thing on stdout."""
    print(json.dumps(document, ensure_ascii=False, default=str), flush=True)


def problem_json(problem: Problem) -> Mapping[str, Any]:
    """Return a problem with the keys that `validate` promises."""
    return {
        "code": problem.code,
        "field": problem.field,
        "value": problem.value,
        "message": problem.message,
        "allowed": list(problem.allowed),
        "hint": problem.hint,
        "line": problem.line,
    }


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under upper-case headings, aligned; plain text, so that pipes read it too."""
    print("\n".join(table_lines(columns, rows, width=terminal_width())))


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, width: int | None = None
) -> list[str]:
    """Return the lines that `print_table` prints.

    With a `width`, cells wrap at words; where the words do not fit beside each other, each cell
    gets a line of its own below the one before it.
    """
    texts = [[_cell(cell) for cell in row] for row in rows]
    heads = [column.upper() for column in columns]
    table = [*zip(heads, *texts, strict=True)]
    widths = [max(map(len, column)) for column in table]
    gap = 3
    if width is not None:
        least = [
            max(len(word) for cell in column for word in ("", *cell.split())) for column in table
        ]
        room = width - sum(least)
        gap = min(gap, room // max(1, len(widths) - 1))
        if gap < 1 and texts:
            return _stacked(heads, texts, width)
        gap = max(1, gap)
        widths = _narrowed(widths, least, width - gap * (len(widths) - 1))
    return [
        (" " * gap)
        .join(part.ljust(space) for part, space in zip(parts, widths, strict=True))
        .rstrip()
        for line in (heads, *texts)
        for parts in zip_longest(*map(_wrapped, line, widths), fillvalue="")
    ]


def _narrowed(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return the widths of columns that share so much room: the widest give of theirs first."""
    low, high = 0, max(widths, default=0)

    def cut(most: int) -> list[int]:
        return [max(few, min(many, most)) for many, few in zip(widths, least, strict=True)]

    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(cut(middle)) <= room else (low, middle - 1)
    return cut(low)


def _stacked(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    left = max(map(len, heads)) + 3
    lines = []
    for row in rows:
        for head, cell in zip(heads, row, strict=True):
            if cell:
                lines += hanging(head.ljust(left), cell, width=width)
        lines.append("")
    return lines[:-1]


def hanging(head: str, text: str, *, width: int | None) -> list[str]:
    """Return a text behind its head, wrapped at words into a column of its own (None: not wrapped)."""
    if width is None:
        return [head + text]
    first, *others = _wrapped(text, width - len(head))
    return [head + first, *(" " * len(head) + line for line in others)]


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text, of so many characters where no word is longer."""
    if len(text) <= width:
        return [text]
    words = textwrap.TextWrapper(max(1, width), break_long_words=False, break_on_hyphens=False)
    return words.wrap(text) or [""]


def terminal_width() -> int | None:
    """Return the columns of the terminal that stdout is; None where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _cell(value: Any) -> str:
    return "" if value is None else printable(str(value)).replace("\n", "\\n").replace("\t", " ")


def print_warnings(warnings: Sequence[Problem], *, path: str = "") -> None:
    """Print what does not stop the user, on stderr."""
    head = f"{path}: " if path else ""
    for warning in warnings:
        note(f"warning: {head}{warning}")


def fail(
    field: str,
    message: str,
    *,
    code: str = "not_allowed",
    value: object = None,
    allowed: Sequence[object] = (),
    hint: str = "",
) -> InputError:
    """Return the InputError for one mistake of the user, to be raised."""
    return InputError.of(
        code=code, field=field, message=message, value=value, allowed=allowed, hint=hint
    )


def time_text(at: float | None) -> str:
    """Return an ISO 8601 time in UTC for epoch seconds."""
    if at is None:
        return ""
    stamp = datetime.fromtimestamp(at, tz=timezone.utc)
    return stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def event_line(event: Event, *, as_json: bool) -> str:
    """Return one line of the run's story."""
    if as_json:
        return json.dumps(event_json(event), ensure_ascii=False, default=str)
    clock = time.strftime("%H:%M:%S", time.localtime(event.at))
    where = event.role + ("" if event.index is None else f"-{event.index}")
    parts = [clock, f"{event.level.upper():<7}" if event.level != "info" else "", where]
    parts += [event.reason, event.message]
    return printable("  ".join(part for part in parts if part))


def event_json(event: Event) -> Mapping[str, Any]:
    """Return an event with stable keys."""
    return {
        "at": time_text(event.at),
        "level": event.level,
        "reason": event.reason,
        "message": event.message,
        "role": event.role or None,
        "index": event.index,
        "attempt": event.attempt,
        "rule": event.rule or None,
        "data": dict(event.data),
    }


class _JsonLines(logging.Formatter):
    """Log records in the shape of events, for `--log-format json`."""

    def format(self, record: logging.LogRecord) -> str:
        level: EventLevel = "error" if record.levelno >= logging.ERROR else "warning"
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        from airflow_training.control.model import Event

        event = Event(at=record.created, reason="Log", message=message, level=level)
        return event_line(event, as_json=True)


def log_to_stderr(*, as_json: bool) -> None:
    """Let warnings of our own code reach stderr in the same format as event lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines() if as_json else logging.Formatter("warning: %(message)s"))
    ours = logging.getLogger("airflow_training")
    ours.addHandler(handler)
    ours.setLevel(logging.WARNING)
    ours.propagate = False
