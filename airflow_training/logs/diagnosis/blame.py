"""Which rank an answer names: the one that others waited for, else the process in whose log it stands. Pure.

The name of a file often holds the number of a node, of which several ranks write into one log.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from airflow_training.logs.diagnosis.collectives import MISMATCH
from airflow_training.logs.diagnosis.elastic import rank_in_summary
from airflow_training.logs.diagnosis.evidence import Incident
from airflow_training.logs.diagnosis.markers import MEMBER
from airflow_training.logs.diagnosis.ordering import named_rank_after
from airflow_training.logs.diagnosis.ranks import absent_rank_in
from airflow_training.logs.diagnosis.scanning import NO_RANK
from airflow_training.logs.diagnosis.weights import WeightedEvent
from airflow_training.logs.model import FileScan, Hit

__all__ = ["absent_rank", "blamed_rank"]

_WAITS = frozenset({"nccl-timeout", "rendezvous-timeout", "jax-coordinator-timeout", "hang"})
"""Causes that a rank tells of which waited for another one."""
_NEAR_LINES = 6
_BELOW_LINES = 20
_COMPARED = re.compile(
    r"[Rr]ank (\d{1,6}) is running collective.{1,2000}? but [Rr]ank (\d{1,6}) is running collective"
)
_ENQUEUED = re.compile(
    r"[Rr]ank (?P<rank>\d{1,6})\].*?[Ll]ast enqueued (?:NCCL )?work: (?P<work>\d+)"
)
_MEMBER = re.compile(r"pid=(?P<pid>\d+)\) world_rank=(?P<rank>\d+)")
_PROCESS = re.compile(r"\bpid=(\d+)")


def blamed_rank(
    event: Incident,
    scans: Sequence[FileScan],
    among: Sequence[WeightedEvent],
    *,
    first_rank: int | None,
) -> int | None:
    """Return the rank that an event is about, as far as the logs tell; None also where all of them say the same.

    `first_rank`: the one that a launcher saw failing first, for a line that stands in the log of no rank.
    """
    if event.cause.id in _WAITS and event.log is not None:
        absent = absent_rank(scans, event.cause.id)
        if absent is not None:
            return absent
    odd = _odd_rank(scans, event)
    if odd is not None:
        return odd
    if event.named or event.log is None:
        return event.rank
    if _is_everywhere(event, scans, among):
        return None
    scan = scans[event.log]
    told = named_rank_after(event, among)
    if told is None:
        told = rank_in_summary(scan)
    if told is None:
        told = _rank_of_process(event, scan)
    if told is None and not event.raised:
        told = _next_to_raise(event, among)
    if told is None and event.rank is None:
        told = first_rank
    return told if told is not None else event.rank


def _is_everywhere(
    event: Incident, scans: Sequence[FileScan], among: Iterable[WeightedEvent]
) -> bool:
    """Return whether all of several instances say the same, in the same words: then no rank was the one.

    The number of an instance (`worker-1`) need not be a rank; of logs that are called by their ranks the first counts.
    """
    same = {
        each.event.log
        for each in among
        if each.event.cause is event.cause
        and each.event.text == event.text
        and not each.event.named
    }
    told = [number for number, scan in enumerate(scans) if scan.origin.role not in NO_RANK]
    return len(told) > 1 and all(number in same and scans[number].origin.role for number in told)


def absent_rank(scans: Iterable[FileScan], cause: str) -> int | None:
    """Return the rank that the others of a collective waited for: named by them, or behind them by its own count."""
    scans = list(scans)
    for hit in _hits_of(cause, scans):
        named = absent_rank_in("\n".join((hit.text, *hit.after[:_NEAR_LINES])))
        if named is not None:
            return named
    return _behind(scans, cause)


def _odd_rank(scans: Iterable[FileScan], event: Incident) -> int | None:
    """Return the rank of a mismatch that most ranks name, as each compares itself with one other; None where two do."""
    if event.cause.id != MISMATCH:
        return None
    compared = {
        pair.groups() for hit in _hits_of(MISMATCH, scans) for pair in _COMPARED.finditer(hit.text)
    }
    told = Counter(int(rank) for pair in compared for rank in pair).most_common(2)
    return told[0][0] if len(told) > 1 and told[0][1] > told[1][1] else None


def _next_to_raise(event: Incident, among: Iterable[WeightedEvent]) -> int | None:
    """Return the rank that raised something right below a line which no rank printed, as the kernel's about its GPU."""
    below = [
        each.event
        for each in among
        if each.event.log == event.log
        and each.event.raised
        and each.event.named
        and 0 < (each.event.line or 0) - (event.line or 0) <= _BELOW_LINES
    ]
    first = min(below, key=lambda each: each.line or 0, default=None)
    return first.rank if first is not None else None


def _hits_of(cause: str, scans: Iterable[FileScan]) -> Iterable[Hit]:
    return (hit for scan in scans for hit in scan.hits if hit.signature.partition("/")[0] == cause)


def _behind(scans: Sequence[FileScan], cause: str) -> int | None:
    """Return the one rank that has begun less collectives than all others, by the watchdogs of NCCL."""
    begun: dict[int, int] = defaultdict(int)
    near = [line for hit in _hits_of(cause, scans) for line in (hit.text, *hit.before, *hit.after)]
    for line in (*near, *(line for scan in scans for line in scan.tail)):
        told = _ENQUEUED.search(line)
        if told is not None:
            rank = int(told["rank"])
            begun[rank] = max(begun[rank], int(told["work"]))
    least = min(begun.values(), default=0)
    last = [rank for rank, work in begun.items() if work == least]
    return last[0] if len(begun) > len(last) == 1 else None


def _rank_of_process(event: Incident, scan: FileScan) -> int | None:
    """Return the rank of the process that a line names, where a launcher told the ranks of its processes (Ray)."""
    members = {
        told["pid"]: int(told["rank"])
        for hit in scan.hits
        if hit.signature == MEMBER and (told := _MEMBER.search(hit.text)) is not None
    }
    if not members:
        return None
    near = (
        line
        for hit in scan.hits
        if hit.line == event.line
        for line in (hit.text, *hit.after[:_NEAR_LINES], *reversed(hit.before[-_NEAR_LINES:]))
    )
    named = (members.get(pid) for line in near for pid in _PROCESS.findall(line))
    return next((rank for rank in named if rank is not None), None)
