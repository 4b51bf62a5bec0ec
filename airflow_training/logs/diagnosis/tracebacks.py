"""Exceptions of Python in a log: which belong together, and which of a chain began it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from airflow_training.logs.diagnosis.markers import CHAIN, EXCEPTION, TRACEBACK
from airflow_training.logs.diagnosis.ranks import rank_above, rank_in
from airflow_training.logs.model import Hit

__all__ = [
    "Chain",
    "RaisedException",
    "chains",
    "final_exception",
    "innermost_frame",
    "innermost_frames",
    "is_source_line",
]

Link = Literal["first", "cause", "handling", "inner"]
"""How an exception came after the one above it; `inner`: it was shown inside the other's message."""

_RAISED = re.compile(
    r"(?P<type>[A-Za-z_][\w.]*|[Ee]rror (?:in|during|while|running) [\w ]{1,40})(?:: ?(?P<message>.*)|$)"
)
_UNUSUAL = re.compile(
    r"(?P<type>(?:[a-z_]\w*\.)*[A-Z_]\w*|[a-z_][\w.]*(?=:))(?:: ?(?P<message>.*)|$)"
)
"""An exception whose name does not say that it is one."""
_NAMED = re.compile(
    r"(?:Error|Exception|Interrupt|Exit|[Tt]imeout|\.(?:gai)?error|Expired|Iteration|Empty|exceptions\.\w+)$|^[Ee]rror "
)
_WRAPPERS = re.compile(
    r"(?:ChildFailedError|CalledProcessError|ProcessRaisedException|KilledWorker|RayTaskError(?!\()"
    r"|WorkerCrashedError|TrainingFailedError|RayActorError|EngineDeadError|SparkException|Py4JJavaError)\b"
    r"|Error (?:for )?[Tt]raining (?:job )?\S+: Failed|TuneError: \W*Trials did not complete"
    r"|Caught \w+ in (?:DataLoader worker|pin memory thread|replica)|Exception: -- Process \d+ terminated with"
    r"|Horovod detected that one or more processes exited"
)
"""They repeat what another process said."""
_BOX = frozenset("│╭╰❱")
"""Of a traceback that the library rich has drawn; the message stands below the box."""
_BOTTOM = "\u2570"
"""How the last line of such a box begins."""
_INSIDE = _BOX | {" ", "\t", ""}
"""How lines of a traceback begin, but for its last one."""
_CUT_OFF = "Traceback (most recent call last)"
"""All there is to see of an exception whose end is missing."""
_DIGIT = re.compile(r"\d")
_MARKED = re.compile(r"\b(?:Syntax|Indentation|Tab)Error: ")
"""Of a script that cannot be parsed, a line below its source marks the place, and nothing heads it."""
_PLACE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>[\w.<>]+))?')
_LIBRARY = re.compile(r"(?:site|dist)-packages/|/lib(?:64)?/python\d|^<|\bipykernel_")
_MOST_FRAMES = 2
_FRAME = re.compile(r'File ".*", line \d+')
_INNERMOST_LINES = 24
"""Of a traceback, from its end: eight frames with source and marks; what is farther out only called something else."""
_NEAREST = 12
"""A message may stand in so many lines between the last frame and the line of a signature."""
_NOT_RAISED = ("Exception ignored in", "Error in atexit._run_exitfuncs", "Retry attempt failed")
"""Above what is only reported: raised while something is deleted, after the end, before another try."""
_NOT_RETRIEVED = re.compile(
    r"(?:Task|Future|_GatheringFuture) exception was never retrieved$|Exception in callback "
)
"""What the event loop of asyncio reports of a task that nobody waits for, some lines above its traceback."""
_REPORT_LINES = 3
_TRIED_AGAIN = re.compile(r"(?i)\bentering retry loop\b|\b(?:will retry|retrying) in \d")
"""In the line after what its program tries again."""
_STACK = re.compile(r"^\s+(?:at |\.\.\. |File )|^\s*(?:frame #|#\d|Caused by: )")
"""Lines of a stack that stands below its exception."""
_MOST_LINES_AFTER = 6
_ESCAPED = re.compile(r"Traceback \(most recent call last\):\\+n")
"""A whole traceback in one line, as a JSON string has it."""
_LINE_END = re.compile(r"\\+n")
_FEEDER = re.compile(r'multiprocessing/queues\.py", line \d+, in _feed')
"""This thread prints what goes wrong, and feeds on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisedException:
    """One exception as a traceback ends with it."""

    type: str
    message: str
    line: int
    offset: int
    rank: int | None
    named: bool
    """Whether the log names the rank, at its line or at the head of its traceback."""
    time: float | None
    link: Link = "first"
    lines: int = 1
    """From the head of its traceback on."""
    frames: tuple[str, ...] = ()
    """The last ones in files of the user, as `train.py:3, in step: loss.backward()`."""
    ignored: bool = False
    """Python only reports it: while something is deleted, after the end, where a queue lost its reader."""

    @property
    def cut_off(self) -> bool:
        """Return whether the log does not tell what was raised."""
        return self.type == _CUT_OFF

    @property
    def text(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    @property
    def wraps(self) -> bool:
        """Return whether it only repeats the failure of another process."""
        return _WRAPPERS.search(self.text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Exceptions that one traceback shows, in the order of the log."""

    raised: Sequence[RaisedException]

    @property
    def first_line(self) -> int:
        return self.raised[0].line - self.raised[0].lines + 1

    @property
    def last_line(self) -> int:
        return self.raised[-1].line

    @property
    def ignored(self) -> bool:
        return self.raised[0].ignored

    @property
    def root(self) -> RaisedException:
        """Return the exception that explains the others.

        The first, where the next one says that it wraps it; one that was handled when something
        else went wrong explains nothing.
        """
        root = self.raised[0]
        for after in self.raised[1:]:
            if after.cut_off:
                continue
            handled = after.link == "handling" and not after.wraps and not _repeats(after, root)
            if after.link == "inner" or root.wraps or handled:
                root = after
        return root


