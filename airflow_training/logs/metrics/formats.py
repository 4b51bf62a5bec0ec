r"""Formats of metric lines: data in YAML, one file per framework, and those that users add.

    - name: training
      anchor: elapsed time per iteration
      line: 'iteration\s+{step}/\s*{total_steps}\s*\|'
      pairs: signed
      example: ' iteration 10/ 500 | elapsed time per iteration (ms): 12273.1 |'

`line` is a pattern in which `{name}` stands for a number that becomes the metric `name`, `{name:unit}` for one in that
unit, `{rank}` for the rank, `{skip}` for a number or clock that only varies and `{text}` for any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from airflow_training.logs.metrics import packaged
from airflow_training.logs.metrics.numbers import CLOCK, NUMBER, RANK, UNITS, Kind

__all__ = ["Format", "Token", "built_in", "make_format", "units_of"]

_FOLDER = packaged.FOLDER / "formats"
_TOKEN = re.compile(r"\{(?P<name>[A-Za-z_][\w /-]*)(?::(?P<unit>[^{}]+))?\}")
_ANY_SPACES = (r"\s*", r"\s+", r"\b")
"""Ends of a pattern behind which a number may be padded."""
_SKIP = r"[0-9?][0-9.,:?+-]*"


@dataclass(frozen=True, slots=True)
class Token:
    """What a group of a pattern stands for."""

    metric: str
    kind: Kind
    scale: float = 1.0
    padded: bool = False
    """Whether any number of spaces may stand before it: the pattern says so directly before the group."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Format:
    """One shape of line."""

    name: str
    """`framework/name`."""
    anchor: str
    """Pattern that every such line holds, for the engine."""
    pattern: str
    tokens: tuple[Token, ...]
    """Of the groups of the pattern, in order."""
    pairs: Literal["signed", "worded", "both", "none"] = "none"
    """How the rest of the line is read: `name: 1` and `name=1`, `name 1`, either, or not at all."""
    around: bool = False
    """Whether pairs stand before the match too."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Normal spelling -> metric, before the common ones; empty: no metric."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Metric -> its unit where none is printed."""
    sets: bool = False
    """Whether names are those of a booster: a data set and a metric, kept as `set-metric`."""
    unless: str = ""
    """Pattern of lines that are of another kind after all, as the bar of a download."""
    until: str = ""
    """Text at which the pairs after the match end."""
    joins: bool = False
    """Whether another format may stand in the same line, as a progress bar may."""
    example: str = ""


def make_format(framework: str, document: Mapping[str, Any]) -> Format:
    """Return the format of an entry of a YAML file; raises KeyError for an unknown unit."""
    document = dict(document)
    tokens: list[Token] = []

    def group(found: re.Match[str]) -> str:
        name, unit = found["name"], found["unit"]
        padded = found.string[: found.start()].endswith(_ANY_SPACES)
        if name in ("skip", "text", "rank"):
            kind: Kind = "bar" if name == "text" else name  # type: ignore[assignment]  # one of three
            tokens.append(Token("", kind, padded=padded))
            return {"skip": f"({_SKIP})", "text": "(.*?)", "rank": f"({RANK})"}[name]
        if unit == "clock":
            tokens.append(Token(name, "clock", padded=padded))
            return f"({CLOCK})"
        tokens.append(Token(name, *UNITS[unit or ""], padded=padded))
        return f"({NUMBER})"

    pattern = _TOKEN.sub(group, document.pop("line"))
    name = f"{framework}/{document.pop('name')}"
    return Format(name=name, pattern=pattern, tokens=tuple(tokens), **document)


def units_of(line: str) -> Iterator[str]:
    """Yield the units that the tokens of a line's pattern name."""
    for found in _TOKEN.finditer(line):
        if found["unit"]:
            yield found["unit"]


@cache
def built_in() -> Sequence[Format]:
    """Return the formats of this package."""
    found: list[Format] = []
    for path in sorted(_FOLDER.glob("*.yaml")):
        document = packaged.read(path)
        found += [make_format(path.stem, entry) for entry in document]
    return tuple(found)
