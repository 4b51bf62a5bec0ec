"""Metrics: which numbers a line says, what they mean, and the series they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_training.logs.metrics.columns import Columns, columns_of
from airflow_training.logs.metrics.lines import anchors, parse_line

if TYPE_CHECKING:
    from airflow_training.logs.metrics.formats import Format
    from airflow_training.logs.metrics.series import SeriesBuilder
    from airflow_training.logs.metrics.slots import ParsedLine

__all__ = ["MetricFormats", "formats"]


@dataclass(frozen=True)
class MetricFormats:
    """What the engine asks while it scans a log for metrics. Pickles."""

    user: tuple[Format, ...] = ()

    def anchors(self) -> Sequence[str]:
        """Return patterns, one of which is found in every line that `parse_line` knows."""
        return anchors(self.user)

    def parse_line(self, line: bytes) -> ParsedLine | None:
        """Metrics of a line; prefixes and colours may stay on it."""
        return parse_line(line, self.user)

    def columns(self, line: bytes) -> Columns | None:
        """Return the columns that a line names, for the rows below it."""
        return columns_of(line)

    def builder(self, carry: Mapping[str, float] | None = None) -> SeriesBuilder:
        """Return an empty builder, which knows what that of the log before had to `carry`."""
        from airflow_training.logs.metrics.series import SeriesBuilder

        return SeriesBuilder(carry=carry)


def formats(user: Sequence[Format] = ()) -> MetricFormats:
    """Return the formats of this package, after those of the user."""
    return MetricFormats(tuple(user))