def chains(hits: Iterable[Hit]) -> list[Chain]:
    """Return the tracebacks among the hits of one rank, in order; hits of signatures are passed over."""
    done: list[list[RaisedException]] = []
    head: Hit | None = None
    link: Link = "first"
    for hit in hits:
        if hit.signature == CHAIN:
            link = "cause" if "direct cause" in hit.text else "handling"
        elif hit.signature == TRACEBACK and _ESCAPED.search(hit.text) is not None:
            escaped = _raised_in_one_line(hit)
            if escaped is not None:
                _append(done, escaped)
        elif hit.signature == TRACEBACK:
            if head is not None:
                _end(done, head, link)
                link = "first"
            if link == "first" and (_inside_message(done) or "Original Traceback" in hit.text):
                link = "inner"
            head = hit
        elif hit.signature == EXCEPTION and (head is not None or _ends_frames(hit)):
            raised = _raised(hit, head=head or hit, link=link)
            if raised is not None:
                _append(done, raised)
                head, link = None, "first"
    if head is not None:
        _end(done, head, link)
    return [Chain(raised=each) for each in done]


def final_exception(hits: Sequence[Hit], shown: Iterable[Chain]) -> Chain | None:
    """Return the exception without a traceback with which a log ends, None where it does not.

    `shown`: the tracebacks of the same hits.
    """
    named = [hit for hit in hits if hit.signature == EXCEPTION]
    if not named or any(each.first_line <= named[-1].line <= each.last_line for each in shown):
        return None
    hit = named[-1]
    after = [line for line in hit.after if not _STACK.match(line)]
    raised = _raised(hit, head=hit, link="first")
    if raised is None or len(after) > _MOST_LINES_AFTER:
        return None
    return Chain(raised=[raised])


def innermost_frames(hit: Hit) -> str:
    """Return the frames right above the line of an exception, with their source; empty where none stand there."""
    texts: list[str] = []
    for line in reversed(hit.before):
        if _CUT_OFF in line or len(texts) == _INNERMOST_LINES:
            break
        texts.append(line)
    return "\n".join(reversed(texts)) if any(map(_FRAME.search, texts[:_NEAREST])) else ""


def innermost_frame(hit: Hit) -> str:
    """Return the frame that raised an exception, its source on the line below; empty where none stands right above."""
    source = ""
    for line in reversed(hit.before[-_NEAREST:]):
        if _CUT_OFF in line:
            break
        found = _FRAME.search(line)
        if found is not None:
            return f"{line[found.start() :]}\n{source}"
        source = line
    return ""


def is_source_line(hit: Hit) -> bool:
    """Return whether a hit is in a line of source code that a traceback quotes."""
    if hit.text.lstrip()[:1] in _BOX:
        return True
    frame = hit.before[-1] if hit.before else ""
    found = _FRAME.search(frame)
    if found is None:
        return False
    return _begins_like(hit.text, f"{frame[: found.start()]}  ")


def _append(done: list[list[RaisedException]], raised: RaisedException) -> None:
    if raised.link == "first" or not done:
        done.append([raised])
    else:
        done[-1].append(raised)


def _raised(hit: Hit, *, head: Hit, link: Link) -> RaisedException | None:
    """Return the exception that a line ends a traceback with, if it does; `head`: the line itself without one."""
    match = _RAISED.match(hit.text if head is hit else _like(head, hit.text))
    if match is None or not _NAMED.search(match["type"]):
        return None
    return RaisedException(
        type=match["type"],
        message=_message(match["message"], hit),
        line=hit.line,
        offset=hit.offset,
        rank=_rank(hit, head),
        named=_named_rank(hit, head) is not None,
        time=hit.time,
        link=link,
        lines=hit.line - head.line + 1,
        frames=_own_frames(hit, head),
        ignored=_is_ignored(head, match["type"]) or _is_tried_again(hit),
    )


def _own_frames(hit: Hit, head: Hit) -> tuple[str, ...]:
    """Return the last frames above an exception that are in files of the user, with their source."""
    lines = hit.before if head is hit else hit.before[-max(1, hit.line - head.line) :]
    found = []
    for line, below in pairwise((*lines, "")):
        place = _PLACE.search(line)
        if place is not None and not _LIBRARY.search(place["file"]):
            where = f"{place['file']}:{place['line']}"
            if place["function"] not in (None, "<module>"):
                where += f", in {place['function']}"
            source = "" if _PLACE.search(below) else below.strip()
            found.append(f"{where}: {source}" if source else where)
    return tuple(found[-_MOST_FRAMES:])


def _message(told: str | None, hit: Hit) -> str:
    """Return the message of an exception, which may begin on the line below; `told`: None without a colon."""
    if told == "" and hit.after:
        return hit.after[0].strip()
    return told or ""


def _raised_in_one_line(hit: Hit) -> RaisedException | None:
    r"""Return the last exception of a traceback whose line ends are written as `\n`."""
    for part in reversed(_LINE_END.split(hit.text)):
        match = _RAISED.match(part.partition('"')[0])
        if match is not None and _NAMED.search(match["type"]):
            return RaisedException(
                type=match["type"],
                message=match["message"] or "",
                line=hit.line,
                offset=hit.offset,
                rank=_rank(hit, hit),
                named=_named_rank(hit, hit) is not None,
                time=hit.time,
            )
    return None


def _end(done: list[list[RaisedException]], head: Hit, link: Link) -> None:
    """Take an exception of an unusual name from the lines after the head of its traceback.

    Where exactly it stands is not known, as lines of other ranks may be between: the head is. It also
    stands for a traceback that nothing follows, as the log was cut off.
    """
    texts = [_like(head, line) for line in head.after]
    last = next((text for text in texts if not _is_inside(text)), None)
    match = _UNUSUAL.match(last) if last is not None else None
    if last is not None and match is None and not _ends_inside(texts):
        return
    type_, message = (match["type"], match["message"]) if match else (_CUT_OFF, "")
    raised = RaisedException(
        type=type_,
        message=message or "",
        line=head.line,
        offset=head.offset,
        rank=_rank(head, head),
        named=_named_rank(head, head) is not None,
        time=head.time,
        link=link,
        ignored=_is_ignored(head, type_),
    )
    _append(done, raised)


def _is_inside(text: str) -> bool:
    """Return whether a line can stand between the head of a traceback and its exception."""
    return text[:1] in _INSIDE or _FRAME.match(text) is not None


def _ends_inside(texts: Sequence[str]) -> bool:
    """Return whether the last line is a frame, or the line of source below one."""
    return _is_inside(texts[-1]) or any(_FRAME.match(text) for text in texts[-2:-1])


def _like(head: Hit, text: str) -> str:
    """Return a line without what a logger wrote before the head of its traceback too."""
    before = re.split(r"(?:Original )?Traceback \(", head.text, maxsplit=1)[0]
    return text[len(before) :] if _begins_like(text, before) else text


def _rank(hit: Hit, head: Hit) -> int | None:
    """Return the rank of a line, else the one that is named at the head of its traceback or above it."""
    named = _named_rank(hit, head)
    return named if named is not None else hit.rank


def _named_rank(hit: Hit, head: Hit) -> int | None:
    if hit.named:
        return hit.rank
    named = rank_in(head.text)
    return rank_above(head.before[-1]) if named is None and head.before else named


def _is_ignored(head: Hit, type_: str) -> bool:
    if head.before and head.before[-1].startswith(_NOT_RAISED):
        return True
    if any(map(_NOT_RETRIEVED.search, head.before[-_REPORT_LINES:])):
        return True
    fed = bool(head.after) and _FEEDER.search(head.after[0]) is not None
    return fed and type_ == "BrokenPipeError"


def _ends_frames(hit: Hit) -> bool:
    """Return whether frames stand right above a line: of a traceback whose head was cut off or drawn."""
    marked = _MARKED.search(hit.text) is not None
    above = hit.before[-3:] if marked else hit.before[-2:]
    return bool(above) and (
        above[-1].startswith(_BOTTOM)
        or any(_FRAME.match(line.lstrip()) is not None for line in above[: 1 + marked])
    )


def _is_tried_again(hit: Hit) -> bool:
    return bool(hit.after) and _TRIED_AGAIN.search(hit.after[0]) is not None


def _begins_like(text: str, before: str) -> bool:
    """Return whether a line begins with what a logger or launcher wrote before another, but for times."""
    return _DIGIT.sub("0", text[: len(before)]) == _DIGIT.sub("0", before)


def _inside_message(done: Sequence[Sequence[RaisedException]]) -> bool:
    """Return whether the next traceback is part of the text of the last exception."""
    return bool(done) and done[-1][-1].wraps and "ChildFailedError" not in done[-1][-1].type


def _repeats(after: RaisedException, before: RaisedException) -> bool:
    """Return whether an exception says again what the one before it said."""
    return bool(before.message) and before.message[:60] in after.message
