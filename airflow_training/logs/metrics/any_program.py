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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache

from airflow_training.logs.lines.prefixes import prefix
from airflow_training.logs.metrics.names import COUNTERS, RESULTS, meaning, spelled
from airflow_training.logs.metrics.numbers import UNITS, number_pattern
from airflow_training.logs.metrics.pairs import Pair, at_step, dashed, placed, signed, worded
from airflow_training.logs.metrics.slots import Claims, ParsedLine
from airflow_training.logs.metrics.units import RATE, add_alone, add_rates

__all__ = ["ANCHORS", "LISTED", "is_measure", "parse"]

ANCHORS = (
    r"(?i:loss|accuracy|perplexity)[^0-9]{0,16}(?:[0-9]|nan|inf|NaN|Inf)",
    r"(?i:step|epoch|iter|update)[^0-9]{0,14}[0-9]",
    r"acc[\"']?\s?[:=]\s?[0-9]|(?i:accu)[ :]{1,3}[0-9]",
    r" \| (?:[-+0-9]|nan|inf)",
    r"learning[_ ]rate: [0-9]|\d: lr: \d",
    r"(?:batch=|train: )[0-9]",
    r"grad_norm['\"]?[:=] ?[0-9]|learning_rate['\"]: ?[0-9]",
    r"(?:train|optim|perf|throughput|metrics|eval|system|memory|time)/[A-Za-z_0-9/ ()]{1,60}(?:=|: )[0-9]",
    r"(?i:loss|_acc|accuracy|_f1) {4,60}[-0-9]",
    r"(?:img|image|sample|example|token)s?/s(?:ec)?[^0-9]{0,12}[:=] ?[0-9]",
    r"(?:│|┃) {1,30}(?:[-+0-9]|nan|inf)",
    r"\| > [A-Za-z_0-9]{1,40}: {1,8}[-0-9]",
    r"(?i:reward|return|mean|average|entropy|score|psnr|dice|recall|ndcg)[^0-9]{0,30}[:=]\s{0,8}[-+.\[]{0,2}[0-9]",
)
LISTED = "any/listed"
"""Format of one value of many, each on a line of its own: what stands around it tells whether it counts."""
_COUNTER = number_pattern(
    rb"(?i)(?:^|[^\w/.-])"
    rb"(?P<name>epoch|(?:(?:(?:train|training|current|optim(?:izer)?)[ _-]|g(?:lobal[ _-]?)?)?step|iteration|iter|update(?= )|it(?=[:=]|\s+{PLAIN}\s*[/|,:]))(?P<many>s)?)"
    rb"(?:_num(?:ber)?)?[\"']?\s*(?:\.{2,3}\s*)?(?:[:=#]\s*)*(?:[\[(]\s*)?"
    rb"(?P<number>{PLAIN})(?P<total>\s*(?:/|of)\s*(?P<of>{PLAIN}))?(?![\w.]*\w)"
)
_BATCH = number_pattern(
    rb"(?i)(?:\bbatch\s*[:#=]?\s*\[?\s*(?={PLAIN}\s*(?:/|of))|\btrain(?:ing)? batch\s+|(?:^|[|\])]\s)\s*batch #?(?={PLAIN}\s[a-z|-]))"
    rb"(?P<number>{PLAIN})(?:\s*(?:/|of)\s*(?P<of>{PLAIN}))?(?![\w.]*\w)"
)
"""`batch` without a total is rather the size of one, but where a line begins with it: `batch 50 loss 0.7`."""
_BATCH_OF_EPOCH = number_pattern(
    rb"(?i)\s*(?:[,|:;-]|\]\s*\[)?\s*(?:(?:train(?:ing)? )?batch\s*#?\s*|(?={PLAIN}\s*/))"
    rb"(?P<number>{PLAIN})(?:\s*/\s*(?P<of>{PLAIN}))?(?![\w./]*\w)"
)
"""What follows an epoch directly: `Epoch 1, batch 50`, `Epoch 1, 50/900`."""
_HEAD = number_pattern(rb"^\s*(?P<number>{PLAIN})(?:/(?P<of>{PLAIN})(?=\s*[:|(])|(?=\s\|\s[a-z]))")
"""A step before all else: `50/900: loss = 0.5`, `50 | loss 0.5`."""
_PLACE = number_pattern(
    rb"(?i)[\[(]\s*(?:(?:batch|step|iteration|iter|it|i|s)\s+)?(?P<number>{PLAIN})(?:\s*(?:/|of)\s*(?P<of>{PLAIN}))?"
    rb"\s*(?:samples|batches|steps|iterations|iters|it)?"
    rb"\s*(?P<share>(?:(?P<open>\()|[,;:-]|\s)\s*{PLAIN}\s?%\s*(?(open)\)))?\s*(?:[\])]|(?(of)[,;]\s))"
)
"""A step in brackets, with a total or a share of it that is done."""
_PLACES = number_pattern(
    rb"\[\s*(?P<epoch>{PLAIN})(?:\s*/\s*(?P<of>{PLAIN}))?\s*\]\s?(?=\[\s*{PLAIN}\s*/)"
)
"""The epoch in brackets before those of the step."""
_OF_EPOCH = number_pattern(
    rb"\[(?i:train(?:ing)?)\s*:\s*(?P<epoch>{PLAIN})(?P<of>)\s*,\s*(?={PLAIN}\s*/)"
)
"""The epoch before the step in one pair of brackets: `[train: 35, 800 / 1000]`."""
_OF_TOTAL = number_pattern(
    rb"(?<![\w.])(?P<number>{PLAIN})\s*/\s*(?P<of>{PLAIN})(?:\s+(?:batches|iterations|iters|steps)\b|\s*\(\s*{PLAIN}%\s*\))"
)
_BEHIND_FILE = number_pattern(rb"\.(?:py|cc):[0-9]+\] \[(?P<number>{PLAIN})(?P<of>)\](?= [A-Za-z])")
"""A step before the message, where prefix and file have told process and thread."""
_STEP_BEHIND = number_pattern(rb"(?P<number>{PLAIN})\s*/\s*(?P<of>{PLAIN})\s*\]")
_NESTED = re.compile(
    rb"[\"'](?P<name>[\w /.@-]+)[\"']\s*:\s*\{[^{}]*\}|(?<![\w\"'])(?P<group>[A-Za-z]\w*)\[[^\[\]=]+=[^\[\]]*\]"
)
"""Pairs that belong together: `"eval": {...}`, `total[...]`."""
_EVALUATIONS = frozenset({"eval", "evaluation", "val", "valid", "validation", "test", "dev"})
_HEADING = re.compile(
    rb"(?:^|[\s|\[(,;:>])(?:(?P<eval>(?i:eval(?:uation)?|val(?:id(?:ation)?)?|dev|test)|CV)|(?i:train(?:ing)?))\b(?=[\s:=|\])-])(?!\s*[:=]\s*[-+]?[0-9])"
)
"""What the pairs after it are about: `DEV : loss 0.5`, `| Val: loss = 0.5`."""
_NOT_TRAINING = re.compile(
    rb"(?i)namespace\(|argument|\bargs\b|config|hparam|hyper-?param|traceback|  file \"|\berror\b(?!\s*[:=]\s*[0-9.])|exception|(?-i:[a-z]Error: )"
    rb"|\s--[a-z]|https?://|\bsav(?:e|ed|ing)\b|checkpoint(?!\.?\s*$)|\bload(?:ed|ing)?\b|\bbest\b|\bdefault"
    rb"|num_(?:train|epochs|workers|layers|steps|classes)|parameters\b|warmup_|early.stop|\bwarning\b|deprecat"
)
_AFTER = number_pattern(
    rb"(?i)\b(?:at|after)\s(?P<number>{PLAIN})\s(?P<what>epoch|step|iteration|iter)s\b"
)
"""`after 300 steps`."""
_PART_OF_STEP = re.compile(rb"(?i)(?:micro|mini|local|inner|sub|accum\w*)[ _-]?$")
"""What counts parts of a step, or those of one process: `micro step 40`."""
_TIMED = re.compile(rb"^\W*[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[ T_]")
_JSON = re.compile(rb"\{\s*[\"'][\w /.@-]+[\"']\s*:")
_MEASURE = re.compile(
    r"(?:^|[\s_/.-])(?:loss|acc\d?|accu|accuracy|err(?:or)?|rms|perplexity|ppl|entropy|rewards?|rew|returns?|score|psnr|ssim|dice|m?iou|map(?:\d+|(?=@))|auc|f1|bleu|[wc]er"
    r"|mse|mae|rmse|nll|kl|objf|recall|precision|ndcg|mrr|hit|mean|average|avg|std)(?=$|[\s_/.@-])|(?:loss|rew|reward|entropy)$"
    r"|^(?:mean|avg)"
)
"""A name that says itself that it is measured, whatever kind of it."""
_OUTCOME = re.compile(
    r"(?i)(?:^|[\s_/.-])(?:loss|acc|accuracy|perplexity|ppl|crossentropy|cross_entropy|rew_mean|reward|return|approx_kl)(?:$|[\s_/.@-])|(?:loss|entropy)$"
)
"""A name that no setting has."""
_COMMON = frozenset({"step_time_seconds", "data_time_seconds", "memory_bytes", "learning_rate"})
"""What settings and times of anything are called too."""
_TABLE = re.compile(rb"\w  +[:=]")
"""A table of results repeats what was printed before."""
_WORD = re.compile(rb"[A-Za-z]{3,}")
_SIGN = re.compile(rb"^\s*(?:$|[,;|()\[\]]|-\s|\t)|(?:[,;|()\[\]]|\s-|\t)\s*$")
"""What parts names with numbers from each other."""
_SENTENCE = re.compile(
    r"(?i)\b(?:took|in|at|for|after|of|on|with|to|from|over|is|was|by|done|and|than|until|every|all|last|next|first)\b"
)
"""Words that no name of a metric has."""
_ROW = number_pattern(
    rb"^\s*{BAR}\s*(?P<name>[A-Za-z][\w/ .@-]{0,60}?)\s*{BAR}\s*(?P<number>{NUMBER})\s*{BAR}\s*$",
    BAR=rb"(?:\||\xe2\x94[\x82\x83])",
)
_BLANK_ROW = number_pattern(rb"^ {3,}(?P<name>[A-Za-z][\w/.@-]{0,60}) {4,}(?P<number>{NUMBER})\s*$")
_BULLET = re.compile(
    rb"^\s*(?:\|\s*)?>\s[A-Za-z]|^\s{2,}(?:[\"'][\w/ .@-]+[\"']: |(?:(?:Train|Eval|Val)[ :]\s*)?[a-zA-Z]\w*/[\w/.@-]+(?: [\w()]+){0,3}(?:=|: ))\S+$"
)
"""A value of a list below the line that tells the step: `| > step_time: 1.02`, `'grad_norm': 0.5,`, `optim/norm=1.2`."""
_LONE_PLACE = re.compile(rb"\[step=[0-9]+(?:/[0-9]+)?(?:, ?epoch=[0-9]+(?:/[0-9]+)?)?\]\s*$")
"""The step in brackets at the end of a line whose values stand below it."""
_LONE = re.compile(
    rb"(?i)(?:^|[]:>#=*-]|\b(?:info|debug))\s*(?:(?:train(?:ing)?|learning|current)[ _])?(?:global[ _]?)?(?:step|iteration|iter)\W*"
    rb"[0-9][^A-Za-z]*(?:global[ _]step[^A-Za-z]*)?$"
    rb"|^\W*(?:epoch=[0-9]+\]\[)?batch=[0-9]+/[0-9]+\]:$"
)
"""A counter and nothing else: the head of the lines that follow."""


