"""What the engine asks of the metrics: which lines may hold values, where in the line, and who takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from airflow_training.logs.model import Floats, Integers, Origin, Series

LONGEST_METRIC_LINE = 8192
"""Bytes. In longer lines nobody looks for metrics."""


class SlotLike(Protocol):
    """A part of a line that differs between lines of one layout; `logs/metrics/lines.py` says how it is read."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def metric(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def scale(self) -> float: ...
    @property
    def form(self) -> str: ...
    @property
    def padded(self) -> bool: ...


class ParsedLineLike(Protocol):
    """What a line says. Lines whose text outside the slots is equal have equal meaning."""

    @property
    def slots(self) -> Sequence[SlotLike]: ...


class Builder(Protocol):
    """Takes rows of values and keeps series of bounded size."""

    def add(
        self,
        layout: Any,
        values: Any,
        offsets: Integers,
        lines: Integers,
        times: Floats,
        ranks: Integers,
    ) -> None:
        """Take rows of one layout, in order: values [rows, slots with a metric], NaN and -1 for unknown."""

    def merge(self, later: Any, lines_before: int = 0) -> None:
        """Take over what the builder of the next stretch holds, whose lines count from `lines_before`."""

    def compact(self) -> None:
        """Let go of rows that no series needs: this is the end of a stretch."""

    def carry(self) -> Mapping[str, float]:
        """State of the rows so far for the builder of the rest of a growing log; plain values."""

    def series(self, origin: Origin, *, judged: bool = True) -> tuple[Series, ...]:
        """Return the series of all rows so far; not `judged`: as far as each row alone tells what it is."""


class ColumnsLike(Protocol):
    """The columns of a table, by the line that names them."""

    def read(self, line: bytes) -> ParsedLineLike | None:
        """Parse a row; None for a line that is none."""

    def may_stand_between(self, line: bytes) -> bool:
        """Return whether a line is no row but part of the table."""


class Formats(Protocol):
    """The metrics of one scan."""

    def anchors(self) -> Sequence[str]:
        """Return patterns, one of which is found in every line that `parse_line` knows."""

    def parse_line(self, line: bytes) -> ParsedLineLike | None:
        """Return the metrics of a line; None where it is of no format."""

    def columns(self, line: bytes) -> ColumnsLike | None:
        """Return the columns that a line names; None for any other."""

    def builder(self, carry: Mapping[str, float] | None = None) -> Builder:
        """Return an empty builder, which knows what the one of the log before had to `carry`."""
