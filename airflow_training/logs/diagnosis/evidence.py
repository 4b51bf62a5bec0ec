"""From hits to events: which of them hold where they stand, and which of them the run lived through. Pure."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from airflow_training.logs.diagnosis.aborted import without_last_breaths
from airflow_training.logs.diagnosis.catalogue import (
    Catalogue,
    Cause,
    Context,
    Kind,
    Retry,
    Signature,
)
from airflow_training.logs.diagnosis.markers import MARKERS, NORMAL_END, RESTARTED, RESUMED, STARTED
from airflow_training.logs.diagnosis.ranks import rank_in
from airflow_training.logs.diagnosis.tracebacks import (
    Chain,
    RaisedException,
    chains,
    final_exception,
    innermost_frame,
    innermost_frames,
    is_source_line,
)
from airflow_training.logs.model import FileScan, Hit

__all__ = ["MILD", "Incident", "events_of", "is_order"]

_OF_TRAINING = frozenset(
    {
        "step",
        "epoch",
        "loss",
        "learning_rate",
        "grad_norm",
        "step_time_seconds",
        "samples_per_second",
    }
    | {"tokens_per_second", "consumed_samples"}
)
"""Metrics whose next value says that training went on."""
_STEPS_AFTER = 2
"""A bar prints its last step once more when it is closed."""
_POINTS_AFTER = 3
_MESSAGE_LINES = 5
"""Messages of exceptions go on for about so many lines."""
_SAYS_ENOUGH = 0.4
"""Confidence from which on a signature says more about an exception than its bare name."""
_LAST_LINES = 6
_SAYS_NOTHING = 3
"""Of `Cause.generic`: that something failed, not what."""
_BAR = re.compile(r"\d%\|[^|]{0,80}\| (\d{1,12})/\d+ \[")
_CLUSTER_LINES = 120
"""Tracebacks so near to each other belong to one end; those of many ranks are long."""
_GLOG = re.compile(
    r"(?:^|[\[\s])[EWIF]([01]?\d)([0-3]\d) ([0-2]\d):([0-5]\d):([0-5]\d\.\d{3,9})[\s\]]"
)
MILD = re.compile(
    r"(?<!NCCL )\bWARN(?:ING)?\b|\[Warning\]|\b\w*Warning: |\[I \d"
    r"|(?:^|[\[\s])I[01]\d[0-3]\d [0-2]\d:[0-5]\d:[0-5]\d|NCCL INFO (?:NET|TUNER|PROFILER)/Plugin"
    r"|(?<!pod, )(?<!\), )\b[Ss]kipping: |(?i:\bskipping\b(?!: )|\bignor(?:ed|ing)\b|\b(?:will retry|retrying)\b|\bfalling back\b"
    r"|\bcontinuing without\b|\b(?:training|starting|start) from scratch\b|\btrying (?:another|the (?:next|previous))\b)"
    # a warning of a library that leaves out its category, as Lightning prints them
    r"|-packages/\S+\.py:\d+: (?!\S*(?:Error|Exception)\b)"
)
"""The line itself says that the program goes on; a kubelet skips a pod (`Error syncing pod, skipping: `) for ever."""
_TELLS = re.compile(r"^.{0,120}?(?<!NCCL )\b(?:INFO|DEBUG)\b")
"""Of a line that a logger wrote to inform."""
_TROUBLE = re.compile(
    r"(?i)error|exception|fail|fatal|abort|exit|kill|terminat|stop(?:s|ped|ping)|corrupt|unable|can ?not\b|can't|could ?n[o']t|denied|refused|time[- ]?d? ?out"
    r"|lost|exceed|invalid|mismatch|not found|no such|missing|\bnan\b|\binf|\boom\b|out of|dead|died|signal|evict|preempt|requeue|interrupt|reset"
    r"|unreach|unhealthy|crash|assert|panic|\bxid\b"
)
"""Launchers log also at this level that something went wrong."""
_PASSED_OVER = re.compile(
    r"(?i:\b(?:skipping|ignoring) (?:this |the |current )*(?:batch|sample|step|update|iteration)\b)"
)
"""The line after it says so."""
_ANNOUNCED = re.compile(r"^\w+ +Traceback \(most recent call last\)$|RayTaskError\(\w+\): ray::")
"""How a notebook and Ray name the exception that the last line of its traceback tells."""
_ENDED_BADLY = re.compile(r"(?i)\b(?:reporting|with) (?:an? )?(?:exception|error|failure)s?\b")
"""In a line that says that training is complete."""
_BEFORE_THE_START = frozenset({"unschedulable", "image-pull-failure"})
"""Causes that are over once a container runs."""
GENERIC_EXCEPTION = "python-exception"
_EXCEPTION_CONFIDENCE = 0.75
"""That an exception of no known kind, at the end of a log, is what ended the run."""
_CUT_OFF_CONFIDENCE = 0.5
"""The same where the log does not tell which: what programs live through may be what was raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One thing that happened and that may explain the end."""

    cause: Cause
    signature: str
    """Full name; empty for what the runtime saw and for exceptions of no known kind."""
    kind: Kind
    confidence: float
    survivable: bool
    log: int | None
    """Which of the logs; None: the runtime saw it."""
    rank: int | None
    named: bool = False
    """Whether its own line names the rank; that of the log may be the number of a node."""
    line: int | None
    offset: int | None
    time: float | None
    """Corrected for the clock of its log."""
    text: str
    frames: tuple[str, ...] = ()
    """Of an exception that no cause knows: where in the user's files it was raised."""
    raised: bool = False
    """An exception that nobody caught, as far as the log tells."""
    survived: bool = False
    """Training went on, or the run ended well, after it."""
    last: bool = False
    """Nothing came after it in a log that tells of no training."""
    retry: Retry | None = None
    """What another try does, where its text tells more of that than its cause."""
    guess: bool = False
    """It tells how something ended, and its cause is no more than the most frequent reason for that."""
    mild: bool = False
    """Its line says that the program goes on: a warning, something skipped or tried again."""
    column: int = 0
    """Where in its line: of `a failed: b failed: c`, c is the reason."""
    at_end: bool = False
    """Programs print it as they end, too."""
    sure: float = 0.0
    """Of an exception that is known by no more than its name and the frame that raised it: how often that is right."""
    place: int = -1
    """Which of the frames above it say what it is about, as a place in their text; -1: its own text alone does."""


