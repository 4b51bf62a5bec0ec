"""Whether a pattern is one that every engine understands and finds fast. Pure.

Engines look for literals first: a pattern without one would be tried at every byte of a log.
"""

from __future__ import annotations

import re
from typing import Any

from airflow_training.logs.engine.patterns import SHORTEST_LITERAL, required_literals
from airflow_training.logs.engine.syntax import constants, faults, parse

__all__ = ["fault_of"]


def fault_of(pattern: str) -> str:
    """Return why a pattern cannot be a signature, or nothing."""
    try:
        parsed = parse(pattern.encode())
    except (re.error, RecursionError, OverflowError) as error:
        return f"is no regular expression: {error}"
    if not pattern.isascii():
        return "must be ASCII: write \\xNN for other bytes"
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
    for operation, argument in parsed:
        if operation is constants.AT and argument is not constants.AT_END:
            return True
        inner: list[Any] = []
        if operation is constants.SUBPATTERN:
            inner = [argument[-1]]
        elif operation is constants.BRANCH:
            inner = argument[1]
        elif operation in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            inner = [argument[2]]
        if any(map(_has_places, inner)):
            return True
    return False
