"""Numbers without a name, whose unit tells their metric: `14.5K tok/s`, `(350 ms)`, `41 % MFU`. Pure."""

from __future__ import annotations

import re

from airflow_training.logs.metrics.names import COUNTERS
from airflow_training.logs.metrics.numbers import UNITS, number_pattern
from airflow_training.logs.metrics.slots import Claims, magnitude, rate_of, scope_of

__all__ = ["RATE", "add_alone", "add_rates"]

_PER_STEP = re.compile(r"(?P<time>m?s|sec|seconds)/(?:it|iter|iteration|step|batch)")
RATE = number_pattern(
    rb"(?:^|[\s(\[,|])(?P<number>{PLAIN})\s?(?:(?:src|tgt) )?"
    rb"(?P<unit>(?:it|iter|steps?)/s(?:ec)?|(?:m?s|sec|seconds)/(?:it|iter|iteration|step|batch)"
    rb"|(?:[kKM]\s?)?[a-z]{3,}(?: ?/ ?s(?:ec(?:ond)?)?(?:/(?:gpu|GPU|device))?| per sec(?:ond)?(?!\s*[:=0-9])))"
    rb"(?![\w/])(?!{NAMED})"
)
_ALONE = rb"[(\[,;|]\s?|\s-\s|[0-9]\s{1,2}"
"""What stands before a number that has no name."""
_TOOK = number_pattern(
    rb"(?:{ALONE}|\btook\s)(?P<number>{PLAIN})\s?(?:ms|msec|milliseconds)(?![\w/])", ALONE=_ALONE
)
_TPS = number_pattern(
    rb"(?:{ALONE}|\bat\s)(?P<number>{PLAIN})\s?(?P<unit>(?:[kKM]\s?)?t[pg]s)(?![\w/])(?!\s*[:=]?\s*[0-9])",
    ALONE=_ALONE,
)
"""Tokens only beside what is surely training: else it may be the transactions of anything."""
_STEP_IN = number_pattern(
    rb"(?i)\b(?:step|iteration|iter)\W{0,3}{PLAIN}(?:\s?/\s?{PLAIN})?[\])]?\s"
    rb"(?:(?:is )?(?:done|finished|completed?|ended) )?in (?P<number>{PLAIN})\s?"
    rb"(?P<unit>ms|msec|milliseconds|s|sec|secs|seconds)(?![\w/])"
)
"""`step 300 done in 350 ms`: nothing else stands there that could have taken it."""
_USED = number_pattern(
    rb"(?:{ALONE}|\b(?:mem(?:ory)?|gpu|vram|ram)\s)(?P<number>{PLAIN})\s?(?P<own>[KMGT]i?B)?"
    rb"\s?/\s?{PLAIN}\s?(?P<unit>[KMGT]i?B)\b",
    ALONE=_ALONE,
)
"""Memory that is used of all, without a name or sign: `| 5.1/23.7 GiB (21.5%)`."""
_MFU = number_pattern(rb"(?:^|[\s(,|])(?P<number>{NUMBER})\s?%\s(?:[a-z]+[0-9]+\s)?MFU\b")


def add_rates(claims: Claims, line: bytes) -> None:
    """Add the numbers before units that no other number has."""
    for found in RATE.finditer(line):
        unit = found["unit"].decode().replace(" / ", "/")
        times, bare = magnitude(unit)
        per_step = _PER_STEP.fullmatch(bare)
        kind, scale = UNITS.get(per_step["time"] if per_step else bare, ("number", times))
        timed = per_step is not None or bare in UNITS
        metric = "step_time_seconds" if timed else rate_of(bare) or bare
        claims.add(*found.span("number"), metric, kind, scale, scope_of(bare, metric), form="plain")


def add_alone(claims: Claims, line: bytes) -> None:
    """Add what names may have taken first: in a line of a step, a time that stands alone is the step's."""
    if "step" in claims.metrics:
        for found in _TOOK.finditer(line):
            claims.add(*found.span("number"), "step_time_seconds", "divided", 1e3, form="plain")
        for found in _STEP_IN.finditer(line):
            kind, scale = UNITS[found["unit"].decode().lower()]
            claims.add(*found.span("number"), "step_time_seconds", kind, scale, form="plain")
    if claims.metrics - COUNTERS:
        for found in _TPS.finditer(line):
            times, bare = magnitude(found["unit"].decode())
            metric = rate_of(bare)
            scope = scope_of(bare, metric)
            claims.add(*found.span("number"), metric, "number", times, scope, form="plain")
        for found in _USED.finditer(line):
            kind, scale = UNITS[(found["own"] or found["unit"]).decode()]
            claims.add(*found.span("number"), "memory_bytes", kind, scale, form="plain")
    for found in _MFU.finditer(line):
        claims.add(*found.span("number"), "mfu", "divided", 100.0)
