"""Scans logs for everything a diagnosis looks at: signatures, structure and, where asked, metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from airflow_training.logs.diagnosis.catalogue import Catalogue
from airflow_training.logs.diagnosis.markers import MARKERS
from airflow_training.logs.engine import Formats, Pattern, scan_files
from airflow_training.logs.model import FileScan, Origin

__all__ = ["origins", "patterns", "scan_logs"]

_RANK = re.compile(r"(?:rank|worker|node|[_.-])[_.-]?(\d{1,6})$", re.IGNORECASE)
_ENDINGS = re.compile(r"(?:\.(?:log|txt|out|err|gz|zst|stdout|stderr))+$", re.IGNORECASE)


def patterns(catalogue: Catalogue) -> Sequence[Pattern]:
    """Return what to look for."""
    markers = [Pattern(name=name, pattern=pattern) for name, pattern in MARKERS.items()]
    return [
        *markers,
        *(
            Pattern(name=name, pattern=each.pattern, ignore_case=each.ignore_case)
            for name, each in catalogue.signatures.items()
        ),
    ]


def origins(files: Sequence[str]) -> Sequence[Origin]:
    """Return the origin of each log: its rank is in its name, else its place among the others.

    One log alone, or names that give two of them the same rank, say nothing.
    """
    ranks = [_rank_in(name) for name in files]
    if len(files) > 1 and (None in ranks or len(set(ranks)) < len(ranks)):
        ranks = list(range(len(files)))
    return [Origin(file=name, rank=rank) for name, rank in zip(files, ranks, strict=True)]


def scan_logs(
    logs: Iterable[tuple[Origin, str | Path]],
    catalogue: Catalogue,
    *,
    formats: Formats | None = None,
) -> Sequence[FileScan]:
    """Return what is in each log; raises OSError for one that cannot be read."""
    return scan_files(logs, signatures=patterns(catalogue), formats=formats)


def _rank_in(name: str) -> int | None:
    match = _RANK.search(_ENDINGS.sub("", name))
    return int(match[1]) if match is not None else None
