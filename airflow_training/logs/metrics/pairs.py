"""Names with numbers in a piece of a line: `loss: 0.3`, `lr=[1e-5, 1e-5]`, `'loss': '0.3'`, `Loss 0.3 (0.4)`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from airflow_training.logs.metrics.numbers import number_pattern

__all__ = ["Pair", "at_step", "dashed", "placed", "signed", "worded"]

_NUMBER = number_pattern(rb"{NUMBER}")
_VALUE = number_pattern(
    rb"\s{0,40}(?:=>|[:=])\s{0,40}(?P<open>(?:tensor\(|array\(|[\"'(\[])*)(?P<number>{NUMBER})"
)
_NAME = re.compile(
    rb"(?:^-?|[,;|:=\[\]{}()<>\"'*\t]|[0-9]\s|\s\s|\s[-\xb7]\s|[.\x80-\xff]\s)\s*"
    rb"(?P<name>[A-Za-z_][\w./@#%+-]*(?:'s)?(?: ?\((?![\s0-9./,%]*\)\s*[A-Za-z])[^()]*\)|\[m?s\]| [A-Za-z_#][\w./@#%+-]*)*)[\"']?\s*$"
)
_LAST_WORD = re.compile(rb"(?:^|\s)(?P<name>[A-Za-z_][\w./@#%+-]*)[\"']?\s*$")
_WORD = number_pattern(
    rb"(?:^|[,;|:\[\](){}\t]|\s)"
    rb"(?P<name>(?!(?i:took)\b)[A-Za-z_][\w/@.-]{0,30}(?:[ ][A-Za-z_][\w/@.-]{0,30}){0,3}?(?: ?\(m?s\))?)"
    rb"[ \t]+(?:is[ \t]+)?\(?(?P<number>{NUMBER})"
)
_PLACED = number_pattern(
    rb"(?i)(?:^|[^\w\s/.-]\s*|\s)(?P<name>[A-Za-z_]\w*(?: [A-Za-z_]\w*){0,3})(?: \([A-Za-z ]*\))?"
    rb"(?:\s(?:at|after|for|on|in|@)\s(?:the\s)?|\s[(\[])"
    rb"(?:(?:global[ _]|training )?(?:step|iteration|iter|epoch)\s*[:=#\[]?\s*{PLAIN}|{PLAIN} (?:steps|iterations|iters|epochs))"
    rb"(?:\s*/\s*{PLAIN})?[)\]]?"
    rb"(?:\s*(?::|=|\bis\b|\bwas\b)\s*|\s(?P<dash>-)\s(?=(?:{NUMBER})\s*(?:$|[,;|])))(?P<number>{NUMBER})"
)
"""`Loss at step 100: 0.5`, `Loss at step 100 - 0.5`."""
_AT = number_pattern(
    rb"(?i)(?<![\w/.-])(?P<name>(?:\w{1,20}[ _/])?(?:loss|ppl|perplexity))@(?P<step>{PLAIN})\s?[:=]\s?(?P<number>{NUMBER})"
)
"""`loss@300: 0.5`: of other names (`recall@10`) it may be how many answers count."""
_DASHED = number_pattern(
    rb"(?:^|[,;|]\s*|\s)(?P<name>[A-Za-z_][\w/]{0,30}(?: [A-Za-z_][\w/]{0,30}){0,2}) - (?P<number>{NUMBER})(?=\s*$|[,;|]|\s[A-Za-z_]+ - )"
)
_UNIT = re.compile(
    rb"(?:\s{12,80}|\s?)(?P<unit>%|/ ?s(?:ec|econd)?\b|[kmu]?s/(?:it|iter|step|sample)\b|(?:[kKM]\s?)?(?:it|iter|steps?|samples?|images?|imgs?|examples?|ex(?=/s)|tok|toks|tks|tokens?|seqs?|sequences?|records?)(?: ?/ ?s(?:ec|econd)?(?:/(?:gpu|device|GPU|chip))?| per sec(?:ond)?(?!\s*[:=0-9]))\b"
    rb"|[KMGT]i?[Bb]\b|[kKMGT]\b|TFLOPS?\b|TFLOP/s\b|ms(?:ec)?\b|milliseconds\b|us\b|secs?\b|seconds\b|s\b|m(?:in)?\b)"
)
_MEAN = number_pattern(rb"\s*\(\s*(?P<number>{NUMBER})%?\s*\)")
_OF = number_pattern(rb"\s*/\s*(?P<number>{PLAIN})")
"""The total in `"90/159"`."""
_USED = number_pattern(
    rb"\s?(?P<own>[KMGT]i?[Bb])?(?:\s?/\s?|\sof\s)(?P<total>{NUMBER})\s?(?P<unit>[KMGT]i?[Bb])\b(?:\s?\(\s?(?P<share>{NUMBER})\s?%\))?"
)
"""What is there of a size, behind what is used of it: `5.1/23.7 GiB (21.5%)`."""
_UNCLEAN = re.compile(rb"[\w/]|[.:-][0-9]|\.\w|:\w")
_NOT_A_UNIT = number_pattern(rb"{UNCLEAN}|\s*[:=]|{NAMED}", UNCLEAN=_UNCLEAN.pattern)
"""What follows a word that is no unit: it goes on, or it is the name of the next pair."""
_FILE = re.compile(rb"\.(?:py|pyx|cc|cpp|cu|c|h|go|rs|java|scala|js)$")
_LONGEST_NAME = 60
_LOOK_BACK = 120
"""No name is looked for further than so many bytes before its number."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A name and its number."""

    name: str
    begin: int
    """Of the name."""
    start: int
    end: int
    """Of the number."""
    unit: str
    stop: int
    """End of all that belongs to it: unit, mean, the rest of a list."""
    varying: tuple[tuple[int, int], ...] = ()
    """Numbers that belong to it but are not its value: a mean in brackets, the rest of a list."""
    listed: bool = False
    quoted: bool = False
    """The name stands in quotes."""
    dashed: bool = False
    """Only a dash stands before the number."""
    used: bool = False
    """It is a part of a size that follows: `71.2/80.0 GB`."""
    place: bool = False
    """It looks like a place in a program: `package.module:12`, `(module:12)`, `[Class:12]`."""


