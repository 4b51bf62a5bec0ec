"""How numbers of things and long texts are said, and texts of others without their control characters."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

__all__ = [
    "AGENT_LINE",
    "counted",
    "headline",
    "printable",
    "value_text",
    "without_name",
    "wrap_lines",
]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What makes a terminal do something, or text look like another; not the tab and the line's end."""

_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?|[ -/]*[0-~])?"
)
"""Colours and the like, as programs print them for a terminal."""

_WORD = re.compile(r"[^\W_]")
"""Of a line that says something: a ruler, a lone bracket or a row of carets does not."""

AGENT_LINE = "airflow-training: "
"""What an agent writes into the log of its instance begins so."""


def counted(number: int, noun: str) -> str:
    """Return `1 instance`, `2 instances`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_HINT = "hint: "
"""How the likely fix of a problem begins, below the problem itself."""


def headline(text: str, *, most: int = 160) -> str:
    """Return the last line of a text that says something, in at most so many characters.

    Messages of containers are often the end of a log: its last line says why. Of one that is too long the middle is
    left out: it begins with what failed, and errors that wrap others end with the one that says why. Colours and
    other control characters are left out, the agent's name before what it says itself, and the hint below a problem.
    """
    text = _ANSI.sub("", text) if "\x1b" in text else text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(_HINT)] or lines
    last = next((line for line in reversed(lines) if _WORD.search(line)), "".join(lines[-1:]))
    last = _CONTROL.sub("", last).removeprefix(AGENT_LINE)
    if len(last) <= most:
        return last
    end = most * 2 // 5
    return f"{last[: most - 1 - end]}…{last[-end:]}"


def printable(text: str) -> str:
    """Return the text with each control character as its escape in JSON."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def value_text(value: Any) -> str:
    """Return a value as it stands in a document."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def without_name(text: str, name: str) -> str:
    """Return a text that is told behind a name without that name at its beginning: it is said once."""
    rest = text.removeprefix(name) if name else text
    return rest.lstrip(": ") if rest[:1] in (":", " ") else text


def wrap_lines(text: str, *, width: int = 100) -> list[str]:
    """Return a text as printable lines of at most so many characters, what goes on indented by two.

    A longer word, such as a path or an address, stays whole so that it can be copied.
    """
    lines = []
    for line in map(printable, text.splitlines()):
        margin = " " * (len(line) - len(line.lstrip()) + 2)
        lines += textwrap.wrap(
            line,
            width,
            subsequent_indent=margin,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines
