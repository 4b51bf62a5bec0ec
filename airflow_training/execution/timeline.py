"""Where the time of training steps went, by what each rank recorded: computing, communicating, bubble. Pure.

A rank's step is a row of *passes* (forward or backward of one micro-batch over one stage) and gaps. A gap before a pass is bubble
until the pass it depends on, on whichever rank, has ended: nothing could be transferred before. What is left of it is
communication that nothing hides, with what the schedule itself takes. Within a pass, collectives that no operator runs beside are
communication. After a rank's last pass the pipeline is in its bubble until the last pass of all ranks has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "RankRecord",
    "StagePass",
    "StepFractions",
    "Timeline",
    "TracedEvent",
    "chrome_trace",
    "mean_fractions",
    "planned_fractions",
    "step_fractions",
]

PassKind = Literal["forward", "backward", "weights"]
Span = tuple[float, float]
"""Begin and end in seconds since the epoch."""
_COMPUTING = ("compute", "recompute", "launch", "accumulation", "optimizer")
_COMMUNICATING = ("tp", "cp", "ep", "pp", "dp", "tied")


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePass:
    """A micro-batch over a stage, in one direction; `weights`: the gradients of parameters alone."""

    stage: int
    micro_batch: int
    kind: PassKind
    begin: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedEvent:
    """An operator or a collective, as torch's profiler saw it."""

    name: str
    thread: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """What one rank recorded. Times are of the clock of its machine."""

    rank: int
    pipeline: int
    """Ranks of equal number hold the stages of one replica."""
    stages: int
    """Of the whole pipeline; 1: there is none."""
    steps: Sequence[Span] = ()
    passes: Sequence[StagePass] = ()
    operators: Sequence[TracedEvent] = ()
    """That have no other inside them."""
    collectives: Sequence[TracedEvent] = ()
    transfers: Sequence[TracedEvent] = ()
    """Sends and receives, from when they were posted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFractions:
    """Shares of a step; together 1."""

    computing: float
    communicating: float
    """Visibly: nothing was computed meanwhile."""
    bubble: float
    other: float


@dataclass(slots=True, kw_only=True)
class Timeline:
    """What was recorded of some steps; whole once its `with` has ended."""

    path: str
    fractions: StepFractions | None = None
    """Mean over steps and ranks."""
    ranks: Sequence[StepFractions] = ()
    """Of each rank, mean over its steps."""
    planned: StepFractions | None = None
    """What the plan's file expects; None: it does not say."""
    records: Sequence[RankRecord] = field(default=(), repr=False)

    def __str__(self) -> str:
        if self.fractions is None:
            return "nothing was recorded"
        lines = [f"{'':15}{'measured':>9}{'planned':>9}"]
        for name in StepFractions.__slots__:
            planned = "" if self.planned is None else f"{getattr(self.planned, name):.1%}"
            lines.append(f"{name:15}{getattr(self.fractions, name):>9.1%}{planned:>9}")
        return "\n".join(line.rstrip() for line in lines)


def step_fractions(records: Sequence[RankRecord]) -> list[StepFractions]:
    """Divide the steps of each rank, in the order of the records.

    Raises:
        ValueError: ranks recorded different numbers of steps, or none.

    """
    counts = {len(record.steps) for record in records}
    if len(counts) != 1 or counts == {0}:
        raise ValueError(f"ranks recorded different numbers of steps, or none: {sorted(counts)}")
    found = []
    for record in records:
        peers = [each for each in records if each.pipeline == record.pipeline]
        parts = [_divided(record, peers, number) for number in range(len(record.steps))]
        whole = sum(sum(part) for part in parts)
        computing, communicating, bubble, other = (
            sum(part[place] for part in parts) / whole for place in range(4)
        )
        found.append(
            StepFractions(
                computing=computing, communicating=communicating, bubble=bubble, other=other
            )
        )
    return found


def mean_fractions(ranks: Sequence[StepFractions]) -> StepFractions:
    """Average over ranks, each of which had the same steps."""
    return StepFractions(
        **{
            name: sum(getattr(each, name) for each in ranks) / len(ranks)
            for name in StepFractions.__slots__
        }
    )


def planned_fractions(plan: Mapping[str, Any]) -> StepFractions | None:
    """Shares of a step as a plan's document expects them; None where it has no breakdown."""
    lines = (plan.get("breakdown") or {}).get("time_s") or ()
    seconds = {line["name"]: float(line["value"]) for line in lines}
    whole = sum(seconds.values())
    if whole <= 0:
        return None
    computing = sum(seconds.get(name, 0.0) for name in _COMPUTING) / whole
    communicating = sum(seconds.get(name, 0.0) for name in _COMMUNICATING) / whole
    bubble = seconds.get("bubble", 0.0) / whole
    return StepFractions(
        computing=computing,
        communicating=communicating,
        bubble=bubble,
        other=max(0.0, 1.0 - computing - communicating - bubble),
    )


