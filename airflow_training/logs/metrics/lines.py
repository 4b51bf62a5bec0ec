"""One line of a log as metric values: what the fast way must agree with.

`parse_line` says where the numbers of a line are and what they mean. The engine calls it once for lines of equal
layout and reads the rest as columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Kind", "ParsedLine", "Slot", "anchors", "parse_line"]

Kind = Literal["number", "divided", "inverse", "clock", "rank", "bar", "skip"]
"""How the text of a slot is read.

| kind | value |
|---|---|
| number | the number times `scale` |
| divided | the number divided by `scale` (so that 56.78 % is 0.5678, to the last bit) |
| inverse | `scale` divided by the number |
| clock | `[[D days, ]H:]M:S` in seconds, times `scale`; `?` is NaN |
| rank | the number, and it is the rank of the line |
| bar | no value: any text, as the drawing of a progress bar |
| skip | no value: a number, clock or word that differs from line to line |

A number is what Python's `float` takes, with thousands separators, `nan`, `inf` and `infinity` in any case.
"""

_NUMBER = rb"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?i:nan|inf(?:inity)?)"


@dataclass(frozen=True, slots=True)
class Slot:
    """A part of a line that differs between lines of one layout: bytes `start` to `end`."""

    start: int
    end: int
    metric: str
    """Empty for what only varies (`bar`, `skip`, and a `rank` that is no metric)."""
    kind: Kind = "number"
    scale: float = 1.0
    scope: str = ""
    """Of `tokens_per_second`: `device` or `job`."""


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """What a line says. Lines whose text outside the slots is equal have equal meaning."""

    slots: tuple[Slot, ...]
    """In order, not overlapping. Numbers outside of slots carry no meaning and may vary."""
    format: str
    """`framework/name`."""
    certain: bool = True
    """False: counts only if lines of this layout repeat with growing steps."""


_MEGATRON = re.compile(rb"iteration\s+(" + _NUMBER + rb")/\s*(" + _NUMBER + rb")\s*\|")
_COLUMN = re.compile(rb"\|\s*([a-z][^|:]*):\s*(" + _NUMBER + rb")")
_BAR = re.compile(
    rb"(\d+)%(\|[^|]*\|)\s*(\d+)/(\d+)\s\[([\d:?]+)<([\d:?]+),\s+(" + _NUMBER + rb")(it/s|s/it)"
)
_NAMES = {
    b"elapsed time per iteration (ms)": ("step_time_seconds", 1000.0),
    b"learning rate": ("learning_rate", 1.0),
    b"lm loss": ("loss", 1.0),
    b"grad norm": ("grad_norm", 1.0),
}


def anchors() -> Sequence[str]:
    """Return patterns, one of which is found in every line that `parse_line` knows."""
    return ("elapsed time per iteration", r"it/s|s/it")


def parse_line(line: bytes) -> ParsedLine | None:
    """Return what a line says, or None if it holds no metric.

    `line` has no line end (a progress bar's `\\r` ends a line too); prefixes and colours may stay on it.
    """
    head = _MEGATRON.search(line)
    if head is not None:
        slots = [Slot(*head.span(1), "step"), Slot(*head.span(2), "total_steps")]
        for found in _COLUMN.finditer(line, head.end() - 1):
            name = found[1].strip()
            metric, scale = _NAMES.get(name, (name.decode().lower(), 1.0))
            slots.append(
                Slot(*found.span(2), metric, "number" if scale == 1.0 else "divided", scale)
            )
        return ParsedLine(tuple(slots), "megatron/training")
    bar = _BAR.search(line)
    if bar is not None:
        kind: Kind = "inverse" if bar[8] == b"it/s" else "number"
        slots = [
            Slot(*bar.span(1), "", "skip"),
            Slot(*bar.span(2), "", "bar"),
            Slot(*bar.span(3), "step"),
            Slot(*bar.span(4), "total_steps"),
            Slot(*bar.span(5), "", "skip"),
            Slot(*bar.span(6), "", "skip"),
            Slot(*bar.span(7), "step_time_seconds", kind),
        ]
        return ParsedLine(tuple(slots), "tqdm/bar")
    return None
