"""Conditions under which a training has done enough: `loss < 0.1 and epoch >= 3`. Text to data; decides nothing.

A condition is comparisons of a metric with a number, joined by `and` and `or`; `and` binds more. `mean(loss)`, `max(loss)`
and `min(loss)` are over all ranks. No parentheses besides, no arithmetic: nothing is evaluated but comparisons.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

__all__ = ["Over", "StopComparison", "StopCondition", "parse_condition"]

Over = Literal["rank 0", "mean", "max", "min"]
_LONGEST = 1000
_COMPARISON = re.compile(
    r"(?:(?P<over>mean|max|min)\(\s*(?P<inner>{0})\s*\)|(?P<name>{0}))\s*(?P<operator><=|>=|==|!=|<|>)\s*"
    r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)".format(r"[A-Za-z_][\w./-]*")
)

_OTHERS_WORDS = (
    (r"&&?", "and"),
    (r"\|\|?", "or"),
    (r"\bAND\b", "and"),
    (r"\bOR\b", "or"),
    (r"=<", "<="),
    (r"=>", ">="),
    (r"<>", "!="),
    (r"≤", "<="),
    (r"≥", ">="),
    (r"≠", "!="),
    (r"(?<![<>=!])=(?![<>=])", "=="),
    (r"\bnot\b|!(?!=)", "!="),
    (r"\b(?:avg|average)\(", "mean("),
    (r"\bmaximum\(", "max("),
    (r"\bminimum\(", "min("),
    (r"\b(?:below|under|less than)\b", "<"),
    (r"\b(?:above|over|greater than|more than)\b", ">"),
    (r"\bat least\b", ">="),
    (r"\bat most\b", "<="),
    (r"[,;]", "and"),
    (r"\d+ ?%", "a part of 1, as 0.9"),
)
"""How other languages write what is written in another way here, as patterns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopComparison:
    metric: str
    """`step`, `epoch`, `samples`, or a metric that the script reports."""
    operator: str
    number: float
    over: Over | None = None
    """None: as the job says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCondition:
    any_of: tuple[tuple[StopComparison, ...], ...]
    """It holds where all comparisons of one of these hold."""


@lru_cache(maxsize=256)
def parse_condition(text: str) -> StopCondition:
    """Read a condition; raises ValueError that says what is wrong and where."""
    if len(text) > _LONGEST:
        raise ValueError(f"is longer than {_LONGEST} characters")
    groups = [
        tuple(_comparison(part) for part in re.split(r"\band\b", group))
        for group in re.split(r"\bor\b", text)
    ]
    return StopCondition(any_of=tuple(groups))


def _comparison(text: str) -> StopComparison:
    found = _COMPARISON.fullmatch(text.strip())
    if found is None:
        likely = "".join(
            f"; {other[0]} is written {ours}"
            for pattern, ours in _OTHERS_WORDS
            if (other := re.search(pattern, text)) is not None
        )
        raise ValueError(
            f"{text.strip()!r} is no comparison of a metric with a number, as in 'loss < 0.1' or"
            f" 'mean(accuracy) >= 0.9'{likely}"
        )
    return StopComparison(
        metric=found["inner"] or found["name"],
        operator=found["operator"],
        number=float(found["number"]),
        over=cast("Over | None", found["over"]),
    )