def events_of(
    scan: FileScan, *, log: int, catalogue: Catalogue, skew_seconds: float = 0.0
) -> list[Incident]:
    """Incidents in the log of one file, in its order."""
    life = _HealthyUntil(scan)
    by_rank: dict[int | None, list[Hit]] = defaultdict(list)
    for hit in scan.hits:
        by_rank[hit.rank].append(hit)
    found: list[Incident] = []
    for hits in by_rank.values():
        shown = chains(hits)
        bare = final_exception(hits, shown)
        if bare is not None:
            shown.append(bare)
        ignored = [each for each in shown if each.ignored]
        tracebacks = [each for each in shown if not (each.ignored or life.survived(each.last_line))]
        raised = {each.line for chain in tracebacks for each in chain.raised}
        # a logger tells what was raised above its traceback, where that was cut off
        raised |= {chain.first_line - 1 for chain in tracebacks if chain.root.cut_off}
        known = [
            each
            for each in _best_placed(_known(hits, catalogue, scan, log=log, raised=raised))
            if not any(chain.first_line <= (each.line or 0) <= chain.last_line for chain in ignored)
        ]
        found += (
            replace(_with_rank(each, tracebacks), raised=each.line in raised) for each in known
        )
        unknown = [each for each in _last_together(tracebacks) if not _is_known(each, known)]
        found += _unknown_exceptions(unknown, hits, catalogue, scan, log=log)
    return [
        replace(
            each,
            survived=each.line is not None
            and (
                life.lived_through(each.cause, each.line)
                or (not (each.raised or is_order(each.cause)) and life.moved_on_after(each.line))
                or (each.at_end and life.ended_well_before(each.line))
            ),
            last=each.line is not None and not each.mild and life.ended_at(each.cause, each.line),
            time=None if each.time is None else each.time - skew_seconds,
        )
        for each in sorted(found, key=lambda each: (each.line or 0, each.cause.generic))
    ]


