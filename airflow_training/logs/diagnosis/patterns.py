"""Whether a pattern is one that every engine understands and finds fast. Pure.

Engines look for literals first: a pattern without one would be tried at every byte of a log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from airflow_training.logs.engine.patterns import SHORTEST_LITERAL, required_literals
from airflow_training.logs.engine.syntax import constants, faults, parse

__all__ = ["fault_of"]

_REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT)
_ASCII_END = 0x80
_FIRST_BYTES = 0xC0
"""Of characters of several bytes in UTF-8; those between these two go on with one."""


def fault_of(pattern: str) -> str:
    """Return why a pattern cannot be a signature, or nothing."""
    try:
        parsed = parse(pattern.encode())
    except (re.error, RecursionError, OverflowError) as error:
        return f"is no regular expression: {error}"
    if not pattern.isascii() and _has_split_characters(parsed):
        return "has a character beyond ASCII in a class or before a repeat, where its bytes stand alone: write alternatives, as (?:e|\u00e9)"
    for fault in faults(parsed):
        return f"{fault.reason}: {fault.hint}"
    if _has_places(parsed):
        return "uses ^ or \\b: write the text that makes it specific instead"
    literal = min(required_literals(pattern), key=len, default=b"").decode("latin-1")
    if len(literal) < SHORTEST_LITERAL:
        found = f"only {literal!r}" if literal else "none"
        return (
            f"would be slow: every line it matches must contain {SHORTEST_LITERAL} fixed characters"
            f" in a row in each alternative, and it has {found}"
        )
    return ""


def _has_places(parsed: Any) -> bool:
    """Return whether a pattern asks where in the line it is, `$` aside."""
    return any(
        operation is constants.AT and argument is not constants.AT_END
        for operation, argument in _items(parsed)
    )


def _has_split_characters(parsed: Any) -> bool:
    """Return whether a pattern takes bytes of one character of UTF-8 for several: engines know bytes only."""
    for operation, argument in _items(parsed):
        if operation is constants.IN and any(_has_first_byte(part) for part in argument):
            return True
        if operation in _REPEATS and argument[2]:
            kind, value = argument[2][0]
            if kind is constants.LITERAL and _ASCII_END <= value < _FIRST_BYTES:
                return True
    return False


def _has_first_byte(part: Any) -> bool:
    operation, argument = part
    highest = argument[1] if operation is constants.RANGE else argument
    return operation in (constants.LITERAL, constants.RANGE) and highest >= _FIRST_BYTES


def _items(parsed: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the parts of a pattern, at any depth."""
    for operation, argument in parsed:
        yield operation, argument
        inner: list[Any] = []
        if operation is constants.SUBPATTERN:
            inner = [argument[-1]]
        elif operation is constants.BRANCH:
            inner = argument[1]
        elif operation in _REPEATS:
            inner = [argument[2]]
        for each in inner:
            yield from _items(each)