def parse(line: bytes) -> ParsedLine | None:
    """Metrics in a line of an unknown program, or None."""
    if _NOT_TRAINING.search(line, prefix(line).length):
        return None
    claims = Claims(line)
    object_ = _JSON.search(line)
    as_json = object_ is not None
    claims.add_pairs(pair for pair in placed(line) if not pair.dashed or is_measure(pair.name))
    claims.add_pairs(pair for pair in dashed(line) if _OUTCOME.search(pair.name))
    in_row = _ROW.match(line) or _BLANK_ROW.match(line)
    if in_row is not None:
        return _of_row(claims, in_row)
    counted = [
        found
        for found in _COUNTER.finditer(line)
        if not _is_length(line, found) and claims.is_free(*found.span("number"))
    ]
    epochs = [found for found in counted if found["name"].lower() == b"epoch"]
    for found in epochs:
        claims.add(*found.span("number"), "epoch", "number", form="plain")
        if found["of"]:
            claims.add(*found.span("of"), "", "skip", form="plain")
    steps = [found for found in counted if found not in epochs]
    # of several the optimizer's: `iter` may count what is accumulated before a step
    for found in sorted(steps, key=_closeness):
        if claims.add(*found.span("number"), "step", "number", form="plain") and found["of"]:
            if found is min(steps, key=_closeness):
                claims.add(*found.span("of"), "total_steps", "number", form="plain")
            else:
                claims.add(*found.span("of"), "", "skip", form="plain")
    if not steps:
        _add_place(claims, line, epochs)
    pairs = [
        pair
        for pair in signed(line)
        if object_ is None
        or pair.quoted
        or (pair.stop <= object_.start() and (is_measure(pair.name) or pair.name.lower() in UNITS))
    ]
    pairs = list(_in_groups(line, pairs))
    claims.add_pairs(pairs)
    if not as_json:
        add_rates(claims, line)
        words = list(_in_groups(line, _measures(line, claims.first)))
        claims.add_pairs(words)
        pairs += words
        add_alone(claims, line)
    many = bool(counted) and all(found["many"] for found in counted)
    return _judge(claims, line, pairs=pairs, as_json=as_json, many=many)


