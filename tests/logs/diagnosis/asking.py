"""One question to the whole diagnosis, as the command line asks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_training.logs.diagnosis.catalogue import load
from airflow_training.logs.diagnosis.diagnose import diagnose
from airflow_training.logs.diagnosis.scanning import patterns, with_ranks
from airflow_training.logs.engine import scan_files
from airflow_training.logs.health import assess
from airflow_training.logs.metrics import formats
from airflow_training.logs.model import Diagnosis, InstanceFact
from airflow_training.logs.reading.memory import BytesLog
from airflow_training.logs.reading.origins import origin_of


def ask(logs: Mapping[str, str] | str, facts: Sequence[InstanceFact] = ()) -> Diagnosis:
    """Return the diagnosis of logs by name, or of one log."""
    texts = {"train.log": logs} if isinstance(logs, str) else logs
    origins = with_ranks([origin_of(name) for name in texts])
    sources = [BytesLog(name, text.encode()) for name, text in texts.items()]
    catalogue = load()
    scans = scan_files(
        zip(origins, sources, strict=True),
        signatures=patterns(catalogue),
        formats=formats(),
        processes=1,
    )
    health = assess([series for scan in scans for series in scan.series])
    return diagnose(scans, facts, health, catalogue=catalogue)
