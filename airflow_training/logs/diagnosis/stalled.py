"""Which rank stopped first where ranks make no progress, and the last line it printed. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_training.logs.model import FileScan, Finding, InstanceFact

__all__ = ["StalledRank", "is_running", "stalled"]

_SEEN_RUNNING = 0.85
_FROM_CLOCKS = 0.6
"""Of a log alone: what ended may only look as if it had stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledRank:
    """The rank that stopped first, with the place of its last line where a log has it."""

    rank: int | None
    file: str | None
    line: int | None
    offset: int | None
    evidence: str
    confidence: float


def is_running(fact: InstanceFact) -> bool:
    """Return whether the runtime sees an instance that has not ended."""
    return fact.reason == "Running" and fact.exit_code is None and fact.signal is None


def stalled(
    health: Sequence[Finding], scans: Sequence[FileScan], facts: Sequence[InstanceFact]
) -> StalledRank | None:
    """Return who made no progress first; None: nobody is known to have stopped."""
    silent = [each for each in health if each.kind == "hang"]
    if not silent:
        return None
    first = min(silent, key=_stopped)
    scan = next((each for each in scans if each.origin.file == first.file), None)
    line, offset, text = (first.line, first.offset, "") if scan is None else _last(scan, first)
    alive = any(
        is_running(each) and (each.role, each.index) == (first.role, first.index) for each in facts
    )
    told = [first.message]
    if len(silent) > 1:
        told.append(f"it stopped first of {len(silent)} ranks")
    if alive:
        told.append("its process has not ended")
    if text:
        told.append(f"its last line: {text}")
    return StalledRank(
        rank=first.rank,
        file=first.file or None,
        line=line,
        offset=offset,
        evidence="; ".join(told),
        confidence=_SEEN_RUNNING if alive else _FROM_CLOCKS,
    )


def _stopped(finding: Finding) -> tuple[float, float]:
    """Return the order in which ranks stopped: those that wait for another one are at its step or ahead."""
    step, time = finding.step, finding.time
    return (math.inf if step is None else step, math.inf if time is None else time)


def _last(scan: FileScan, finding: Finding) -> tuple[int | None, int | None, str]:
    """Return line, offset and text of what a rank printed last.

    Of a log of several ranks it is the last line with a metric of this one.
    """
    if len({each.rank for each in scan.series}) <= 1:
        for number in reversed(range(len(scan.tail))):
            if scan.tail[number].strip():
                return scan.tail_line + number, scan.tail_offsets[number], scan.tail[number]
    own = [each for each in scan.series if each.rank == finding.rank and len(each.lines)]
    if not own:
        return finding.line, finding.offset, ""
    last = max(own, key=lambda each: int(each.lines[-1]))
    line = int(last.lines[-1])
    return line, int(last.offsets[-1]), scan.tail_text(line)