def signed(line: bytes, start: int = 0, end: int | None = None) -> Iterator[Pair]:
    """Yield the pairs with `:` or `=` between name and number."""
    stop = len(line) if end is None else end
    known = start
    at = start
    while True:
        value = _VALUE.search(line, at, stop)
        if value is None:
            return
        first = max(known, value.start() - _LOOK_BACK)
        known = at = value.end()
        segment = line[first : value.start()]
        name = _NAME.search(segment) or _LAST_WORD.search(segment)
        if name is None or len(name["name"]) > _LONGEST_NAME or _FILE.search(name["name"]):
            continue
        quoted = segment[name.end("name") :].rstrip() in (b'"', b"'")
        own = name["name"].rpartition(b".. ")[2]  # of `Evaluating... loss` the last
        begin = first + name.end("name") - len(own)
        pair = _pair(line, stop, own, begin, value, quoted=quoted)
        if pair is not None:
            known = at = pair.stop
            before = segment[: name.start("name")][-1:]
            tight = line[value.start() : value.start("number")] == b":" and not value["open"]
            enclosed = before in (b"(", b"[") and line[pair.end : pair.end + 1] in (b")", b"]")
            whole = line[pair.start : pair.end].isdigit()  # a line of a file has no fraction
            yield replace(pair, place=tight and whole and (enclosed or "." in pair.name))


def worded(line: bytes, start: int = 0, end: int | None = None) -> Iterator[Pair]:
    """Yield the pairs with nothing but blanks between name and number."""
    stop = len(line) if end is None else end
    at = start
    while True:
        value = _WORD.search(line, at, stop)
        if value is None:
            return
        pair = _pair(line, stop, value["name"], value.start("name"), value, quoted=False)
        at = value.end() if pair is None else pair.stop
        if pair is not None:
            yield pair


def placed(line: bytes) -> Iterator[Pair]:
    """Yield the pairs between whose name and number stands where that was: what is there belongs to no name."""
    at = at_step(line)
    for value in (*_PLACED.finditer(line), *(() if at is None else (at,))):
        pair = _pair(line, len(line), value["name"], value.start("number"), value, quoted=False)
        if pair is not None:
            yield replace(pair, dashed=bool(value.groupdict().get("dash")))


def dashed(line: bytes) -> Iterator[Pair]:
    """Yield the pairs with a dash between name and number: `loss - 0.5`."""
    for value in _DASHED.finditer(line):
        pair = _pair(line, len(line), value["name"], value.start("name"), value, quoted=False)
        if pair is not None:
            yield replace(pair, dashed=True)


def at_step(line: bytes) -> re.Match[bytes] | None:
    """Return the loss behind whose name the step stands; of several it would be no step."""
    found = list(_AT.finditer(line))
    return found[0] if len(found) == 1 else None


def _unit_of(found: re.Match[bytes]) -> str:
    """Return the unit that follows a number; of a size that is used of another its own, else that of both."""
    own: bytes = found.groupdict().get("own") or found["unit"]
    return own.decode()


def _pair(
    line: bytes, stop: int, name: bytes, begin: int, value: re.Match[bytes], *, quoted: bool
) -> Pair | None:
    """Return a pair with what follows its number, or None where that is no number of its own."""
    start, end = value.span("number")
    opened = value.groupdict().get("open") or b""
    varying: list[tuple[int, int]] = []
    at = end
    in_quotes = opened[-1:] in (b'"', b"'")
    total = _OF.match(line, at, stop) if in_quotes else None
    unit = _UNIT.match(line, at, stop)
    used = _USED.match(line, at, stop)
    if used is not None:
        varying = [used.span(group) for group in ("total", "share") if used[group]]
        at = used.end()
        unit = used
    elif total is not None:
        varying = [total.span("number")]
        at = total.end()
    elif unit is not None and not _NOT_A_UNIT.match(line, unit.end(), stop):
        at = unit.end()
    elif _UNCLEAN.match(line, end, stop):
        return None
    else:
        unit = None
    if in_quotes and line[at : at + 1] != opened[-1:]:
        return None
    listed = b"[" in opened
    if listed:
        closing = line.find(b"]" * opened.count(b"["), at, stop)
        closing = stop if closing < 0 else closing
        varying = [each.span() for each in _NUMBER.finditer(line[:closing]) if each.start() >= at]
        at = closing
        listed = bool(varying)
    elif b"(" in opened and opened != b"(":
        closing = line.find(b")", at, stop)
        at = stop if closing < 0 else closing
    else:
        mean = _MEAN.match(line, at, stop)
        if mean is not None:
            varying.append(mean.span("number"))
            at = mean.end()
    return Pair(
        name=name.decode("utf-8", "replace"),
        begin=begin,
        start=start,
        end=end,
        unit="" if unit is None else _unit_of(unit),
        stop=at,
        varying=tuple(varying),
        listed=listed,
        quoted=quoted,
        used=used is not None,
    )
