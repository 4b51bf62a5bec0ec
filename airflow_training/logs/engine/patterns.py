"""Patterns over the bytes of one line, in the syntax that Hyperscan, RE2 and Python's `re` read alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_training.logs.engine.syntax import constants, parse

SHORTEST_LITERAL = 4
"""Bytes: what a pattern that may be searched for must have, or it would be tried on too many lines."""
_RARE = 8
"""Bytes: longer texts are found no faster."""
_MOST_ALTERNATIVES = 32


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A text that is searched in every line, without ANSI sequences and without what a launcher wrote before it.

    `$` is the end of the line. `^` does not help: what stands before a text differs from launcher to launcher.
    """

    name: str
    """Unique among the patterns of one scan."""
    pattern: str
    ignore_case: bool = False
    ends_only: bool = False
    """Whether the first and last hits of a log are all that is wanted, of whatever rank, and their number is not.

    For what a log may hold in many of its lines: most of these are then never looked at one by one."""

    @cached_property
    def compiled(self) -> re.Pattern[bytes]:
        """Return the pattern for `re`."""
        return re.compile(self.pattern.encode(), re.IGNORECASE if self.ignore_case else 0)

    @cached_property
    def literals(self) -> tuple[bytes, ...]:
        """Return the texts of which every match holds one and that are found fastest; none if there are none."""
        return _lowered(_best(_candidates(self._parsed)), lower=self.any_case)

    @cached_property
    def required(self) -> tuple[tuple[tuple[bytes, ...], ...], ...]:
        """Return for each way to match sets of texts, one of each of which is then in the line; case as in `literals`."""
        return tuple(
            tuple(_lowered(texts, lower=self.any_case) for texts in _candidates(way))
            for way in _ways(self._parsed)
        )

    @cached_property
    def _parsed(self) -> Any:
        return parse(self.pattern.encode(), ignore_case=self.ignore_case)

    @cached_property
    def any_case(self) -> bool:
        """Return whether case does not count somewhere in the pattern."""
        return self.ignore_case or "(?i" in self.pattern


def required_literals(pattern: str) -> tuple[bytes, ...]:
    """Return the texts of which every match of `pattern` holds one; raises `re.error` if it is no pattern."""
    return Pattern(name="", pattern=pattern).literals


def _lowered(texts: Sequence[bytes], *, lower: bool) -> tuple[bytes, ...]:
    return tuple(sorted({text.lower() if lower else text for text in texts}))


def _best(candidates: Sequence[tuple[bytes, ...]]) -> tuple[bytes, ...]:
    return max(candidates, key=_worth, default=())


def _worth(texts: tuple[bytes, ...]) -> tuple[int, int, int]:
    """Return what makes a set fast: texts long enough to be rare, few of them, long ones."""
    shortest = min(map(len, texts))
    return min(shortest, _RARE), -len(texts), shortest


def _ways(parsed: Any) -> list[Any]:
    """Return the branches of a pattern that is nothing but branches, else the pattern."""
    if len(parsed) == 1:
        operation, argument = parsed[0]
        if operation is constants.SUBPATTERN:
            return _ways(argument[-1])
        if operation is constants.BRANCH:
            return [way for branch in argument[1] for way in _ways(branch)]
    return [parsed]


def _candidates(parsed: Any) -> list[tuple[bytes, ...]]:
    """Return sets of texts, one of each of which every match holds."""
    found: list[tuple[bytes, ...]] = []
    texts: tuple[bytes, ...] = (b"",)  # what may stand directly before the next item

    def flush() -> None:
        nonlocal texts
        if min(map(len, texts)):
            found.append(texts)
        texts = (b"",)

    for operation, argument in parsed:
        exact = _exact(operation, argument)
        if exact is not None and len(texts) * len(exact) <= _MOST_ALTERNATIVES:
            texts = tuple(text + end for text in texts for end in exact)
            continue
        flush()
        if exact is not None:
            texts = exact
        elif operation is constants.SUBPATTERN:
            found.extend(_candidates(argument[-1]))
        elif operation is constants.BRANCH:
            branches = [_best(_candidates(branch)) for branch in argument[1]]
            if all(branches):
                found.append(tuple(text for branch in branches for text in branch))
        elif operation in (constants.MAX_REPEAT, constants.MIN_REPEAT) and argument[0] > 0:
            found.extend(_candidates(argument[2]))
    flush()
    return found


def _exact(operation: Any, argument: Any) -> tuple[bytes, ...] | None:
    """Return all texts that an item of a pattern can match, if they are few."""
    if operation is constants.LITERAL:
        return (bytes([argument]),)
    if operation is constants.SUBPATTERN:
        return _exact_sequence(argument[-1])
    if operation is constants.BRANCH:
        branches = [_exact_sequence(branch) for branch in argument[1]]
        if any(branch is None for branch in branches):
            return None
        texts = tuple(text for branch in branches if branch is not None for text in branch)
        return texts if len(texts) <= _MOST_ALTERNATIVES else None
    if operation is constants.IN and len(argument) <= 4:
        if all(kind is constants.LITERAL for kind, _ in argument):
            return tuple(bytes([byte]) for _, byte in argument)
    elif operation is constants.MAX_REPEAT and argument[:2] == (0, 1):
        inner = _exact_sequence(argument[2])
        return None if inner is None else (b"", *inner)
    return None


def _exact_sequence(parsed: Any) -> tuple[bytes, ...] | None:
    texts: tuple[bytes, ...] = (b"",)
    for operation, argument in parsed:
        exact = _exact(operation, argument)
        if exact is None or len(texts) * len(exact) > _MOST_ALTERNATIVES:
            return None
        texts = tuple(text + end for text in texts for end in exact)
    return texts
