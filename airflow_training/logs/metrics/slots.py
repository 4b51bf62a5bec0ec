"""What is known of the numbers of one line, and how several readings of it become one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from airflow_training.logs.metrics.names import meaning, normal
from airflow_training.logs.metrics.numbers import RANK, UNITS, Kind
from airflow_training.logs.metrics.pairs import Pair

__all__ = ["Claims", "ParsedLine", "Slot", "conversion", "magnitude", "rate_of", "scope_of"]

_VARYING = re.compile(
    rb"(?:(?<![\w@'.])(?<![0-9.][eE][-+])|(?<=[0-9]T))[0-9](?:[0-9.,:?+-]*[0-9?])?"
)
_RANK = re.compile(RANK.encode())
_IGNORED = frozenset(
    {
        "eta",
        "pid",
        "port",
        "tid",
        "rank",
        "local rank",
        "global rank",
        "world size",
        "v",
        "line",
        "lineno",
        "gpu",
        "device",
        "node",
        "gib",
        "gb",
        "mib",
        "mb",
        "dp",
        "pp",
        "tp",
        "cp",
    }
)
"""Numbers beside metrics that are about the process, or a guess about the end."""
_MACHINE = re.compile(r"(?:node|host|worker|gpu|pod)[ _-]?\d+")
"""`node01:0` before a message."""
_OF_DEVICE = re.compile(
    r"(?:gpu|cuda|vram|hbm|device)(?:[ :]?\d+)?(?: (?:mem|memory|used|usage|alloc|allocated))*"
)
_RANKS = frozenset({"rank", "global rank"})
_LISTS = frozenset({"learning_rate"})
"""Metrics that are printed per parameter group: the first counts."""
_MAGNITUDES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
"""A letter after a number that is no size of memory."""
_FEWEST_BYTES = 1e6
_RATE_NAME = re.compile(
    r"(?!k)[a-z]+/s(?:ec(?:ond)?)?(?:/(?:gpu|device|chip|core))?", re.IGNORECASE
)
"""A name that is nothing but a unit: `tks/s`."""
_PER_DEVICE = re.compile(r"/(?:gpu|device|chip|core)$", re.IGNORECASE)

_TOKENS_PER_DEVICE = ("tps", "tgs")
"""Units without a sign that says so."""

Form = Literal["any", "plain", "fixed"]
"""How the number of a slot may be written in lines that mean the same.

