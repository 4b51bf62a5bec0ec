"""What regular expressions are made of, and which of them every engine understands and finds fast. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    # the only place that takes patterns apart: nothing public does, and the names are private since 3.11
    from re import _constants as constants  # type: ignore[attr-defined]  # the stubs leave it out
    from re import _parser  # type: ignore[attr-defined]  # the stubs leave it out
else:
    import sre_constants as constants
    import sre_parse as _parser

__all__ = ["PatternFault", "constants", "faults", "parse"]

_MOST_REPEATS = 1000
_UNKNOWN = {
    "ASSERT": ("looks ahead or behind", "match the text around it instead, or use `unless`"),
    "ASSERT_NOT": ("looks ahead or behind", "match the text around it instead, or use `unless`"),
    "GROUPREF": ("refers back to a group", "write the text again"),
    "GROUPREF_EXISTS": ("refers back to a group", "write both alternatives"),
    "ATOMIC_GROUP": ("has an atomic group", "use a plain one"),
    "POSSESSIVE_REPEAT": ("has a possessive repeat", "use a plain one"),
}
"""What some engine does not know, by its name in the parser, with what to do instead."""


class PatternFault(NamedTuple):
    """Why a pattern is not for logs of any size."""

    reason: str
    hint: str


def parse(pattern: bytes, *, ignore_case: bool = False) -> Any:
    """Return the parts of a pattern: (operation, argument), as `constants` names them. Raises `re.error`."""
    return _parser.parse(pattern, re.IGNORECASE if ignore_case else 0)


def faults(parsed: Any, *, inside_repeat: bool = False) -> Iterator[PatternFault]:
    """Yield what is slow in a pattern, or not known to every engine."""
    for operation, argument in parsed:
        if str(operation) in _UNKNOWN:
            reason, hint = _UNKNOWN[str(operation)]
            yield PatternFault(f"{reason}, which fast engines cannot", hint)
        elif operation in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            low, high, inner = argument
            endless = high == constants.MAXREPEAT
            if endless and inside_repeat:
                yield PatternFault(
                    "would be slow: a repeat without end inside another, as in (a+)+",
                    "repeat only once, as in a+, or say how often at most, as in {1,20}",
                )
            most = low if endless else high
            if most > _MOST_REPEATS:
                yield PatternFault(f"repeats {most} times", f"at most {_MOST_REPEATS} times")
            yield from faults(inner, inside_repeat=inside_repeat or endless)
        elif operation is constants.SUBPATTERN:
            yield from faults(argument[-1], inside_repeat=inside_repeat)
        elif operation is constants.BRANCH:
            for branch in argument[1]:
                yield from faults(branch, inside_repeat=inside_repeat)
