"""What the ends of a run's logs say about its failure, as `logs diagnose` says it of whole logs. Blocks."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from airflow_training.control.causes import DiagnosedCause
from airflow_training.documents.resolved_blocks import ResolvedLogPattern
from airflow_training.logs.model import InstanceFact
from airflow_training.runtimes.port import InstanceRef
from airflow_training.supervise.followers.log_ends import LogEnd

if TYPE_CHECKING:
    from airflow_training.logs.model import FileScan, Finding, FoundCause

__all__ = ["LOST_LOSS", "EndOfLog", "explain"]

LOST_LOSS = "nan-loss"
_NO_NUMBER = re.compile(rb"(?i)\b(?:nan|inf(?:inity)?)\b")

EndOfLog = tuple[InstanceRef, "int | None", LogEnd]
"""Whose, of which rank, and its end."""


def explain(
    logs: Sequence[EndOfLog],
    facts: Sequence[InstanceFact],
    patterns: Sequence[ResolvedLogPattern] = (),
) -> DiagnosedCause | None:
    """Return the root cause that the ends of logs tell, None where they tell none.

    `patterns`: formats of the job's own lines. Metrics are read only where one may be no number.
    """
    from airflow_training.admission.log_patterns import formats_of
    from airflow_training.logs.diagnosis.catalogue import load
    from airflow_training.logs.diagnosis.diagnose import diagnose
    from airflow_training.logs.diagnosis.scanning import scan_ends
    from airflow_training.logs.metrics import formats
    from airflow_training.logs.model import Origin
    from airflow_training.logs.reading.memory import BytesLog
    from airflow_training.settings import load_settings

    catalogue = load(load_settings().causes_folder)
    pairs = [
        (
            Origin(file=_name(ref), role=ref.role, index=ref.index, attempt=ref.attempt, rank=rank),
            BytesLog(_name(ref), end.data),
        )
        for ref, rank, end in logs
    ]
    wanted = None
    if any(_NO_NUMBER.search(end.data) for _, _, end in logs):
        wanted = formats(formats_of(patterns))
    scans = scan_ends(pairs, catalogue, formats=wanted)
    cut = {_name(ref) for ref, _, end in logs if end.offset != 0}
    health = [] if wanted is None else _lost_losses(scans, cut=cut)
    found = diagnose(scans, facts, health, catalogue=catalogue)
    if not found.causes or found.causes[0].id == "unknown":
        return None
    return _with_instance(found.causes[0], logs)


def _lost_losses(scans: Sequence[FileScan], *, cut: Collection[str]) -> list[Finding]:
    """Return which metrics became no numbers; `cut`: files whose beginning is not there."""
    from airflow_training.logs.health.losses import not_finite
    from airflow_training.logs.health.ranks import by_rank

    series = [each for scan in scans for each in scan.series]
    first = {(each.file, each.rank, each.metric): int(each.lines[0]) for each in series}
    return [
        dataclasses.replace(each, message=each.message.replace("from here on", "by here"))
        if each.file in cut and first.get((each.file, each.rank, each.metric)) == each.line
        else each
        for each in not_finite(by_rank(series))
    ]


def _with_instance(cause: FoundCause, logs: Sequence[EndOfLog]) -> DiagnosedCause:
    """Return a cause with the instance whose log proves it, and its place in the whole log.

    Of a log that was not read from its beginning the number of the line is not known.
    """
    found = DiagnosedCause(**dataclasses.asdict(cause))
    for ref, _, end in logs:
        if cause.file == _name(ref):
            found = dataclasses.replace(found, role=ref.role, index=ref.index, attempt=ref.attempt)
            if end.offset != 0:
                offset = None
                if cause.offset is not None and end.offset is not None:
                    offset = cause.offset + end.offset
                found = dataclasses.replace(found, line=None, offset=offset)
    return found


def _name(ref: InstanceRef) -> str:
    return str(ref.key)
