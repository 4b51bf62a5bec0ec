"""Model of the `logs` block: formats of a program's own lines. What a pattern may hold, `logs` checks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from airflow_training.documents.base import Many, Model

__all__ = ["LogPattern", "Logs"]

Text = Annotated[str, Field(min_length=1)]


class LogPattern(Model):
    """One shape of line, with the metrics in it."""

    name: Text
    line: Text
    """A pattern in which `{name}` stands for a number that becomes the metric `name`."""
    example: Text
    """A line that the pattern matches."""
    pairs: Literal["signed", "worded", "both", "none"] = "none"
    """How the rest of the line is read: `name: 1` and `name=1`, `name 1`, either, or not at all."""
    around: bool = False
    """Whether pairs stand before the match too."""
    names: dict[str, str] = Field(default_factory=dict)
    """Spelling -> metric; empty: no metric."""
    units: dict[str, str] = Field(default_factory=dict)
    """Metric -> its unit where none is printed."""
    anchor: Text | None = None
    """A fixed text that every such line holds; None: taken from `line`."""
    unless: Text | None = None
    """A pattern of lines that are of another kind after all."""


class Logs(Model):
    patterns: Many[LogPattern] = Field(default_factory=list)
    """Before those of the framework, and those before ours."""
