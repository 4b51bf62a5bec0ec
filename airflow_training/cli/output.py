"""What the command line prints: results on stdout (a table or one JSON document), all else on stderr."""

from __future__ import annotations

import json
import logging
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from airflow_training.control.model import Event
from airflow_training.errors import InputError, Problem

__all__ = [
    "Output",
    "command_line",
    "event_json",
    "event_line",
    "fail",
    "log_to_stderr",
    "next_step",
    "note",
    "print_json",
    "print_table",
    "print_warnings",
    "problem_json",
    "table_lines",
    "time_text",
]


EventLevel = Literal["info", "warning", "error"]


class Output(str, Enum):
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
    print("\n".join(table_lines(columns, rows)))


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return the lines that `print_table` prints."""
    texts = [[str(cell) if cell is not None else "" for cell in row] for row in rows]
    heads = [column.upper() for column in columns]
    widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    return [
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (heads, *texts)
    ]


def print_warnings(warnings: Sequence[Problem], *, path: str = "") -> None:
    """Print what does not stop the user, on stderr."""
    head = f"{path}: " if path else ""
    for warning in warnings:
        note(f"warning: {head}{warning}")


def fail(field: str, message: str, **details: Any) -> InputError:
    """Return the InputError for one mistake of the user, to be raised.

    `details`: `code` (not_allowed by default), `value`, `allowed`, `hint`.
    """
    code = details.pop("code", "not_allowed")
    return InputError(problems=[Problem(code=code, field=field, message=message, **details)])


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
    return "  ".join(part for part in parts if part)


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
