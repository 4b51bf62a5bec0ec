"""Lines of programs that none of our formats knows: `key=value`, `key: value`, JSON. Pure.

Numbers are everywhere in logs, so a line counts only with evidence that it is about training:

1. a step or an epoch, and a metric by a name that programs agree on; or
2. two such metrics, one of them a result (a loss, an accuracy, a perplexity); or
3. a result alone, if no other number has a name; or
4. a step or an epoch with numbers of other names and no words between, if such lines repeat and the steps grow; or
5. a learning rate alone after a date (settings have none), if such lines repeat and it changes.

Arguments, settings, file names and tracebacks do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from airflow_training.logs.metrics.names import COUNTERS, RESULTS, meaning, spelled
from airflow_training.logs.metrics.numbers import PLAIN, UNITS
from airflow_training.logs.metrics.pairs import Pair, signed, worded
from airflow_training.logs.metrics.slots import Claims, ParsedLine, rate_of, scope_of

__all__ = ["ANCHORS", "parse"]

ANCHORS = (
    r"(?i:loss|accuracy|perplexity)[^0-9]{0,16}(?:[0-9]|nan|inf|NaN|Inf)",
    r"(?i:step|epoch|iter)[^0-9]{0,14}[0-9]",
    r"acc(?:: |=)[0-9]",
    r"learning[_ ]rate: [0-9]|\d: lr: \d",
)
_N = PLAIN.encode()
_COUNTER = re.compile(
    rb"(?i)(?:^|[^\w/.-])(?P<name>epoch|(?:(?:(?:global|train|training|current)[ _-])?step|iteration|iter)(?P<many>s)?)[\"']?"
    rb"\s*(?:[:=#]\s*)*(?:[\[(]\s*)?(?P<number>" + _N + rb")"
    rb"(?P<total>\s*(?:/|of)\s*(?P<of>" + _N + rb"))?(?![\w.]*\w)"
)
_BATCH = re.compile(
    rb"(?i)\bbatch\s*[:#]?\s*\[?\s*(?P<number>"
    + _N
    + rb")\s*(?:/|of)\s*(?P<of>"
    + _N
    + rb")(?![\w.]*\w)"
)
"""Without a total it is rather the size of a batch."""
_NESTED = re.compile(rb"[\"'](?P<name>[\w /.@-]+)[\"']\s*:\s*\{[^{}]*\}")
_EVALUATIONS = frozenset({"eval", "evaluation", "val", "valid", "validation", "test", "dev"})
_NOT_TRAINING = re.compile(
    rb"(?i)namespace\(|argument|\bargs\b|config|hparam|hyper-?param|traceback|  file \"|\berror\b|exception"
    rb"|\s--[a-z]|https?://|\bsav(?:e|ed|ing)\b|checkpoint|\bload(?:ed|ing)?\b|\bbest\b|\bdefault"
    rb"|num_(?:train|epochs|workers|layers|steps|classes)|parameters\b|warmup_|early.stop|\bwarning\b|deprecat"
)
_RATE = re.compile(
    rb"(?:^|[\s(,|])(?P<number>" + _N + rb")\s?(?P<unit>(?:it|steps?)/s|s/(?:it|step)|ms/step"
    rb"|(?:samples?|images?|imgs?|examples?|seqs?|tok|toks|tokens?)/s(?:ec)?(?:/(?:gpu|GPU|device))?)(?![\w/])"
)
"""A number before its unit tells its metric without a name."""
_TIMED = re.compile(rb"^\W*[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[ T_]")
_JSON = re.compile(rb"\{\s*[\"'][\w /.@-]+[\"']\s*:")
_RESULT = re.compile(r"(?:^|[\s_/.-])(?:loss|acc|accuracy|perplexity|ppl)$")
"""A loss or accuracy of a kind that has no name of its own."""
_TABLE = re.compile(rb"\w  +[:=]")
"""A table of results repeats what was printed before."""
_WORD = re.compile(rb"[A-Za-z]{3,}")


def parse(line: bytes) -> ParsedLine | None:
    """Return what a line of an unknown program says, or None."""
    if _NOT_TRAINING.search(line):
        return None
    claims = Claims(line)
    as_json = _JSON.search(line) is not None
    counted = list(_COUNTER.finditer(line))
    for found in counted:
        if found["name"].lower() == b"epoch":
            claims.add(*found.span("number"), "epoch", "number", form="plain")
            if found["of"]:
                claims.add(*found.span("of"), "", "skip", form="plain")
        else:
            claims.add(*found.span("number"), "step", "number", form="plain")
            if found["of"]:
                claims.add(*found.span("of"), "total_steps", "number", form="plain")
    batch = _BATCH.search(line)
    if batch is not None and claims.add(*batch.span("number"), "step", "number", form="plain"):
        claims.add(*batch.span("of"), "total_steps", "number", form="plain")
    pairs = [pair for pair in signed(line) if pair.quoted or not as_json]
    if as_json:
        pairs = list(_of_evaluations(line, pairs))
    claims.add_pairs(pairs)
    if not as_json:
        claims.add_pairs(pair for pair in worded(line) if _is_measure(pair.name))
        for found in _RATE.finditer(line):
            unit = found["unit"].decode()
            kind, scale = UNITS.get(unit, ("number", 1.0))
            metric = "step_time_seconds" if unit in UNITS else rate_of(unit)
            scope = scope_of(unit, metric)
            claims.add(*found.span("number"), metric, kind, scale, scope, form="plain")
    many = bool(counted) and all(found["many"] for found in counted)
    return _judge(claims, line, pairs=pairs, as_json=as_json, many=many)


def _of_evaluations(line: bytes, pairs: Sequence[Pair]) -> Iterator[Pair]:
    """Yield the pairs of a JSON line; those of an object of an evaluation have its name before theirs."""
    inner = [
        (found.span(), found["name"].decode())
        for found in _NESTED.finditer(line)
        if found["name"].decode().lower() in _EVALUATIONS
    ]
    for pair in pairs:
        outer = next((name for (a, b), name in inner if a < pair.start < b), None)
        yield pair if outer is None else replace(pair, name=f"{outer}/{pair.name}")


def _judge(
    claims: Claims, line: bytes, *, pairs: Sequence[Pair], as_json: bool, many: bool
) -> ParsedLine | None:
    """Return the line if there is evidence that it is about training.

    `many`: its only counter is in the plural (`steps: 100`), which settings have too.
    """
    found = claims.metrics
    counted = found & COUNTERS
    agreed = {name for name in found - COUNTERS if name in _agreed() or _RESULT.search(name)}
    name = "any/json" if as_json else "any/pairs"
    if (
        (counted and agreed and (agreed & RESULTS or not many))
        or (len(agreed) > 1 and agreed & RESULTS)
        or (agreed & RESULTS and len(found) == 1 and not _TABLE.search(line))
    ):
        return claims.parsed(name)
    if found == {"learning_rate"} and _TIMED.search(line):
        return claims.parsed(name, certain=False)
    if counted and found > counted and (as_json or _only_pairs(line, pairs)):
        return claims.parsed(name, certain=False)
    return None


@cache
def _agreed() -> frozenset[str]:
    """Return the metrics that have a name of their own."""
    return frozenset(metric for metric, _ in spelled().values())


def _is_measure(name: str) -> bool:
    """Return whether a name before a number means a metric even without a sign between them."""
    said = meaning(name)
    return said.known and said.metric not in COUNTERS


def _only_pairs(line: bytes, pairs: Sequence[Pair]) -> bool:
    """Return whether a line has no words between its pairs, so that it is no sentence."""
    at = 0
    for pair in pairs:
        between = line[at : pair.start]
        name = pair.name.encode()
        if at and _WORD.search(between.replace(name, b"", 1)):
            return False
        at = pair.stop
    return not _WORD.search(line[at:])
