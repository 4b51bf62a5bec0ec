"""One line of a log as metric values: what the fast way must agree with. Pure.

`parse_line` says where the numbers of a line are and what they mean. The engine calls it once for lines of equal
layout and reads the rest as columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from airflow_training.logs.engine.patterns import required_literals
from airflow_training.logs.metrics import any_program, columns
from airflow_training.logs.metrics.formats import Format, built_in
from airflow_training.logs.metrics.names import RESULTS, meaning
from airflow_training.logs.metrics.numbers import Kind
from airflow_training.logs.metrics.pairs import signed, worded
from airflow_training.logs.metrics.slots import Claims, Form, ParsedLine, Slot
from airflow_training.logs.metrics.units import add_alone, add_rates

__all__ = ["Kind", "ParsedLine", "Slot", "anchors", "parse_line"]

_WAYS = {"signed": (signed,), "worded": (worded,), "both": (signed, worded), "none": ()}
_BARS = (b"%|", b"it [")
"""What a progress bar in the same line holds."""
_WORD = re.compile(rb"[A-Za-z]{3}")
_PLAIN = RESULTS | {"grad_norm", "learning_rate", "loss_scale"}
_COLOUR = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def anchors(user: Sequence[Format] = ()) -> Sequence[str]:
    """Return patterns, one of which is found in every line that `parse_line` knows."""
    found = [each.anchor for each in (*user, *built_in())]
    return tuple(dict.fromkeys([*found, *any_program.ANCHORS, columns.ANCHOR]))


def parse_line(line: bytes, user: Sequence[Format] = ()) -> ParsedLine | None:
    """Metrics of a line, or None if it holds none; `user` has formats that go before ours.

    `line` has no line end (the carriage return of a progress bar ends a line too); prefixes and colours may stay on it.
    """
    if b"\x1b" in line:
        line = _COLOUR.sub(lambda found: b" " * len(found[0]), line)
    claims: Claims | None = None
    name = ""
    lower = line.lower()
    for each in (*user, *built_in()):
        if claims is not None and not each.joins:
            continue
        if not any(text in lower for text in _texts(each.anchor)):
            continue
        found = _search(each, line)
        if found is None:
            continue
        if claims is None:
            beside = _beside(line, found.end()) if each.joins else None
            claims, name = (Claims(line), each.name) if beside is None else beside
        _claim(claims, each, found, line)
        if not each.joins and not any(text in line for text in _BARS):
            break
    if claims is None:
        return any_program.parse(line)
    return claims.parsed(name)


def _beside(line: bytes, end: int) -> tuple[Claims, str] | None:
    """Return what a program printed into the line of its progress bar, behind it, and as what it was read."""
    start = line.find(b"]", end) + 1
    if not start or not _WORD.search(line, start):
        return None
    said = any_program.parse(b" " * start + line[start:])
    if said is None or not said.certain:
        return None
    claims = Claims(line)
    for slot in said.slots:
        claims.add_slot(slot)
    return claims, said.format


def _is_plain(name: str) -> bool:
    """Return whether a name means a metric also where nothing but blanks stand before its number."""
    return meaning(name).metric in _PLAIN


@cache
def _compiled(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode())


@cache
def _texts(anchor: str) -> tuple[bytes, ...]:
    """Return texts in lower case, one of which every line with the anchor holds: quick to look for."""
    return tuple(text.lower() for text in required_literals(anchor))


def _search(format_: Format, line: bytes) -> re.Match[bytes] | None:
    """Return where a line is of a format."""
    found = _compiled(format_.pattern).search(line)
    if found is None or (format_.unless and _compiled(format_.unless).search(line)):
        return None
    return found


def _claim(claims: Claims, format_: Format, found: re.Match[bytes], line: bytes) -> None:
    """Add what a format reads in a line."""
    claims.recognise(*found.span())
    for number, token in enumerate(format_.tokens, start=1):
        start, end = found.span(number)
        if start >= 0:
            form: Form = "plain" if token.kind == "skip" else "any"
            claims.add(
                start,
                end,
                token.metric,
                token.kind,
                token.scale,
                form=form,
                padded=token.padded,
            )
    if format_.pairs == "none":
        return
    start = 0
    if not format_.around:
        start = max((found.end(group) for group in range(1, len(format_.tokens) + 1)), default=0)
    end = line.find(format_.until.encode(), start) if format_.until else -1
    end = len(line) if end < 0 else end
    if format_.pairs == "both":
        add_rates(claims, line)
    for way in _WAYS[format_.pairs]:
        pairs = way(line, start, end)
        claims.add_pairs(pairs, names=format_.names, units=format_.units, sets=format_.sets)
    if format_.pairs == "signed":
        # older versions of a program leave the sign out
        bare = (pair for pair in worded(line, start, end) if _is_plain(pair.name))
        claims.add_pairs(bare, names=format_.names, units=format_.units)
    if format_.pairs == "both":
        add_alone(claims, line)
    if format_.joins:
        before = (pair for pair in signed(line, 0, found.start()) if meaning(pair.name).known)
        claims.add_pairs(before)