def _closeness(counter: re.Match[bytes]) -> int:
    """Return how far a counter is from the steps of the optimizer, by its name."""
    name = counter["name"].lower()
    if _PART_OF_STEP.search(counter.string[: counter.start("name")]):
        return 3
    return 0 if name.startswith((b"global", b"optim")) else 1 if b"step" in name else 2


def _of_row(claims: Claims, found: re.Match[bytes]) -> ParsedLine | None:
    """Return what a row of a table of two columns says; its numbers differ from table to table."""
    name = found["name"].decode("utf-8", "replace")
    pair = Pair(name, found.start("name"), *found.span("number"), unit="", stop=found.end("number"))
    claims.add_pairs([pair])
    return claims.parsed(LISTED, certain=bool(_OUTCOME.search(name) or claims.metrics & RESULTS))


def _is_length(line: bytes, counter: re.Match[bytes]) -> bool:
    """Return whether a counter is rather how long something is: `episode steps: 200`."""
    before = line[: counter.start("name")]
    return bool(counter["many"]) and before[-1:] == b" " and before[-2:-1].islower()


def _add_place(claims: Claims, line: bytes, epochs: Sequence[re.Match[bytes]]) -> None:
    """Add where in an epoch the line is, which no counter says: `[120/5005 ( 2%)]`, `batch 3 of 9`, `epoch 1, 3/9`."""
    after = _AFTER.search(line)
    if after is not None:
        metric = "epoch" if after["what"].lower() == b"epoch" else "step"
        claims.add(*after.span("number"), metric, "number", form="plain")
    at = at_step(line)
    if at is not None:
        claims.add(*at.span("step"), "step", "number", form="plain")
    epoch = _PLACES.search(line) or _OF_EPOCH.search(line)
    if epoch is not None and "epoch" not in claims.metrics:
        claims.add(*epoch.span("epoch"), "epoch", "number", form="plain")
        if epoch["of"]:
            claims.add(*epoch.span("of"), "", "skip", form="plain")
    behind = None if epoch is None else _STEP_BEHIND.match(line, epoch.end())
    found = behind or _BEHIND_FILE.search(line) or _BATCH.search(line) or _OF_TOTAL.search(line)
    for each in epochs:
        found = found or _BATCH_OF_EPOCH.match(line, each.end())
    if found is None:
        places = (each for each in _PLACE.finditer(line) if each["of"] or each["share"])
        found = next((each for each in places if claims.is_free(*each.span("number"))), None)
    found = found or _HEAD.search(line)
    if found is None or not claims.add(*found.span("number"), "step", "number", form="plain"):
        return
    if found["of"]:
        claims.add(*found.span("of"), "total_steps", "number", form="plain")


