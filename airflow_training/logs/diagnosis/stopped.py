"""Logs of instances that were only told to stop, because another one had failed: what they say of it explains nothing. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from airflow_training.logs.diagnosis.catalogue import Catalogue
from airflow_training.logs.diagnosis.evidence import Incident
from airflow_training.logs.diagnosis.facts import STOPPED
from airflow_training.logs.diagnosis.markers import CHECKPOINT, NORMAL_END, RESUMED
from airflow_training.logs.model import FileScan, InstanceFact

__all__ = [
    "continued",
    "first_to_exit",
    "stopped_by_facts",
    "stopped_by_signal",
    "stopped_with_run",
    "without_ends",
    "without_orders",
]

_UNKNOWN = "unknown"
_ENDS = frozenset({_UNKNOWN, "dataloader-worker-killed", "preempted", "user-interrupt"})
"""Causes that programs tell of which are ended from outside."""
_PATH = re.compile(r"(?:\w+:/)?/[\w.@+=/-]{3,}[\w]")
_CONFIDENCE = 0.6
"""That a log which just ends, where all others were told to stop, is of the instance that failed."""


def stopped_by_facts(
    scans: Sequence[FileScan], failures: Iterable[InstanceFact]
) -> Collection[int]:
    """Return the logs of a run whose instances are none of those that failed."""
    failed = {(fact.role, fact.index) for fact in failures}
    return {
        number
        for number, scan in enumerate(scans)
        if scan.origin.role and (scan.origin.role, scan.origin.index) not in failed
    }


def stopped_with_run(scans: Sequence[FileScan], facts: Iterable[InstanceFact]) -> Collection[int]:
    """Return the logs of instances that somebody has ended together with their run."""
    stopped = {(fact.role, fact.index) for fact in facts if fact.reason == STOPPED}
    return {
        number
        for number, scan in enumerate(scans)
        if (scan.origin.role, scan.origin.index) in stopped
    }


def without_ends(events: Iterable[Incident], stopped: Collection[int]) -> Iterator[Incident]:
    """Yield the events but for what logs of `stopped` instances may say because they, and their peers, were ended."""
    for each in events:
        ended = each.guess or each.kind != "cause" or each.cause.id in _ENDS
        if each.log not in stopped or not ended:
            yield each


def continued(scans: Sequence[FileScan]) -> Collection[int]:
    """Return the logs of which another one is the next part: it begins with the checkpoint that they saved."""
    begins = {
        number: {
            path
            for hit in scan.hits
            if hit.signature == RESUMED and not any(hit.line > line for line in _first_steps(scan))
            for path in _PATH.findall(hit.text)
        }
        for number, scan in enumerate(scans)
    }
    return {
        number
        for number, scan in enumerate(scans)
        for hit in scan.hits
        if hit.signature == CHECKPOINT
        for path in _PATH.findall(hit.text)
        if any(path in paths for other, paths in begins.items() if other != number)
        and path not in begins[number]
    }


def _first_steps(scan: FileScan) -> Iterator[int]:
    """Yield the line of the first step of each series."""
    return (series.lines.tolist()[0] for series in scan.series if len(series.lines))


def stopped_by_signal(scans: Sequence[FileScan], events: Iterable[Incident]) -> Collection[int]:
    """Return the logs that tell of a signal and nothing else, where another log tells of nothing at all."""
    told: dict[int, list[Incident]] = {number: [] for number in range(len(scans))}
    for event in events:
        if event.log is not None:
            told[event.log].append(event)
    if all(told.values()):
        return ()
    return {number for number, found in told.items() if found and _only_a_signal(found)}


def _only_a_signal(events: Sequence[Incident]) -> bool:
    """Return whether events are no more than a signal and what a launcher says of it."""
    said = (each.guess or each.cause.id == _UNKNOWN for each in events)
    return any(each.guess for each in events) and all(said)


def without_orders(events: Iterable[Incident], stopped: Collection[int]) -> Iterator[Incident]:
    """Yield the events but for what logs of `stopped` instances say about their end."""
    return (each for each in events if each.log not in stopped or not _is_order(each))


def _is_order(event: Incident) -> bool:
    """Return whether an event says that something ended because it was told to."""
    return event.guess or event.cause.id in (_UNKNOWN, "user-interrupt")


def first_to_exit(
    scans: Sequence[FileScan], stopped: Collection[int], catalogue: Catalogue
) -> Iterator[Incident]:
    """Yield, where logs are of `stopped` instances, the end of each other one that does not say it went well."""
    cause = catalogue.causes.get(_UNKNOWN)
    for number, scan in enumerate(scans):
        well = any(hit.signature == NORMAL_END for hit in scan.hits)
        if not stopped or number in stopped or well or cause is None or not scan.tail:
            continue
        yield Incident(
            cause=cause,
            signature="",
            kind="cause",
            confidence=_CONFIDENCE,
            survivable=False,
            log=number,
            rank=scan.origin.rank,
            line=scan.lines,
            offset=scan.tail_offsets[-1],
            time=scan.last_time,
            text=f"its log ends, and the others were told to stop: {scan.tail[-1].strip()}",
        )