def _known(
    hits: Sequence[Hit], catalogue: Catalogue, scan: FileScan, *, log: int, raised: Collection[int]
) -> Iterable[Incident]:
    """Yield the hits of signatures that hold where they stand; `raised`: lines of uncaught exceptions."""
    for hit in hits:
        if hit.signature in MARKERS or is_source_line(hit):
            continue
        if _ANNOUNCED.search(hit.text) and _is_repeated(hit, hits):
            continue
        signature = catalogue.signatures[hit.signature]
        cause = catalogue.causes[hit.signature.partition("/")[0]]
        if signature.raised_by is not None:
            continue  # of an exception that nothing else knows, below
        if signature.raised and hit.line not in raised:
            continue
        if not _holds(signature, hit):
            continue
        # what must stand near is what the program did next
        mild = signature.near is None and _goes_on(hit) and not is_order(cause)
        yield Incident(
            cause=cause,
            signature=hit.signature,
            kind=signature.kind,
            confidence=signature.confidence,
            survivable=signature.survivable or mild,
            retry=signature.retry,
            guess=signature.guess,
            mild=mild,
            at_end=signature.at_end,
            log=log,
            rank=_rank(hit, scan),
            named=_names_rank(hit),
            line=hit.line,
            offset=hit.offset,
            time=hit.time if hit.time is not None else _glog_time(hit.text),
            text=hit.text.strip(),
            column=_column(signature.expression.search(hit.text)),
            place=_place(signature, hit),
        )


def _holds(signature: Signature, hit: Hit) -> bool:
    """Return whether a signature holds where a hit stands: by its frames and the lines around."""
    if signature.raised_in is not None and _place(signature, hit) < 0:
        return False
    if signature.near is not None and not _stands_near(signature.near, hit):
        return False
    return signature.unless is None or not _stands_near(signature.unless, hit)


def _place(signature: Signature, hit: Hit) -> int:
    """Return where the frames above a hit say that a signature holds; -1 for nowhere, as for one that asks for none."""
    if signature.raised_in is None:
        return -1
    ends = [found.end() for found in signature.place.finditer(innermost_frames(hit))]
    return max(ends, default=-1)


def _best_placed(known: Iterable[Incident]) -> Iterable[Incident]:
    """Return what signatures say; of a line whose frames were recognised only the surest and nearest of these."""
    events = list(known)
    best: dict[int | None, Incident] = {}
    for each in events:
        other = best.get(each.line)
        if each.place >= 0 and (other is None or _nearness(each) > _nearness(other)):
            best[each.line] = each
    return [each for each in events if best.get(each.line, each) is each]


def _nearness(event: Incident) -> tuple[float, int]:
    return event.confidence, event.place


def _column(found: re.Match[str] | None) -> int:
    return found.start() if found is not None else 0


def _is_repeated(hit: Hit, hits: Iterable[Hit]) -> bool:
    """Return whether a later line says the same."""
    return any(each.signature == hit.signature and each.line > hit.line for each in hits)


def _unknown_exceptions(
    tracebacks: Sequence[Chain],
    hits: Sequence[Hit],
    catalogue: Catalogue,
    scan: FileScan,
    *,
    log: int,
) -> Iterable[Incident]:
    """Yield the root of each traceback: of the cause that the frame which raised it tells, else of none that is known."""
    for chain in tracebacks:
        root = chain.root
        if root.wraps:
            continue
        name, signature = _by_frame(root.line, hits, catalogue)
        cause = catalogue.causes.get(name.partition("/")[0] or GENERIC_EXCEPTION)
        if cause is None:
            continue
        confidence = _CUT_OFF_CONFIDENCE if root.cut_off else _EXCEPTION_CONFIDENCE
        if signature is not None and cause.id != GENERIC_EXCEPTION:
            confidence = signature.confidence
        yield Incident(
            cause=cause,
            signature=name,
            kind="cause",
            confidence=confidence,
            survivable=False,
            log=log,
            rank=_rank_of_exception(root, scan),
            named=root.named or rank_in(root.text) is not None,
            line=root.line,
            offset=root.offset,
            time=root.time,
            text=root.text,
            frames=root.frames if cause.id == GENERIC_EXCEPTION else (),
            raised=True,
            at_end=signature is not None and signature.at_end,
            sure=signature.confidence if signature is not None else 0.0,
        )


