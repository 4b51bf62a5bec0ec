"""Logs of real failures beside this file, and what is to be found in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from airflow_training.logs.diagnosis.catalogue import Catalogue
from airflow_training.logs.diagnosis.diagnose import diagnose
from airflow_training.logs.diagnosis.facts import facts_of
from airflow_training.logs.diagnosis.scanning import scan_logs, with_ranks
from airflow_training.logs.health import assess
from airflow_training.logs.metrics import formats
from airflow_training.logs.model import Diagnosis, FoundCause
from airflow_training.logs.reading.origins import origin_of

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """One log, or one folder with a log for each rank."""

    name: str
    files: Sequence[Path]
    facts: Mapping[str, Any] = field(default_factory=dict)
    expect: Mapping[str, Any] = field(default_factory=dict)

    def diagnose(self, catalogue: Catalogue) -> Diagnosis:
        names = [str(path) for path in self.files]
        origins = with_ranks([origin_of(name) for name in names])
        scans = scan_logs(zip(origins, names, strict=True), catalogue, formats=formats())
        health = assess([series for scan in scans for series in scan.series])
        return diagnose(scans, facts_of(self.facts), health, catalogue=catalogue)

    def denied_by(self, root: FoundCause) -> dict[str, Any]:
        """Return what a root cause tells otherwise than the case expects; of a list any is right."""
        told = {
            "id": root.id,
            "line": root.line,
            "rank": root.rank,
            "file": (root.file or "").rpartition("/")[2],
        }
        return {
            key: told[key]
            for key, value in self.expect.items()
            if told[key] not in (value if isinstance(value, list) else [value])
        }


def cases(folder: Path) -> Iterator[Case]:
    """Yield the cases of a folder (`<id>/<case>.yaml` beside `<case>.log` or `<case>/*.log`)."""
    for path in sorted(folder.rglob("*.yaml")):
        log = path.with_suffix(".log")
        files = [log] if log.is_file() else sorted(path.with_suffix("").glob("*.log"))
        told = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        yield Case(
            name=path.relative_to(folder).with_suffix("").as_posix(),
            files=files,
            facts=told.get("facts") or {},
            expect=told.get("expect") or {},
        )
