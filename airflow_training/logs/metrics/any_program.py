"""Lines of programs that none of our formats knows: `key=value`, `key: value`, JSON. Pure.

Numbers are everywhere in logs, so a line counts only with evidence that it is about training:

1. a step or an epoch, and a metric by a name that programs agree on; or
2. two such metrics, one of them a result (a loss, an accuracy, a perplexity); or
3. a result alone, if nothing else is in the line;
4. a step or an epoch with numbers of other names, if such lines repeat and the steps grow.

Arguments, settings, file names and tracebacks do not count.
"""

from __future__ import annotations

import re

from airflow_training.logs.metrics.names import COUNTERS, RESULTS, spelled
from airflow_training.logs.metrics.numbers import NUMBER
from airflow_training.logs.metrics.pairs import Pair, signed, worded
from airflow_training.logs.metrics.slots import Claims, ParsedLine

__all__ = ["ANCHORS", "parse"]

ANCHORS = (
    "(?i:loss)",
    "(?i:step)",
    "(?i:epoch)",
    "(?i:iter)",
    "(?i:accuracy)",
    "(?i:perplexity)",
)
_N = NUMBER.encode()
_COUNTER = re.compile(
    rb"(?i)(?:^|[^\w/.-])(?P<name>epoch|(?:global|train|training|current)[ _-]step|step|iteration|iter)s?[\"']?\s*(?:[:=#]\s*)*"
    rb"(?:[\[(]\s*)?(?P<number>[0-9][0-9,]*(?:\.[0-9]+)?)(?P<total>\s*(?:/|of)\s*(?P<of>[0-9][0-9,]*))?(?![\w.]*\w)"
)
_NOT_TRAINING = re.compile(
    rb"(?i)namespace\(|argument|\bargs\b|config|hparam|hyper-?param|parameters?:|traceback|  file \"|\berror\b|exception|--[a-z]|https?://|"
    rb"\bsav(?:e|ed|ing)\b|checkpoint|\bload(?:ed|ing)?\b|\bbest\b|\bdefault|\bschedul|num_|total params|warmup_steps|early stop"
)
_JSON = re.compile(rb"\{\s*[\"'][\w /.@-]+[\"']\s*:")
_WORDS = frozenset(
    {"loss", "train loss", "val loss", "validation loss", "training loss", "average loss", "avg loss", "acc", "accuracy",
     "train acc", "val acc", "lr", "ppl", "perplexity", "grad norm", "gnorm", "norm", "mfu", "time", "dt"}
)


def parse(line: bytes) -> ParsedLine | None:
    """Return what a line of an unknown program says, or None."""
    if _NOT_TRAINING.search(line):
        return None
    claims = Claims()
    is_json = _JSON.search(line) is not None
    counters = list(_COUNTER.finditer(line))
    for found in counters:
        metric = "epoch" if found["name"].lower() == b"epoch" else "step"
        claims.add(*found.span("number"), metric, "number")
        if found["total"]:
            claims.add(*found.span("of"), "total_steps" if metric == "step" else "", "number" if metric == "step" else "skip")
    pairs = list(signed(line))
    if is_json:
        pairs = [pair for pair in pairs if pair.quoted]
    claims.add_pairs(pairs)
    return _judge(claims, line, counters=bool(counters), is_json=is_json)


def _judge(claims: Claims, line: bytes, *, counters: bool, is_json: bool) -> ParsedLine | None:
    found = claims.metrics
    agreed = {name for name in found if name not in COUNTERS and name in {m for m, _ in spelled().values()}}
    name = "any/json" if is_json else "any/pairs"
    if (counters and agreed) or (len(agreed) >= 2 and agreed & RESULTS):
        return claims.parsed(line, name)
    if agreed & RESULTS and len(found) == 1:
        return claims.parsed(line, name)
    if found & COUNTERS and found - COUNTERS:
        return claims.parsed(line, name, certain=False)
    return None