def _in_groups(line: bytes, pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield the pairs; what groups and headings say of them stands before their names."""
    groups = [
        (found.span(), (found["name"] or found["group"]).decode(), bool(found["group"]))
        for found in _NESTED.finditer(line)
        if found["group"] or found["name"].decode().lower() in _EVALUATIONS
    ]
    headings = list(_HEADING.finditer(line))
    seen: set[str] = set()
    for pair in pairs:
        outer, by_repeat = next(
            ((name, plain) for (a, b), name, plain in groups if a < pair.start < b), ("", False)
        )
        heading = next((each for each in reversed(headings) if each.end() <= pair.begin), None)
        if outer and not (by_repeat and pair.name not in seen):
            pair = replace(pair, name=f"{outer}/{pair.name}")
        elif heading is not None and heading["eval"] and "train" not in pair.name.lower():
            metric = meaning(pair.name).metric
            if metric in ("loss", "accuracy"):
                pair = replace(pair, name=f"eval {metric}")
        seen.add(pair.name)
        yield pair


def _measures(line: bytes, first: int) -> Iterator[Pair]:
    """Yield names with a number after nothing but blanks that mean a metric even so.

    Names that say nothing by themselves have to stand apart, behind the `first` number that means something.
    """
    pairs = list(worded(line))
    for before, pair, after in zip([None, *pairs], pairs, [*pairs[1:], None], strict=False):
        bare = _bare(line, pair)
        if bare is not None:
            yield bare
        elif pair.begin > first and not _SENTENCE.search(pair.name):
            left = line[0 if before is None else before.stop : pair.begin]
            right = line[pair.stop : len(line) if after is None else after.begin]
            if (_SIGN.search(left) or (before and not left.strip())) and (
                _SIGN.match(right) or (after and not right.strip())
            ):
                yield pair


def _bare(line: bytes, pair: Pair) -> Pair | None:
    """Return a pair without the words before its measure: of `then val loss` the loss. None: it has none."""
    words = pair.name.split(" ")
    after_number = line[: pair.begin].rstrip()[-1:].isdigit()
    # the first may be the unit of the number before it: `98.2 ms/step 10.4K tok/s`
    said = after_number and "/" in words[0]
    for first in range(said or words[0].lower() == "the", len(words)):
        name = " ".join(words[first:])
        if is_measure(name):
            return replace(pair, name=name, begin=pair.begin + len(pair.name) - len(name))
    return None


def is_measure(name: str) -> bool:
    """Return whether a name before a number means a metric even without a sign between them."""
    said = meaning(name)
    if said.known:
        return said.metric not in COUNTERS
    return bool(_MEASURE.search(name.lower())) and not _SENTENCE.search(name)


def _judge(
    claims: Claims, line: bytes, *, pairs: Sequence[Pair], as_json: bool, many: bool
) -> ParsedLine | None:
    """Return the line if there is evidence that it is about training.

    `many`: its only counter is in the plural (`steps: 100`), which settings have too.
    """
    found = claims.metrics
    counted = found & COUNTERS
    measured = {name for name in found - COUNTERS if _MEASURE.search(name)}
    agreed = {name for name in found - COUNTERS if name in _agreed()} | measured
    listed = len(found) == 1 and _BULLET.match(line) is not None
    name = LISTED if listed else "any/json" if as_json else "any/pairs"
    alone = as_json or _only_pairs(line, pairs)
    if (
        (counted and agreed and (agreed & RESULTS or not many))
        or (len(agreed) > 1 and agreed & RESULTS)
        or (len(measured) > 1 and alone)
        or (agreed & RESULTS and len(found) == 1 and not _TABLE.search(line))
    ):
        return claims.parsed(name)
    if listed and _OUTCOME.search(next(iter(found))):
        return claims.parsed(name)
    if (
        (found == {"learning_rate"} and _TIMED.search(line))
        or (counted and alone and (found > counted or _LONE.search(line)))
        or (agreed - _COMMON and alone and (measured or len(found) == 1))
        or listed
        or (counted and _LONE_PLACE.search(line))
    ):
        return claims.parsed(name, certain=False)
    return None


@cache
def _agreed() -> frozenset[str]:
    """Return the metrics that have a name of their own."""
    return frozenset(metric for metric, _ in spelled().values())


def _only_pairs(line: bytes, pairs: Sequence[Pair]) -> bool:
    """Return whether a line has no words between its pairs, so that it is no sentence, and no bar."""
    if b"%|" in line:
        return False
    spans = [(pair.begin, pair.stop) for pair in pairs]
    found = (*RATE.finditer(line), *_COUNTER.finditer(line), *_BATCH.finditer(line))
    spans += [each.span() for each in found]
    at = 0
    for start, stop in sorted(spans):
        if at and _WORD.search(line[at:start]):
            return False
        at = max(at, stop)
    return not _WORD.search(line[at:])