| form | text |
|---|---|
| any | any number |
| plain | one without sign and exponent: with them the line would not have been taken for what it is |
| fixed | as many digits, with the same signs between them: they are part of a text that was recognised |
"""


@dataclass(frozen=True, slots=True)
class Slot:
    """A part of a line that differs between lines of one layout: bytes `start` to `end`."""

    start: int
    end: int
    metric: str
    """Empty for what only varies: `bar`, `skip`, `rank`."""
    kind: Kind = "number"
    scale: float = 1.0
    scope: str = ""
    """Of `tokens_per_second`: `device` or `job`."""
    form: Form = "any"
    padded: bool = True
    """Whether any number of spaces may stand before it."""


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """What a line says. Lines whose bytes outside the slots are equal have equal meaning."""

    slots: tuple[Slot, ...]
    """In order, not overlapping."""
    format: str
    """`framework/name`, or `any/...` of a program that none of our formats knows."""
    certain: bool = True
    """False: counts only if lines of this layout repeat and their steps grow."""


class Claims:
    """The slots of one line while several readings of it add theirs; who comes first keeps what it has."""

    def __init__(self, line: bytes) -> None:
        self._line = line
        self._slots: list[Slot] = []
        self._spellings: dict[str, tuple[int, str]] = {}
        """Metric -> (index of its slot, spelling)."""
        self._recognised: list[tuple[int, int]] = []
        # a byte for each of the line, so that one of thousands of numbers takes no longer for each
        self._named = bytearray(len(line))
        self._taken = bytearray(len(line))

    @property
    def metrics(self) -> frozenset[str]:
        """Return the metrics that were found."""
        return frozenset(self._spellings)

    @property
    def first(self) -> int:
        """Return where the first metric stands; of none the end of the line."""
        starts = (slot.start for slot in self._slots if slot.metric)
        return min(starts, default=len(self._line))

    def recognise(self, start: int, end: int) -> None:
        """Take a part of the line as the text that tells what the line is: numbers in it that no slot has are fixed."""
        self._recognised.append((start, end))

    def is_free(self, start: int, end: int) -> bool:
        """Return whether no slot has a place, and it is no part of a name."""
        return not any(self._named[start:end]) and not any(self._taken[start:end])

    def add(
        self,
        start: int,
        end: int,
        metric: str,
        kind: Kind,
        scale: float = 1.0,
        scope: str = "",
        *,
        form: Form = "any",
        padded: bool = True,
    ) -> bool:
        """Add a slot unless its place or its metric is taken; return whether it was."""
        return self.add_slot(Slot(start, end, metric, kind, scale, scope, form, padded))

    def add_slot(self, slot: Slot) -> bool:
        """Add a slot as `add` does."""
        if not self.is_free(slot.start, slot.end):
            return False
        if slot.metric in self._spellings:
            slot = replace(slot, metric="", kind="skip", scale=1.0, scope="")
        if slot.metric:
            self._spellings[slot.metric] = (len(self._slots), slot.metric)
        self._slots.append(slot)
        _mark(self._taken, slot.start, slot.end)
        return True

    def add_pairs(
        self,
        pairs: Iterable[Pair],
        *,
        names: Mapping[str, str] | None = None,
        units: Mapping[str, str] | None = None,
        sets: bool = False,
    ) -> None:
        """Add names with numbers; `names`, `units` and `sets` as in a Format."""
        for pair in pairs:
            _mark(self._named, pair.begin, pair.start)
            if sets:
                self.add(pair.start, pair.end, _of_set(pair.name), "number")
            else:
                self._add_pair(pair, names or {}, units or {})
            for start, end in pair.varying:
                self.add(start, end, "", "skip")

    def _add_pair(self, pair: Pair, names: Mapping[str, str], units: Mapping[str, str]) -> None:
        """Add one name with its number."""
        key = normal(pair.name)
        if pair.used and _OF_DEVICE.fullmatch(key) and "memory_bytes" not in self._spellings:
            pair = replace(pair, name="memory")  # a device has nothing else of that size
            key = pair.name
        if key in _IGNORED or key.endswith((" pid", " port", " rank")) or _MACHINE.fullmatch(key):
            is_rank = key in _RANKS and _RANK.fullmatch(self._line, pair.start, pair.end)
            kind: Kind = "rank" if is_rank else "skip"
            self.add(pair.start, pair.end, "", kind, form="fixed" if key in _RANKS else "any")
            return
        said = meaning(pair.name, names)
        if pair.place and not said.known:
            self.add(pair.start, pair.end, "", "skip")
            return
        metric, scope, known = said.metric, said.scope, said.known
        if pair.listed and metric not in _LISTS:
            metric = ""
        if not known and _RATE_NAME.fullmatch(pair.name) and (named := rate_of(pair.name.lower())):
            metric, known, scope = named, True, scope_of(pair.name, named)
        rate = rate_of(pair.unit)
        if rate and (not known or metric == "samples_per_second"):
            metric, known = rate, True
            scope = scope_of(pair.unit, rate)
        per_second = next(
            (
                each
                for each in (pair.name.lower(), pair.unit)
                if UNITS.get(each, ("",))[0] == "inverse"
            ),
            "",
        )
        if not known and per_second:  # `steps/sec: 4.1`, `speed: 4.1 steps/s`
            metric, known, scope = "step_time_seconds", True, ""
        if metric in self._spellings:
            other, spelling = self._spellings[metric]
            if key == normal(metric) and normal(spelling) != key:
                # the plain spelling is the metric; the other keeps the name that its program gave it
                self._rename(metric, other, spelling)
            else:
                metric, scope, known = pair.name.lower(), "", False
        unit = per_second or said.unit or pair.unit or units.get(metric, "")
        if metric == "memory_bytes" and not unit and self._is_small(pair):
            unit = "MiB"  # no process has so few bytes
        if metric == "tokens_per_second":
            scope = scope or "job"
        if known:
            kind, scale = conversion(metric, unit)
            if said.unit and kind == "divided":  # `time_ms: 11.5K`
                scale /= _magnitude_alone(pair.unit)
        else:
            kind, scale = "number", 1.0 if "mem" in metric else _magnitude_alone(unit)
        if not metric or metric in self._spellings:
            self.add(pair.start, pair.end, "", "skip")
        elif self.add(pair.start, pair.end, metric, kind, scale, scope):
            self._spellings[metric] = (len(self._slots) - 1, pair.name)

    def _is_small(self, pair: Pair) -> bool:
        text = self._line[pair.start : pair.end].replace(b",", b"")
        return text.replace(b".", b"", 1).isdigit() and 0 < float(text) < _FEWEST_BYTES

    def _rename(self, metric: str, index: int, spelling: str) -> None:
        """Give the slot of a metric the name that its program uses."""
        slot = self._slots[index]
        name = spelling.lower()
        del self._spellings[metric]
        if name in self._spellings:
            self._slots[index] = replace(slot, metric="", kind="skip", scale=1.0, scope="")
            return
        self._slots[index] = replace(slot, metric=name, kind="number", scale=1.0, scope="")
        self._spellings[name] = (index, spelling)

    def parsed(self, format_: str, *, certain: bool = True) -> ParsedLine | None:
        """Return the line with all that varies in it, or None where nothing is a metric."""
        if not self._spellings:
            return None
        slots = sorted(self._slots, key=lambda slot: slot.start)
        slots = sorted([*slots, *self._varying(slots)], key=lambda slot: slot.start)
        first = next(index for index, slot in enumerate(slots) if slot.metric)
        # what stands before all values is a time or a rank in other lines, if its numbers are of another size
        head = [replace(slot, form="fixed") for slot in slots[:first]]
        return ParsedLine((*head, *slots[first:]), format_, certain)

    def _varying(self, slots: Sequence[Slot]) -> Iterator[Slot]:
        """Yield a slot for each number between the slots that is no part of a name."""
        line = self._line
        at = 0
        borders = [(slot.start, slot.end) for slot in slots] + [(len(line), len(line))]
        for start, end in borders:
            for found in _VARYING.finditer(line, at, start):
                # directly before a slot it could not be told where the one ends and the other begins
                if found.end() == start < len(line) or any(self._named[slice(*found.span())]):
                    continue
                form: Form = "fixed" if _meets(self._recognised, found) else "plain"
                yield Slot(*found.span(), "", "skip", form=form)
            at = max(at, end)


def _mark(places: bytearray, start: int, end: int) -> None:
    places[start:end] = b"\1" * (end - start)


def _meets(spans: Iterable[tuple[int, int]], found: re.Match[bytes]) -> bool:
    return any(found.start() < end and start < found.end() for start, end in spans)


def magnitude(unit: str) -> tuple[float, str]:
    """Factor of a letter before a unit, and the unit: of `K tok/s` 1,000 and `tok/s`."""
    bare = unit[1:].lstrip()
    if bare and unit[0] in _MAGNITUDES and rate_of(bare):
        return _MAGNITUDES[unit[0]], bare
    return 1.0, unit


def _magnitude_alone(unit: str) -> float:
    """Return what a number is multiplied by that nothing but a letter follows; sizes of memory have two."""
    return _MAGNITUDES.get(unit, 1.0)


def rate_of(unit: str) -> str:
    """Return which metric a unit alone tells."""
    if unit[:1] in _MAGNITUDES and ("/" in unit or " per " in unit):
        unit = unit[1:].lstrip()
    if unit in _TOKENS_PER_DEVICE:
        return "tokens_per_second"
    what = re.split(" ?/| per ", unit)[0].rstrip("s")
    if what in ("sample", "image", "img", "example", "ex", "seq", "sequence", "record"):
        return "samples_per_second"
    return "tokens_per_second" if what in ("tok", "token", "tk") else ""


def scope_of(unit: str, metric: str) -> str:
    """Return whether tokens per second are those of one device or of the whole job; empty for other metrics."""
    if metric != "tokens_per_second":
        return ""
    of_device = unit in _TOKENS_PER_DEVICE or _PER_DEVICE.search(unit)
    return "device" if of_device else "job"


def _of_set(name: str) -> str:
    """Return `valid_0-l2` for `valid_0's l2`."""
    return name.replace("'s ", "-").replace(" ", "-").lower()


def conversion(metric: str, unit: str) -> tuple[Kind, float]:
    """Return how a number in a unit becomes the unit that a metric is kept in."""
    times, _ = magnitude(unit)
    if metric != "memory_bytes" and (times != 1.0 or unit in _MAGNITUDES):
        return "number", _MAGNITUDES.get(unit, times)
    is_size = unit[:1] in "BKMGT" and unit in UNITS
    if unit not in UNITS or (unit != "%" and is_size != (metric == "memory_bytes")):
        return "number", 1.0
    return UNITS[unit]
