"""The summary that a launcher (torch elastic, mpirun, Horovod, Paddle) prints when workers failed: who was the first. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from airflow_training.logs.diagnosis.markers import ELASTIC
from airflow_training.logs.model import FileScan, Hit

__all__ = ["first_rank_of", "rank_in_summary"]

_FIELD = re.compile(r"^\s*(?P<name>time|rank|exitcode)\s*:\s*(?P<value>-?[\d_:-]+)")
_REPORT = re.compile(r"failed \(exitcode: -?\d+\) local_rank: (\d+)")
_ONE_LINE = re.compile(r"(?:Container rank|RANK) (\d+) (?:status failed|PID \d+ RUNNING AT )")
"""How the launchers of Paddle and of MPICH's family name the process that failed."""
_SUMMARY_LINES = 10
_PROCESS_NAME = re.compile(r"^\s*Process name: (?:\[\[\d+,\d+\],)?(\d+)\]?$")
"""Of the first process that ended: the job and its rank in Open MPI, the rank in Horovod."""


def first_rank_of(scans: Iterable[FileScan]) -> int | None:
    """Return the rank that a launcher saw failing first, None where none tells."""
    found = (_first_rank(scan.hits) for scan in scans)
    return next((rank for rank in found if rank is not None), None)


def rank_in_summary(scan: FileScan) -> int | None:
    """Return the rank, in the whole job, that the launcher of one log saw failing first; None without its summary."""
    summaries = [hit for hit in scan.hits if hit.signature == ELASTIC and _is_summary(hit)]
    return _first_rank(summaries[-1:])


def _is_summary(hit: Hit) -> bool:
    return _REPORT.search(hit.text) is None


def _first_rank(hits: Iterable[Hit]) -> int | None:
    """Return the rank of the last summary; without one that of the first report, in its node."""
    reports = []
    summary: Hit | None = None
    for hit in hits:
        if hit.signature != ELASTIC:
            continue
        named = _ONE_LINE.search(hit.text)
        if named is not None:
            return int(named[1])
        report = _REPORT.search(hit.text)
        if report is not None:
            reports.append(int(report[1]))
        else:
            summary = hit
    if summary is None:
        return reports[0] if reports else None
    for line in summary.after[:_SUMMARY_LINES]:
        name = _PROCESS_NAME.match(line)
        if name is not None:
            return int(name[1])
    first = next(_failures(summary.after[:_SUMMARY_LINES]), None)
    if first is None:
        return None
    # the launcher orders them by the second: who was only told to stop, or gave up waiting, was not the first
    others = [each for each in _failures(summary.before) if each.time == first.time]
    return min((first, *others), key=lambda each: _pulled_down(each.exit_code)).rank


class _Failure(NamedTuple):
    rank: int
    time: str
    exit_code: int


def _failures(lines: Iterable[str]) -> Iterator[_Failure]:
    """Yield the ranks that a summary lists; each is `time`, `host`, `rank` and `exitcode`, a line each."""
    told: dict[str, str] = {}
    for line in lines:
        found = _FIELD.match(line)
        if found is None:
            continue
        told[found["name"]] = found["value"]
        if found["name"] == "exitcode" and "rank" in told:
            yield _Failure(int(told["rank"]), told.get("time", ""), int(found["value"]))
            told = {}


def _pulled_down(exit_code: int) -> int:
    """Return how likely a rank only followed another: it was told to stop, it gave up, it failed by itself."""
    return {-15: 2, -6: 1}.get(exit_code, 0)
