"""Scans logs for everything a diagnosis looks at: signatures, structure and, where asked, metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count
from pathlib import Path
from threading import Lock

from airflow_training.logs.diagnosis.catalogue import Catalogue
from airflow_training.logs.diagnosis.markers import ENDS_ONLY, MARKERS
from airflow_training.logs.engine import Formats, Pattern, machine_for, scan_files, scan_with
from airflow_training.logs.engine.automaton import COMPILED_FROM_BYTES
from airflow_training.logs.engine.scanning import Machine
from airflow_training.logs.metrics import MetricFormats
from airflow_training.logs.model import FileScan, Origin
from airflow_training.logs.reading.source import Source

__all__ = ["patterns", "scan_ends", "scan_logs", "with_ranks"]

NO_RANK = frozenset({"launcher", "driver", "scheduler", "tracker", "client"})
"""Roles that start ranks and are none."""


@lru_cache(maxsize=2)
def patterns(catalogue: Catalogue) -> Sequence[Pattern]:
    """Patterns to look for; the same objects again, which keep the engines' compiled forms."""
    markers = [
        Pattern(name=name, pattern=pattern, ends_only=name in ENDS_ONLY)
        for name, pattern in MARKERS.items()
    ]
    return [
        *markers,
        *(
            Pattern(name=name, pattern=each.pattern, ignore_case=each.ignore_case)
            for name, each in catalogue.signatures.items()
        ),
    ]


def with_ranks(origins: Sequence[Origin]) -> Sequence[Origin]:
    """Return the origins of several logs with a rank each: its own, else its place among them.

    One log alone, and names that give two of them the same rank, say nothing.
    """
    origins = [replace(each, rank=None) if each.role in NO_RANK else each for each in origins]
    ranks = [each.rank for each in origins if each.role not in NO_RANK]
    if len(origins) > 1 and (None in ranks or len(set(ranks)) < len(ranks)):
        places = count()
        return [
            each if each.role in NO_RANK else replace(each, rank=next(places)) for each in origins
        ]
    return origins


def scan_logs(
    logs: Iterable[tuple[Origin, str | Path | Source]],
    catalogue: Catalogue,
    *,
    formats: Formats | None = None,
) -> Sequence[FileScan]:
    """Scan each log; raises LogUnreadable."""
    return scan_files(logs, signatures=patterns(catalogue), formats=formats, remember=True)


def scan_ends(
    logs: Iterable[tuple[Origin, Source]],
    catalogue: Catalogue,
    *,
    formats: MetricFormats | None = None,
) -> Sequence[FileScan]:
    """Scan short logs, without the libraries that large ones need; metrics where `formats` are given."""
    pairs = list(logs)
    large = sum(source.size() or 0 for _, source in pairs) >= COMPILED_FROM_BYTES
    size = COMPILED_FROM_BYTES if large else 0
    machine = _machine_for_ends(catalogue, formats, size=size)
    with _ONE_AT_A_TIME:
        return [scan_with(machine, origin, source) for origin, source in pairs]


_ONE_AT_A_TIME = Lock()
"""Instances that fail together are diagnosed in threads, and a machine has one scratch space."""


@lru_cache(maxsize=4)
def _machine_for_ends(catalogue: Catalogue, formats: MetricFormats | None, *, size: int) -> Machine:
    return machine_for(patterns(catalogue), formats, size=size)
