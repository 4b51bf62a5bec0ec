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
_MOST_SHARING = 2
"""Repeats without end that may share a stretch of a line. Each multiplies the time by its length: for the longest line that
is read two take 20 ms, three 12 s and four hours."""
_REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT)
_CLASSES = {
    constants.CATEGORY_DIGIT: rb"\d",
    constants.CATEGORY_NOT_DIGIT: rb"\D",
    constants.CATEGORY_SPACE: rb"\s",
    constants.CATEGORY_NOT_SPACE: rb"\S",
    constants.CATEGORY_WORD: rb"\w",
    constants.CATEGORY_NOT_WORD: rb"\W",
}
_EVERY_BYTE = frozenset(range(256))
_SPACES = frozenset(b" \t\n\r\f\v")
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


def faults(parsed: Any) -> Iterator[PatternFault]:
    """Yield what is slow in a pattern, or not known to every engine."""
    yield from _faults_of_items(parsed, inside_repeat=False)
    if _Sharing().most_in(parsed) > _MOST_SHARING:
        yield PatternFault(
            f"would be slow: more than {_MOST_SHARING} repeats without end can match the same text, as in .*a.*b.*c",
            r"say what each one ends at, as [^ ]* or \S+ end at a space, or how long it is at most, as in .{0,20}",
        )


def _faults_of_items(parsed: Any, *, inside_repeat: bool) -> Iterator[PatternFault]:
    for operation, argument in parsed:
        if str(operation) in _UNKNOWN:
            reason, hint = _UNKNOWN[str(operation)]
            yield PatternFault(f"{reason}, which fast engines cannot", hint)
        elif operation in _REPEATS:
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
            yield from _faults_of_items(inner, inside_repeat=inside_repeat or endless)
        elif operation is constants.SUBPATTERN:
            yield from _faults_of_items(argument[-1], inside_repeat=inside_repeat)
        elif operation is constants.BRANCH:
            for branch in argument[1]:
                yield from _faults_of_items(branch, inside_repeat=inside_repeat)


class _Sharing:
    """Counts the repeats without end that can share one stretch of a line, each taking more or less of it.

    Only those that go on over several words: a word is short, and so is what stands between two.
    """

    def __init__(self) -> None:
        self._most = 0

    def most_in(self, parsed: Any) -> int:
        self._walk(parsed, ())
        return self._most

    def _walk(self, parsed: Any, before: tuple[frozenset[int], ...]) -> tuple[frozenset[int], ...]:
        """Return the bytes of each repeat that can still take what comes next, after those `before`."""
        reach = before
        for operation, argument in parsed:
            if operation in _REPEATS:
                low, high, inner = argument
                reach = self._repeat(low, high, inner, reach)
            elif operation is constants.SUBPATTERN:
                reach = self._walk(argument[-1], reach)
            elif operation is constants.BRANCH:
                reach = max((self._walk(branch, reach) for branch in argument[1]), key=len)
            elif taken := _bytes_of(operation, argument):
                reach = tuple(each for each in reach if each & taken)
        return reach

    def _repeat(
        self, low: int, high: int, inner: Any, before: tuple[frozenset[int], ...]
    ) -> tuple[frozenset[int], ...]:
        endless = high == constants.MAXREPEAT
        taken = _bytes_of(*inner[0]) if len(inner) == 1 else None
        if endless and taken and ord(" ") in taken and taken - _SPACES:
            self._most = max(self._most, len(before) + 1)  # all of these go on over a space
            return (*before, taken)
        after = before
        for _ in range(min(high, _MOST_SHARING + 1)):
            after = self._walk(inner, after)
        return after if low else max(before, after, key=len)


def _bytes_of(operation: Any, argument: Any) -> frozenset[int]:
    """Return what an item of one byte can match; nothing for other items."""
    if operation is constants.LITERAL:
        return frozenset((argument,))
    if operation is constants.NOT_LITERAL:
        return _EVERY_BYTE - {argument}
    if operation is constants.ANY:
        return _EVERY_BYTE
    if operation is constants.RANGE:
        return frozenset(range(argument[0], argument[1] + 1))
    if operation is constants.CATEGORY:
        return frozenset(b"".join(re.findall(_CLASSES[argument], bytes(_EVERY_BYTE))))
    if operation is constants.IN:
        found = frozenset[int]().union(*(_bytes_of(*each) for each in argument))
        return _EVERY_BYTE - found if argument[0][0] is constants.NEGATE else found
    return frozenset()
