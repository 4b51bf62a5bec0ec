"""The summary that torch elastic prints when workers failed: who was the first. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_training.logs.diagnosis.markers import ELASTIC
from airflow_training.logs.model import FileScan, Hit

__all__ = ["first_rank_of"]

_RANK = re.compile(r"^\s*rank\s*:\s*(\d+)")
_REPORT = re.compile(r"failed \(exitcode: -?\d+\) local_rank: (\d+)")
_SUMMARY_LINES = 10


def first_rank_of(scans: Iterable[FileScan]) -> int | None:
    """Return the rank that a launcher saw failing first, None where none tells."""
    found = (_first_rank(scan.hits) for scan in scans)
    return next((rank for rank in found if rank is not None), None)


def _first_rank(hits: Iterable[Hit]) -> int | None:
    """Return the rank of the last summary; without one that of the first report, in its node."""
    reports = []
    summary: Hit | None = None
    for hit in hits:
        if hit.signature != ELASTIC:
            continue
        report = _REPORT.search(hit.text)
        if report is not None:
            reports.append(int(report[1]))
        else:
            summary = hit
    if summary is None:
        return reports[0] if reports else None
    told = (_RANK.match(line) for line in summary.after[:_SUMMARY_LINES])
    return next((int(match[1]) for match in told if match is not None), None)
