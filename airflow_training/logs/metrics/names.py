"""Which metric a program means by a name. Pure, but for the table of spellings that it reads once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from airflow_training.logs.metrics import packaged
from airflow_training.logs.metrics.numbers import UNITS

__all__ = ["CLOCK", "COUNTERS", "RESULTS", "MetricMeaning", "meaning", "normal", "spelled"]

CLOCK = "clock"
"""Scope of a time that may be that of a step, or since the start: its series tells."""
COUNTERS = frozenset({"step", "total_steps", "epoch"})
"""Metrics that say where a run is, not how it is."""
RESULTS = frozenset({"loss", "eval_loss", "accuracy", "eval_accuracy", "perplexity"})
"""Metrics that hardly any line holds that is not about training."""

_TABLE = packaged.FOLDER / "names.yaml"
_JOINTS = re.compile(r"[\s_/.-]+")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_FILLER = re.compile(
    r"^(?:average|avg|mean|running|current|mini-?batch|batch)[\s_.-]+", re.IGNORECASE
)
"""Words before a name that do not change what it measures."""
_UNIT_IN_NAME = re.compile(
    r"^(?P<name>.*\S)\s*(?:\((?P<a>ms|us|s|sec|seconds|[KMG]i?B)\)|\[(?P<c>m?s)\]|[ _](?P<b>ms))$"
)
_UNIT_PER_STEP = re.compile(
    r"^(?P<unit>ms|s|sec)(?:/|[ _]per[ _])(?:batch|step|iter|iteration|it)$"
)
"""A name that is nothing but a unit."""
_STEP = re.compile(r"batch|step|iter|iteration", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MetricMeaning:
    """What a name stands for."""

    metric: str
    known: bool
    """False: it is the name of the program itself, in lower case."""
    scope: str = ""
    unit: str = ""
    """That is part of the name, as in `elapsed time per iteration (ms)`."""


def normal(name: str) -> str:
    """Return a name without what programs differ in: case, and what joins its words."""
    return _JOINTS.sub(" ", _HUMP.sub(" ", name).lower()).strip()


@cache
def spelled() -> Mapping[str, tuple[str, str]]:
    """Return (metric, scope) by normal spelling."""
    table: dict[str, tuple[str, str]] = {}
    for metric, spellings in packaged.read(_TABLE).items():
        for spelling in spellings:
            if isinstance(spelling, dict):
                ((scope, names),) = spelling.items()
                table |= dict.fromkeys(names, (metric, scope))
            else:
                table[spelling] = (metric, "job" if metric == "tokens_per_second" else "")
    return table


def meaning(name: str, own: Mapping[str, str] | None = None) -> MetricMeaning:
    """Meaning of a metric's name; `own` has names of one format, by normal spelling."""
    for candidate, unit in _readings(name):
        key = normal(candidate)
        if own and key in own:
            return MetricMeaning(own[key], known=True, unit=unit)
        if key in spelled():
            metric, scope = spelled()[key]
            return MetricMeaning(metric, known=True, scope=scope, unit=unit)
    return MetricMeaning(name.lower(), known=False)


def _readings(name: str) -> list[tuple[str, str]]:
    """Return the name as it is, without a unit at its end, and without a filler before it."""
    readings = [(name, "")]
    per = _UNIT_PER_STEP.match(name)
    if per is not None:
        readings.append(("step time", per["unit"]))
    found = _UNIT_IN_NAME.match(name)
    if found is not None:
        unit = found["a"] or found["b"] or found["c"]
        timed = "step time" if _STEP.fullmatch(found["name"]) else found["name"]  # `step_ms`
        readings.append((timed, unit if unit in UNITS else "s"))
    whole = _HUMP.sub(" ", name)
    bare = _FILLER.sub("", whole)
    return readings if bare == whole else [*readings, (bare, "")]
