"""A loss that became NaN or infinite and stayed so: the training is over, whatever ended the run. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from airflow_training.logs.diagnosis.catalogue import Catalogue
from airflow_training.logs.diagnosis.evidence import Incident
from airflow_training.logs.model import FileScan, Finding

__all__ = ["diverged"]

_NAN_LOSS = "nan-loss"
_OF_LOSS, _ASIDE = 0.9, 0.6
"""How sure it is of the training loss, and of gradients and evaluations, that the loss is lost."""


def diverged(
    health: Sequence[Finding], scans: Sequence[FileScan], catalogue: Catalogue
) -> Iterator[Incident]:
    """Yield the first value of each rank from which on a loss, or its gradients, were no number."""
    cause = catalogue.causes.get(_NAN_LOSS)
    lasting = [
        each
        for each in health
        if each.kind == "nan" and each.severity == "error" and _counts(each, scans)
    ]
    if cause is None or not lasting:
        return
    logs = {scan.origin.file: number for number, scan in enumerate(scans)}
    first: dict[tuple[str, int | None], Finding] = {}
    for each in sorted(lasting, key=_order):
        first.setdefault((each.file, each.rank), each)
    for each in first.values():
        log = logs.get(each.file)
        yield Incident(
            cause=cause,
            signature="",
            kind="cause",
            confidence=_ASIDE if _is_aside(each.metric) else _OF_LOSS,
            survivable=False,
            log=log,
            rank=each.rank,
            line=each.line,
            offset=each.offset,
            time=each.time,
            text=_evidence(each, None if log is None else scans[log]),
        )


def _counts(finding: Finding, scans: Sequence[FileScan]) -> bool:
    """Return whether a loss is lost: gradients alone may be no numbers while the loss goes on."""
    if finding.metric != "grad_norm":
        return True
    losses = [
        series.values[-1]
        for scan in scans
        for series in scan.series
        if (series.metric, series.file, series.rank) == ("loss", finding.file, finding.rank)
    ]
    return any(loss == 0 or not math.isfinite(loss) for loss in losses)


def _is_aside(metric: str) -> bool:
    return metric == "grad_norm" or metric.startswith(("eval", "val", "test", "dev"))


def _order(finding: Finding) -> tuple[float, bool, int]:
    """Return what orders findings: by step, and of one step the loss first."""
    step = math.inf if finding.step is None else finding.step
    return step, _is_aside(finding.metric), finding.line or 0


def _evidence(finding: Finding, scan: FileScan | None) -> str:
    """Return what was found, at which step, with its line where that is at hand."""
    at = "" if finding.step is None else f" (step {finding.step:g})"
    told = f"{finding.message}{at}"
    if scan is None or finding.line is None:
        return told
    shown = finding.line - scan.tail_line
    text = scan.tail[shown].strip() if 0 <= shown < len(scan.tail) else ""
    return f"{told}: {text}" if text else told
