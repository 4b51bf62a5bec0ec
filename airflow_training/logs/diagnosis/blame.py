"""Which rank an answer names: the one that others waited for, else the process in whose log it stands. Pure.

The name of a file often holds the number of a node, of which several ranks write into one log.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from airflow_training.logs.diagnosis.collectives import MISMATCH
from airflow_training.logs.diagnosis.elastic import rank_in_summary
from airflow_training.logs.diagnosis.evidence import Incident
from airflow_training.logs.diagnosis.markers import MEMBER, NORMAL_END, WORLD
from airflow_training.logs.diagnosis.ordering import named_rank_after
from airflow_training.logs.diagnosis.ranks import absent_rank_in
from airflow_training.logs.diagnosis.scanning import NO_RANK
from airflow_training.logs.diagnosis.weights import WeightedEvent
from airflow_training.logs.model import FileScan, Hit
from airflow_training.peer_causes import OVER_PEERS

__all__ = ["absent_rank", "blamed_rank"]

_WAITS = frozenset({"nccl-timeout", "rendezvous-timeout", "jax-coordinator-timeout", "hang"})
"""Causes that a rank tells of which waited for another one."""
_UNREACHABLE = frozenset({"connection-refused-master", "dns-resolution-failure", "ssh-failure"})
"""What a rank says that does not get to where the others wait."""
_OWN_LINK = "nccl-unhandled-system-error/link-down"
"""What a node says of its own network: it followed no other rank."""
_LEAST_LOGS = 3
"""Logs from which on one of them can be the only one that is silent."""
_SAYS_NOTHING = 3
"""Of `Cause.generic`."""
_NEAR_LINES = 6
_BELOW_LINES = 20
_COMPARED = re.compile(
    r"[Rr]ank (\d{1,6}) is running collective.{1,2000}? but [Rr]ank (\d{1,6}) is running collective"
)
_COUNTED = re.compile(
    r"(?:PG GUID (?P<group>\S+) )?[Rr]ank (?P<rank>\d{1,6})\].*?"
    r"(?:[Ll]ast enqueued (?:NCCL )?work: (?P<begun>\d+)|WorkNCCL\(SeqNum=(?P<awaited>\d+))"
)
"""Each group of ranks counts its collectives by itself."""
_MEMBER = re.compile(
    r"(?:\bip=(?P<told_address>[\w.:]+), )?\bpid=(?P<told>\d+)\) world_rank=(?P<told_rank>\d+)"
    r"|\bpid=(?P<itself>\d+)(?:, ip=(?P<own_address>[\w.:]+))?\) .*\[rank=(?P<own_rank>\d+), world_size="
    r"|\[xgboost\.dask-\d+\]:(?P<dask>\w+://[\w.\[\]-]*:\d+) got (?:new )?rank (?P<dask_rank>\d+)"
)
_WORLD = re.compile(
    r"(?<![cdept]p )(?<!parallel )(?i:world[_ ]size)[\"']?(?:=|: ?)(\d+)|MEMBER: \d+/(\d+)"
)
"""What a line of `markers.WORLD` counts; "dp world size: 8" counts a part of the ranks."""
_PROCESS = re.compile(r"\bpid(?:=|: )(\d+)|\b((?:tcp|tls|ucxx?)://[\w.\[\]-]*:\d+)")
"""What launchers call their processes: Ray by number, Dask by address."""
_ADDRESS = re.compile(r"\b(?:ip|IP)(?:=|: )([\w.:]*\w)")
"""How Ray names a node; each of them counts its processes by itself."""
_SAME_BLOCK_LINES = 2
"""Ray tells of an actor that died in a list: its address stands so many lines from its process."""


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
        if absent is None:
            absent = _kept_away(event, among)
        if absent is not None:
            return absent
    if event.cause.id in OVER_PEERS and event.signature != _OWN_LINK and event.log is not None:
        silent = _silent_rank(scans, among)
        if silent is not None:
            return silent
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
    return told if told is not None else _rank_of_log(event, scan)


def _rank_of_log(event: Incident, scan: FileScan) -> int | None:
    """Return the rank of an event, else the first of those that its log names: the number of a log is that of its node."""
    named = {hit.rank for hit in scan.hits if hit.named and hit.rank is not None}
    named |= {series.rank for series in scan.series if series.rank is not None}
    if event.rank is None or not named or event.rank in named:
        return event.rank
    first = min(named)
    return first if first >= event.rank else event.rank  # of node n no rank is below n


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


def _kept_away(event: Incident, among: Iterable[WeightedEvent]) -> int | None:
    """Return the rank of another log that could not reach the one which waited for it."""
    away = [
        each.event
        for each in among
        if each.event.cause.id in _UNREACHABLE and each.event.log not in (None, event.log)
    ]
    ranks = {each.rank for each in away}
    return ranks.pop() if len(ranks) == 1 else None


def _silent_rank(scans: Sequence[FileScan], among: Sequence[WeightedEvent]) -> int | None:
    """Return the rank of the one log that says nothing of an end, where all others lost a peer: it left first.

    None where there are several, where it says that it is complete, and where another rank failed by itself.
    """
    if any(each.event.cause.id not in OVER_PEERS and _tells(each.event) for each in among):
        return None
    told = {each.event.log for each in among}
    silent = [
        scan
        for number, scan in enumerate(scans)
        if number not in told
        and scan.origin.role not in NO_RANK
        and scan.tail
        and not any(hit.signature == NORMAL_END for hit in scan.hits)
    ]
    if len(silent) != 1 or len(scans) < _LEAST_LOGS:
        return None
    return silent[0].origin.rank


def _tells(event: Incident) -> bool:
    return event.kind == "cause" and not event.survivable and event.cause.generic < _SAYS_NOTHING


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
    """Return the one rank that is behind all others of its group, by the watchdogs of NCCL.

    In what it has begun, where all tell that, else in what it waits for.
    """
    told: defaultdict[str, defaultdict[int, Counter[str]]] = defaultdict(
        lambda: defaultdict(Counter)
    )
    near = [line for hit in _hits_of(cause, scans) for line in (hit.text, *hit.before, *hit.after)]
    for line in (*near, *(line for scan in scans for line in scan.tail)):
        for found in _COUNTED.finditer(line):
            counts = told[found["group"] or ""][int(found["rank"])]
            kind = "begun" if found["begun"] else "awaited"
            counts[kind] = max(counts[kind], int(found[kind]))
    behind = {
        last[0]
        for ranks in told.values()
        for kind in ("begun", "awaited")
        if all(kind in counts for counts in ranks.values())
        and len(last := _least(ranks, kind)) == 1 < len(ranks)
    }
    if not behind:
        behind = _silent_in_its_log(scans, {rank for ranks in told.values() for rank in ranks})
    return behind.pop() if len(behind) == 1 else None


def _silent_in_its_log(scans: Sequence[FileScan], waited: Collection[int]) -> set[int]:
    """Return of one log of many ranks the one that tells of no wait, where all others do.

    Those that have trained are all ranks, or else those of the world that it tells the size of.
    """
    if len(scans) != 1:
        return set()
    ranks = {each.rank for each in scans[0].series if each.rank is not None}
    if len(ranks) < _LEAST_LOGS:
        ranks = set(_world(scans[0]))
    silent = ranks.difference(waited)
    return silent if len(ranks) >= _LEAST_LOGS and len(silent) == 1 else set()


def _world(scan: FileScan) -> range:
    """Return the ranks of the world, if the log always tells the same size."""
    told = (_WORLD.search(hit.text) for hit in scan.hits if hit.signature == WORLD)
    sizes = {int(found[1] or found[2]) for found in told if found is not None}
    return range(sizes.pop()) if len(sizes) == 1 else range(0)


def _least(ranks: Mapping[int, Counter[str]], kind: str) -> list[int]:
    least = min(counts[kind] for counts in ranks.values())
    return [rank for rank, counts in ranks.items() if counts[kind] == least]


def _rank_of_process(event: Incident, scan: FileScan) -> int | None:
    """Return the rank of the process that a line names, where a launcher told the ranks of its processes (Ray, Dask).

    Where neither that line nor one next to it names one, a line below that tells the same cause does. A line that
    names a node is about its process, where it has one, else about one of its processes.
    """
    members = _members(scan)
    if not members:
        return None
    same = sorted(
        (hit for hit in scan.hits if hit.line == event.line or _tells_it_below(hit, event)),
        key=lambda hit: hit.line,
    )
    near = (
        *(hit.text for hit in same),
        *(line for hit in same for line in hit.after[:_NEAR_LINES]),
        *(line for hit in same for line in reversed(hit.before[-_NEAR_LINES:])),
    )
    lines = [line for line in near if not _MEMBER.search(line)]
    own = {
        address for hit in same if hit.line == event.line for address in _ADDRESS.findall(hit.text)
    }
    there = [each for each in members if each.address in own]
    if len({each.rank for each in there}) == 1:
        return there[0].rank
    for number, line in enumerate(lines):
        block = lines[max(0, number - _SAME_BLOCK_LINES) : number + 1 + _SAME_BLOCK_LINES]
        addresses = _ADDRESS.findall(line) or _ADDRESS.findall("\n".join(block))
        for process in _PROCESS.findall(line):
            called = [each for each in there or members if each.process in process]
            ranks = {each.rank for each in called}
            if len(ranks) > 1:
                ranks = {each.rank for each in called if each.address in addresses}
            if len(ranks) == 1:
                return ranks.pop()
    return None


class _LauncherProcess(NamedTuple):
    """A process as its launcher calls it, and the rank that it was given."""

    process: str
    address: str | None
    rank: int


def _members(scan: FileScan) -> list[_LauncherProcess]:
    """Return what a launcher told of its processes; of one that it told of twice what it said last."""
    told = (_MEMBER.search(hit.text) for hit in scan.hits if hit.signature == MEMBER)
    members = (
        _LauncherProcess(
            process=found["told"] or found["itself"] or found["dask"],
            address=found["told_address"] or found["own_address"],
            rank=int(found["told_rank"] or found["own_rank"] or found["dask_rank"]),
        )
        for found in told
        if found is not None
    )
    return list({(each.process, each.address): each for each in members}.values())


def _tells_it_below(hit: Hit, event: Incident) -> bool:
    return (
        event.line is not None
        and hit.signature.partition("/")[0] == event.cause.id
        and event.line < hit.line <= event.line + _BELOW_LINES
    )
