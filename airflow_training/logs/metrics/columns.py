"""Tables whose columns have names in a line above: `epoch  train_loss  valid_loss`, then rows of numbers. Pure.

A name counts as elsewhere in lines of unknown programs. Rows hold nothing but numbers, so that only the line above tells
what they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_training.logs.metrics.any_program import is_measure
from airflow_training.logs.metrics.names import COUNTERS, RESULTS, MetricMeaning, meaning
from airflow_training.logs.metrics.numbers import number_pattern
from airflow_training.logs.metrics.slots import ParsedLine, Slot, conversion

__all__ = ["ANCHOR", "Columns", "columns_of"]

ANCHOR = r"(?i:loss|epoch|step|iter|accuracy)(?: {2,60}|\t| {0,30}\| ?|,)[A-Za-z_]"
"""In every line that `columns_of` knows."""
_NAMES = re.compile(rb"[\s|,#]*[A-Za-z_][\w %/@().#|,\t-]{0,400}$")
_NAME = re.compile(rb"[A-Za-z_#%][\w %/@().#-]{0,40}$")
_BAR = rb"\||\xe2\x94[\x82\x83]"
"""Between columns: a line as text or as it is drawn."""
_GAP = re.compile(rb"\s*(?:" + _BAR + rb")\s*|\t\s*|\s{2,}")
_BETWEEN = re.compile(rb"(?:\s|" + _BAR + rb")+")
_COMMA = re.compile(rb",")
_CELL = number_pattern(
    rb"(?P<number>{NUMBER})(?P<unit>%|[KMGT](?:i?B)?|ms|s)?(?P<of>/[0-9]+)?$|[0-9]+(?::[0-9]+)+$|-+$|\xe2\x80\x94$"
)
_IN_ROWS = b"0123456789+-.,:/%eE \t\r\n\v\f|naifytNAIFYTKMGBms\xe2\x80\x94\x82\x83"
"""What rows are written with: most other lines hold something else."""
_RULE = re.compile(rb"[\s|+=:-]*$|(?:[\s|+-]|\xe2[\x94-\x95][\x80-\xbf])*$")
_LONGEST = 500
_FEWEST, _MOST = 2, 40
_ASIDE = frozenset({"time", "remaining", "eta", "dur", "duration", "remaining time", "elapsed"})
"""Columns that tell of the clock."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What stands below such a line."""

    meanings: tuple[MetricMeaning, ...]
    by_comma: bool

    def read(self, line: bytes) -> ParsedLine | None:
        """Metrics of a row; None for a line that is none."""
        if line.translate(None, _IN_ROWS):
            return None
        cells = _cells(line, _COMMA if self.by_comma else _BETWEEN)
        if len(cells) != len(self.meanings):
            return None
        slots: list[Slot] = []
        seen: set[str] = set()
        for (start, end), each in zip(cells, self.meanings, strict=True):
            found = _CELL.match(line, start, end)
            if found is None:
                return None
            if found["number"] is None or not each.metric or each.metric in seen:
                if line[start:end].strip(b"-\xe2\x80\x94"):  # it differs from row to row
                    slots.append(Slot(start, end, "", "skip", form="fixed"))
                continue
            seen.add(each.metric)
            unit = (found["unit"] or b"").decode() or each.unit
            kind, scale = conversion(each.metric, unit) if each.known else ("number", 1.0)
            slots.append(
                Slot(*found.span("number"), each.metric, kind, scale, each.scope, padded=False)
            )
        return ParsedLine(tuple(slots), "any/table") if seen - COUNTERS else None

    @staticmethod
    def may_stand_between(line: bytes) -> bool:
        """Return whether a line is none of a table's rows but part of it: a rule, or empty."""
        return _RULE.match(line) is not None


def columns_of(line: bytes) -> Columns | None:
    """Return the columns that a line names; None for any other line."""
    if len(line) > _LONGEST or _NAMES.match(line.replace(b"\xe2\x94\x82", b"|")) is None:
        return None
    by_comma = b"," in line
    cells = _cells(line, _COMMA if by_comma else _GAP)
    names = [line[start:end] for start, end in cells]
    if not _FEWEST <= len(names) <= _MOST or not all(map(_NAME.match, names)):
        return None
    meanings = tuple(_meaning(name.decode()) for name in names)
    told = {each.metric for each in meanings}
    measured = [each.metric for each in meanings if is_measure(each.metric)]
    if not (told & RESULTS or (told & COUNTERS and measured)):
        return None
    return Columns(meanings, by_comma)


def _meaning(name: str) -> MetricMeaning:
    if name.lower().replace("_", " ") in _ASIDE:
        return MetricMeaning("", known=False)
    return meaning("epoch" if name == "E" else name)


def _cells(line: bytes, between: re.Pattern[bytes]) -> list[tuple[int, int]]:
    """Return where the cells of a line stand."""
    bare = line.strip(b" \t\r\n|")
    begin = line.find(bare)
    stop = begin + len(bare)
    for mark in (b"\xe2\x94\x82", b"\xe2\x94\x83"):
        if line[begin:stop].startswith(mark):
            begin += len(mark)
        if line[begin:stop].endswith(mark):
            stop -= len(mark)
    cells, at = [], begin
    for found in (*between.finditer(line, begin, stop), None):
        end = stop if found is None else found.start()
        start = at
        while start < end and line[start : start + 1].isspace():
            start += 1
        while end > start and line[end - 1 : end].isspace():
            end -= 1
        if end > start or between is _COMMA:
            cells.append((start, end))
        at = stop if found is None else found.end()
    return cells
