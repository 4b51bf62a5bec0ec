"""A loss that became NaN or infinite and stayed so: the training is over, and its process may go on. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from airflow_training.logs.diagnosis.catalogue import Catalogue
from airflow_training.logs.diagnosis.evidence import Incident
from airflow_training.logs.health.losses import GRADIENTS, LOSS, is_training_loss
from airflow_training.logs.model import FileScan, Finding, Series
from airflow_training.peer_causes import OVER_PEERS

__all__ = ["as_hints_beside_the_cause", "diverged"]

_NAN_LOSS = "nan-loss"
_OF_LOSS, _ASIDE = 0.9, 0.6
"""How sure it is of the training loss, and of gradients and evaluations, that the loss is lost."""
_SURE = 0.6
"""Confidence from which on an error tells how the process ended."""
_ENDS = frozenset({"resource", "infrastructure", "preemption"})
"""Categories whose errors end a process whatever it computes; of others only an exception that nobody caught did."""
_FOLLOWS = frozenset(
    {
        "cublas-cudnn-error",
        "cuda-illegal-memory-access",
        "data-corrupt",
        "device-side-assert",
        "hang",
        "python-exception",
        "segfault",
        "unknown",
        "user-interrupt",
    }
)
"""Causes that a lost loss may lead to: what is computed with it fails, and somebody who sees it stops the run."""
_SENTENCE = re.compile(r"^\s*(?:[\w.]*(?:Error|Exception)\b|raise\b|assert\b)")
"""What an exception says of a loss is no value of it: a signature knows whether it ended the run."""


def diverged(
    health: Sequence[Finding], scans: Sequence[FileScan], catalogue: Catalogue
) -> Iterator[Incident]:
    """Yield the first value of each rank from which on a loss, or its gradients, were no number."""
    cause = catalogue.causes.get(_NAN_LOSS)
    logs = {scan.origin.file: number for number, scan in enumerate(scans)}
    lasting = [
        each
        for each in health
        if each.kind == "nan"
        and each.severity == "error"
        and _counts(each, scans)
        and not _SENTENCE.match(_text(each, scans, logs))
    ]
    if cause is None or not lasting:
        return
    first: dict[tuple[str, int | None], Finding] = {}
    for each in sorted(lasting, key=_order):
        first.setdefault((each.file, each.rank), each)
    for each in first.values():
        log = logs.get(each.file)
        yield Incident(
            cause=cause,
            signature="",
            kind="cause",
            confidence=_OF_LOSS if is_training_loss(each.metric) else _ASIDE,
            survivable=False,
            log=log,
            rank=each.rank,
            line=each.line,
            offset=each.offset,
            time=each.time,
            text=_evidence(each, _text(each, scans, logs).strip()),
        )


def as_hints_beside_the_cause(
    lost: Sequence[Incident], events: Sequence[Incident]
) -> Sequence[Incident]:
    """Return the lost losses, as no more than hints where something else is known to have ended the run."""
    stopped = any(each.cause.id == _NAN_LOSS and _reports_the_end(each) for each in events)
    if stopped or not any(_ended_it(each, events) for each in events):
        return lost
    return [replace(each, kind="hint") for each in lost]


def _ended_it(event: Incident, events: Sequence[Incident]) -> bool:
    """Return whether an event is an error that ended the process and that no lost loss leads to."""
    if event.cause.id in _FOLLOWS or event.cause.id == _NAN_LOSS or not _reports_the_end(event):
        return False
    if event.cause.id in OVER_PEERS:
        # they also notice a rank that raised what follows from the loss
        return not any(each.raised and each.cause.id not in OVER_PEERS for each in events)
    return event.raised or event.cause.category in _ENDS


def _reports_the_end(event: Incident) -> bool:
    sure = event.confidence >= _SURE and not (event.guess or event.survived)
    return event.kind == "cause" and sure and (event.raised or not event.survivable)


def _counts(finding: Finding, scans: Sequence[FileScan]) -> bool:
    """Return whether a loss is lost: its parts and the gradients may be no numbers while the loss goes on."""
    series = [each for scan in scans for each in scan.series]
    own = [each for each in series if _place(each) == _place(finding)]
    never = any(each.metric == finding.metric and not _ever_finite(each) for each in own)
    losses = [each for each in own if each.metric == LOSS]
    if finding.metric == LOSS:
        return not (never and any(_goes_on(each, finding) for each in series))
    if losses:
        late = never and any(_ever_finite(each) for each in losses)
        return not late and any(_is_lost(each) for each in losses)
    parts = [each for each in own if is_training_loss(each.metric)]
    return finding.metric != GRADIENTS and all(_is_lost(each) for each in parts)


def _place(of: Finding | Series) -> tuple[str, int | None]:
    return of.file, of.rank


def _goes_on(series: Series, finding: Finding) -> bool:
    """Return whether the loss of another rank than that of a finding is a number to the end."""
    other = (series.role, series.index, series.rank) != (finding.role, finding.index, finding.rank)
    return other and series.metric == LOSS and bool(np.isfinite(series.values[-1:]).any())


def _ever_finite(series: Series) -> bool:
    return bool(np.isfinite(series.values).any())


def _is_lost(series: Series) -> bool:
    """Return whether a loss ends as no number, or as the 0 that some loops print instead."""
    last = series.values[-1:]
    return bool((~np.isfinite(last) | (last == 0)).any())


def _order(finding: Finding) -> tuple[float, bool, int]:
    """Return what orders findings: by step, and of one step the loss first."""
    step = math.inf if finding.step is None else finding.step
    return step, not is_training_loss(finding.metric), finding.line or 0


def _text(finding: Finding, scans: Sequence[FileScan], logs: Mapping[str, int]) -> str:
    """Return the line of a finding where it is at hand; `logs`: the number of each log by its name."""
    log = logs.get(finding.file)
    if log is None or finding.line is None:
        return ""
    return scans[log].tail_text(finding.line)


def _evidence(finding: Finding, text: str) -> str:
    """Return what was found, at which step, with its line."""
    return f"{finding.message_at_step}: {text}" if text else finding.message_at_step
