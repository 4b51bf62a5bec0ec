"""Whether a pattern is one that every engine understands and finds fast. Pure.

Engines look for literals first: a pattern without one would be tried at every byte of a log.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

if sys.version_info >= (3, 11):
    # the only place that knows what a pattern must contain; its name is private since 3.11
    from re import _parser as sre_parse  # type: ignore[attr-defined]  # the stubs leave it out
else:
    import sre_parse

__all__ = ["MIN_LITERAL", "fault_of", "required_literal"]

MIN_LITERAL = 4
"""Bytes that a line must contain so that a pattern is tried on it."""

_REFUSED = {
    "ASSERT": "look-ahead and look-behind",
    "ASSERT_NOT": "look-ahead and look-behind",
    "GROUPREF": "references back to a group",
    "GROUPREF_EXISTS": "references back to a group",
    "ATOMIC_GROUP": "atomic groups",
    "POSSESSIVE_REPEAT": "possessive repeats",
}
_MOST_REPEATS = 1000


def fault_of(pattern: str) -> str:
    """Return why a pattern cannot be a signature, or nothing."""
    try:
        parsed = sre_parse.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is no regular expression: {error}"
    if not pattern.isascii():
        return "must be ASCII: write \\xNN for other bytes"
    for name, argument in _parts(parsed):
        if name in _REFUSED:
            return f"uses {_REFUSED[name]}, which not every engine has"
        if name == "AT" and str(argument) != "AT_END":
            return "uses ^ or \\b: write the text that makes it specific instead"
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, _ = argument
            if least > _MOST_REPEATS or (most != sre_parse.MAXREPEAT and most > _MOST_REPEATS):
                return f"repeats more than {_MOST_REPEATS} times"
    literal = required_literal(parsed)
    if len(literal) < MIN_LITERAL:
        found = f"only {literal!r}" if literal else "none"
        return (
            f"would be slow: every line it matches must contain {MIN_LITERAL} fixed characters"
            f" in a row in each alternative, and it has {found}"
        )
    return ""


def required_literal(parsed: Any) -> str:
    """Return the longest text in a row that every match contains; of alternatives the shortest one."""
    best = run = ""
    for code, argument in parsed:
        name = str(code)
        inner = ""
        if name == "LITERAL":
            run += chr(argument)
            best = max(best, run, key=len)
            continue
        run = ""
        if name == "SUBPATTERN":
            inner = required_literal(argument[-1])
        elif name == "BRANCH":
            inner = min((required_literal(each) for each in argument[1]), key=len)
        elif name in ("MAX_REPEAT", "MIN_REPEAT") and argument[0] >= 1:
            inner = required_literal(argument[2])
        best = max(best, inner, key=len)
    return best


def _parts(parsed: Any) -> Iterable[tuple[str, Any]]:
    for code, argument in parsed:
        yield str(code), argument
        for inner in _inside(argument):
            yield from _parts(inner)


def _inside(argument: Any) -> Iterable[Any]:
    if isinstance(argument, sre_parse.SubPattern):
        yield argument
    elif isinstance(argument, list | tuple):
        for each in argument:
            yield from _inside(each)