def _divided(
    record: RankRecord, peers: Sequence[RankRecord], number: int
) -> tuple[float, float, float, float]:
    """Seconds of one step: computing, communicating, bubble, other."""
    begin, end = record.steps[number]
    own = _passes_of(record, number)
    everywhere = [each for peer in peers for each in _passes_of(peer, number)]
    ends: dict[tuple[int, int, str], float] = {
        (each.stage, each.micro_batch, each.kind): each.end for each in everywhere
    }
    operators = _union((each.begin, each.end) for each in record.operators)
    collectives = _union((each.begin, each.end) for each in record.collectives)
    exposed = _without(collectives, operators)
    piped = record.stages > 1
    bubble = communicating = 0.0
    computing = 0.0
    if not own:
        own_begin = own_end = begin
    else:
        own_begin, own_end = own[0].begin, own[-1].end
    first = min((each.begin for each in everywhere), default=own_begin)
    last = max((each.end for each in everywhere), default=own_end)
    head = min(max(first, begin), own_begin)
    computing += _length(_within(operators, begin, head))
    at = head
    for each in own:
        if piped and each.begin > at:
            ready = min(max(at, _ready(each, ends, record.stages)), each.begin)
            bubble += ready - at
            communicating += each.begin - ready
        hidden = _length(_within(exposed, each.begin, each.end))
        communicating += hidden
        computing += each.end - each.begin - hidden
        at = max(at, each.end)
    if piped and last > at:
        drained = min(last, end)
        busy = _length(_within(operators, at, drained))
        computing += busy
        bubble += max(0.0, drained - at - busy)
        at = max(at, drained)
    communicating += _length(_within(exposed, at, end))
    computing += _length(_within(operators, at, end))
    return (
        computing,
        communicating,
        bubble,
        max(0.0, end - begin - computing - communicating - bubble),
    )


def _ready(each: StagePass, ends: Mapping[tuple[int, int, str], float], stages: int) -> float:
    """When the last pass had ended that this one needs the result of."""
    if each.kind == "forward":
        needed = (each.stage - 1, each.micro_batch, "forward")
    elif each.kind == "weights":
        needed = (each.stage, each.micro_batch, "backward")
    elif each.stage == stages - 1:
        needed = (each.stage, each.micro_batch, "forward")
    else:
        needed = (each.stage + 1, each.micro_batch, "backward")
    return ends.get(needed, 0.0)


def _passes_of(record: RankRecord, number: int) -> list[StagePass]:
    begin, end = record.steps[number]
    found = [each for each in record.passes if begin <= each.begin and each.end <= end]
    return sorted(found, key=lambda each: each.begin)


def _union(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _without(spans: Sequence[Span], taken: Sequence[Span]) -> list[Span]:
    """What of disjoint spans lies in none of the others, which are disjoint and in order."""
    left: list[Span] = []
    for begin, end in spans:
        at = begin
        for other_begin, other_end in taken:
            if other_end <= at:
                continue
            if other_begin >= end:
                break
            if other_begin > at:
                left.append((at, other_begin))
            at = max(at, other_end)
        if at < end:
            left.append((at, end))
    return left


def _within(spans: Iterable[Span], begin: float, end: float) -> list[Span]:
    clipped = [(max(one, begin), min(other, end)) for one, other in spans]
    return [span for span in clipped if span[0] < span[1]]


def _length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)


def chrome_trace(records: Sequence[RankRecord]) -> dict[str, Any]:
    """Make one Chrome trace of all ranks: a process each, with its passes above the threads of torch."""
    events: list[dict[str, Any]] = []
    zero = min((span[0] for record in records for span in record.steps), default=0.0)

    def add(rank: int, thread: int, name: str, begin: float, end: float, category: str) -> None:
        times = {"ts": round((begin - zero) * 1e6, 3), "dur": round((end - begin) * 1e6, 3)}
        what = {"name": name, "cat": category, "ph": "X", "pid": rank, "tid": thread}
        events.append({**what, **times})

    for record in records:
        held = sorted({each.stage for each in record.passes})
        label = f"rank {record.rank}" + (f", stages {held}" if record.stages > 1 else "")
        named = {"name": "process_name", "ph": "M", "pid": record.rank, "args": {"name": label}}
        events.append(named)
        for begin, end in record.steps:
            add(record.rank, 0, "step", begin, end, "step")
        for each in record.passes:
            name = f"{each.kind} {each.micro_batch}" + (
                f" of stage {each.stage}" if record.stages > 1 else ""
            )
            add(record.rank, 0, name, each.begin, each.end, "pass")
        for category in ("operators", "collectives", "transfers"):
            for event in getattr(record, category):
                add(
                    record.rank,
                    event.thread,
                    event.name,
                    event.begin,
                    event.end,
                    category.rstrip("s"),
                )
    return {"displayTimeUnit": "ms", "traceEvents": events}