def _by_frame(line: int, hits: Iterable[Hit], catalogue: Catalogue) -> tuple[str, Signature | None]:
    """Return the surest signature of an exception by the frame that raised it, and its name; empty for none."""
    held = [
        (hit.signature, catalogue.signatures[hit.signature])
        for hit in hits
        if hit.line == line and hit.signature not in MARKERS and _is_by_frame(hit, catalogue)
    ]
    generic = f"{GENERIC_EXCEPTION}/"
    return max(
        held,
        key=lambda each: (not each[0].startswith(generic), each[1].confidence),
        default=("", None),
    )


def _is_by_frame(hit: Hit, catalogue: Catalogue) -> bool:
    signature = catalogue.signatures[hit.signature]
    frame = innermost_frame(hit)
    return (
        signature.raised_by is not None
        and signature.place.search(frame) is not None
        and _holds(signature, hit)
    )


def _is_known(chain: Chain, known: Iterable[Incident]) -> bool:
    """Return whether a signature says what a traceback, or the message at its end, is about.

    What a launcher prints right after it is neither.
    """
    for each in known:
        line = each.line or 0
        if chain.first_line <= line <= chain.last_line:
            says = each.kind != "hint"
        else:
            below = chain.last_line < line <= chain.last_line + _MESSAGE_LINES
            says = below and each.kind == "cause"
        sure = each.confidence >= _SAYS_ENOUGH and each.cause.generic < _SAYS_NOTHING
        if says and sure:
            return True
    return False


def _with_rank(event: Incident, tracebacks: Iterable[Chain]) -> Incident:
    """Return an event whose line names no rank with the one that is named above the traceback it stands in."""
    if event.named:
        return event
    within = (
        chain for chain in tracebacks if chain.first_line <= (event.line or 0) <= chain.last_line
    )
    told = next((each.rank for chain in within for each in chain.raised if each.named), None)
    return event if told is None else replace(event, rank=told, named=True)


def _last_together(tracebacks: Sequence[Chain]) -> Sequence[Chain]:
    """Return the last traceback and those before it without much between them."""
    start = len(tracebacks)
    while start > 0 and (
        start == len(tracebacks)
        or tracebacks[start].first_line - tracebacks[start - 1].last_line <= _CLUSTER_LINES
    ):
        start -= 1
    return tracebacks[start:]


def _goes_on(hit: Hit) -> bool:
    """Return whether a line, or the one after it, says that the program goes on."""
    if MILD.search(hit.text) is not None:
        return True
    if _TELLS.search(hit.text) is not None and _TROUBLE.search(hit.text) is None:
        return True
    return bool(hit.after) and _PASSED_OVER.search(hit.after[0]) is not None


def is_order(cause: Cause) -> bool:
    """Return whether somebody told the run to stop: some programs train on until they are killed."""
    return cause.category == "preemption" or cause.id == "user-interrupt"


def _stands_near(context: Context, hit: Hit) -> bool:
    lines = context.lines
    around = (*hit.before[-lines:], hit.text, *hit.after[:lines]) if lines else (hit.text,)
    return any(context.expression.search(line) for line in around)


def _rank(hit: Hit, scan: FileScan) -> int | None:
    """Return the rank of a line: its own, that in its text, that of the log."""
    if hit.named:
        return hit.rank
    told = rank_in(hit.text)
    if told is not None:
        return told
    return hit.rank if hit.rank is not None else scan.origin.rank


