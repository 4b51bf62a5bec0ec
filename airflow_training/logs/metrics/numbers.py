"""How numbers and their units are written in logs. Pure.

One syntax for the reference way and the fast one; `convert` is what the fast one must agree with, to the last bit.
"""

from __future__ import annotations

import re
from typing import Literal

from airflow_training.logs.engine.numbers import CLOCK, NUMBER, PLAIN, RANK

__all__ = ["CLOCK", "NUMBER", "RANK", "UNITS", "Kind", "number_pattern"]

_NAMED = rf"\s+{PLAIN}\s*(?:$|[,;|)])"
"""Behind a word that may be a unit: a number without one, so that it is rather its name. `lr 0.1 samples/sec 21.4`."""

Kind = Literal["number", "divided", "inverse", "clock", "rank", "bar", "skip"]
"""How the text of a slot is read.

| kind | value |
|---|---|
| number | the number times `scale` |
| divided | the number divided by `scale` (so that 56.78 % is 0.5678, to the last bit) |
| inverse | `scale` divided by the number; infinite for 0 |
| clock | `[[D day(s), ]H:]M:S` in seconds, times `scale`; `?` is NaN |
| rank | the number, and it is the rank of the line |
| bar | no value: any text up to the next fixed byte, as the drawing of a progress bar |
| skip | no value: a run of `[0-9.,:?+-]` that differs from line to line |

How these are written is in `logs/engine/numbers.py`.
"""

UNITS: dict[str, tuple[Kind, float]] = {
    "": ("number", 1.0),
    "%": ("divided", 100.0),
    "s": ("number", 1.0),
    "sec": ("number", 1.0),
    "secs": ("number", 1.0),
    "seconds": ("number", 1.0),
    "ms": ("divided", 1e3),
    "msec": ("divided", 1e3),
    "milliseconds": ("divided", 1e3),
    "us": ("divided", 1e6),
    "µs": ("divided", 1e6),
    "m": ("number", 60.0),
    "min": ("number", 60.0),
    "h": ("number", 3600.0),
    "s/it": ("number", 1.0),
    "s/step": ("number", 1.0),
    "s/iter": ("number", 1.0),
    "sec/step": ("number", 1.0),
    "ms/it": ("divided", 1e3),
    "ms/step": ("divided", 1e3),
    "ms/iter": ("divided", 1e3),
    "us/step": ("divided", 1e6),
    "it/s": ("inverse", 1.0),
    "iter/s": ("inverse", 1.0),
    "step/s": ("inverse", 1.0),
    "steps/s": ("inverse", 1.0),
    "steps/sec": ("inverse", 1.0),
    # PyTorch's tools print powers of two under both names
    "B": ("number", 1.0),
    "K": ("number", 2.0**10),
    "KB": ("number", 2.0**10),
    "KiB": ("number", 2.0**10),
    "M": ("number", 2.0**20),
    "Mb": ("number", 2.0**20),
    "MB": ("number", 2.0**20),
    "MiB": ("number", 2.0**20),
    "G": ("number", 2.0**30),
    "Gb": ("number", 2.0**30),
    "GB": ("number", 2.0**30),
    "GiB": ("number", 2.0**30),
    "T": ("number", 2.0**40),
    "TB": ("number", 2.0**40),
    "TiB": ("number", 2.0**40),
}
"""Unit as printed -> how a number in it becomes the unit that the metric is kept in."""


def number_pattern(text: bytes, **parts: bytes) -> re.Pattern[bytes]:
    r"""Return a compiled pattern; `{NUMBER}`, `{PLAIN}` and `{NAMED}` in it stand for how numbers are written.

    `parts`: what other names in braces stand for. `number_pattern(rb"step\s{PLAIN}")` finds `step 12,000`.
    """
    named = {"NUMBER": NUMBER.encode(), "PLAIN": PLAIN.encode(), "NAMED": _NAMED.encode(), **parts}
    for name, part in named.items():
        text = text.replace(b"{%s}" % name.encode(), part)
    return re.compile(text)