def _rank_of_exception(raised: RaisedException, scan: FileScan) -> int | None:
    if raised.named:
        return raised.rank
    told = rank_in(raised.text)
    if told is not None:
        return told
    return raised.rank if raised.rank is not None else scan.origin.rank


def _names_rank(hit: Hit) -> bool:
    return hit.named or rank_in(hit.text) is not None


def _glog_time(text: str) -> float | None:
    """Return the time of a line of glog (`E1002 18:16:40.662329`), which does not tell the year."""
    match = _GLOG.search(text)
    if match is None:
        return None
    month, day, hour, minute, second = (float(part) for part in match.groups())
    return ((month * 31 + day) * 24 + hour) * 3600 + minute * 60 + second


def _trained_until(points: Iterable[tuple[int, float]]) -> int:
    """Return the line before which everything was followed by more training; 0 for none.

    `points`: (line, step) of what was reported; where any step is known after a line, steps count.
    """
    steps: set[float] = set()
    lines: set[int] = set()
    for line, step in sorted(points, key=lambda point: -point[0]):
        lines.add(line)
        if not math.isnan(step):
            steps.add(step)
        if len(steps) >= _STEPS_AFTER or (not steps and len(lines) >= _POINTS_AFTER):
            return line
    return 0


class _HealthyUntil:
    """Until where in a log the run was alive and well."""

    def __init__(self, scan: FileScan) -> None:
        points = {
            (line, step)
            for series in scan.series
            if series.metric in _OF_TRAINING
            for line, step in zip(series.lines.tolist(), series.steps.tolist(), strict=True)
        }
        self._trained = bool(points)
        self._trained_until = _trained_until(without_last_breaths(points, scan.hits))
        # also of a bar inside another, which is no metric
        self._moved_until = _trained_until(
            (scan.tail_line + number, float(count))
            for number, line in enumerate(scan.tail)
            for count in _BAR.findall(line)[-1:]
        )
        ends = [
            hit.line
            for hit in scan.hits
            if hit.signature == NORMAL_END and not _ENDED_BADLY.search(hit.text)
        ]
        self._well_until = max(ends, default=0)
        self._resumed = [hit.line for hit in scan.hits if hit.signature in (RESUMED, STARTED)]
        self._restarted = [hit.line for hit in scan.hits if hit.signature == RESTARTED]
        self._started_until = max((h.line for h in scan.hits if h.signature == STARTED), default=0)
        self._last_line = scan.lines

    def lived_through(self, cause: Cause, line: int) -> bool:
        """Return whether the run went on after a line that tells of a cause."""
        if is_order(cause):
            again = any(line < resumed < self._trained_until for resumed in self._resumed)
            over = cause.id == "user-interrupt" and self.ended_well_before(line)
            return again or over or self.ended_well_after(line)
        if cause.id in _BEFORE_THE_START and line < self._started_until:
            return True
        return self.survived(line)

    def ended_well_before(self, line: int) -> bool:
        """Return whether the run had said before a line that it was complete, and did not start again."""
        return self._trained_until <= self._well_until < line and self._well_until > 0

    def ended_well_after(self, line: int) -> bool:
        """Return whether the run said after a line that it was complete."""
        return line < self._well_until

    def moved_on_after(self, line: int) -> bool:
        """Return whether a bar went on after a line, of whatever it is."""
        return line < self._moved_until

    def survived(self, line: int) -> bool:
        """Return whether training went on, or ended well, after a line."""
        return (
            self.ended_well_after(line)
            or line < self._trained_until
            or any(self._is_resumed_after(again) for again in self._restarted if line < again)
        )

    def _is_resumed_after(self, restarted: int) -> bool:
        """Return whether the processes that a launcher started again had loaded what was saved."""
        return any(restarted < resumed for resumed in self._resumed)

    def ended_at(self, cause: Cause, line: int) -> bool:
        """Return whether a line is among the last ones of a log that tells of no training.

        Whatever told the run to stop is the end of one that trained too.
        """
        over = not self._well_until and (is_order(cause) or not self._trained)
        return over and self._last_line - line < _LAST_LINES
