"""Manifests that other projects have published, from a folder of yours: none is ours to copy.

MANIFESTS is a folder of checkouts, one for each repository:
`MANIFESTS=~/manifests python -m pytest -s -m soak tests/interchange/test_published_manifests.py`
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_training.admission.check import check_text
from airflow_training.documents.paths import split_path
from airflow_training.errors import InputError
from airflow_training.interchange.importing import FORMATS, ImportedDocument, import_files
from tests.interchange.test_every_field import at, leaves

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

FOLDER = os.environ.get("MANIFESTS", "")
ENDINGS = (".yaml", ".yml", ".json", ".sh", ".slurm", ".sbatch", ".sub")


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield text and path of everything that may be a job."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in ENDINGS and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            if path.suffix in (".yaml", ".yml", ".json") or "#SBATCH" in text:
                yield text, str(path)


def read(folder: Path) -> Iterator[tuple[str, ImportedDocument]]:
    """Yield every document of a repository: what one names may stand in another file."""
    files = list(texts(folder))
    for (_, path), documents in zip(files, import_files(files), strict=True):
        for each in documents:
            yield path, each


def not_accounted_for(imported: ImportedDocument) -> list[str]:
    """Return what is wrong with the report: leaves without a fate, and what was kept and is not there."""
    written = [split_path(each.field) or () for each in imported.report.fields if not each.default]
    wrong = [f"{loc} has no fate" for loc in leaves(imported.accounts.data) - set(written)]
    ours: Any = yaml.safe_load(imported.text) if imported.text else None
    for each in imported.report.of("kept"):
        place = split_path(each.to) or ()
        there = ours is None or each.default or holds(ours, place, each.value)
        wrong += [] if there else [f"{each.field} is not kept at {each.to}"]
    return wrong


def holds(data: Any, place: tuple[str | int, ...], value: Any) -> bool:
    """Return whether a value stands at a place of our document."""
    try:
        return bool(at(data, place) == value)
    except (KeyError, IndexError, TypeError):
        return False


def invalid(imported: ImportedDocument) -> list[str]:
    """Return mistakes of our document that are not told as mistakes of a field of the source."""
    return [
        str(problem)
        for checked in check_text(imported.text)
        for problem in checked.problems
        if imported.at_source(problem).line is None
    ]


@pytest.mark.skipif(not FOLDER, reason="MANIFESTS names a folder of manifests")
def test_every_manifest_is_read_and_accounted_for():
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    known = {kind for _, kind in FORMATS}
    for repository in sorted(each for each in Path(FOLDER).iterdir() if each.is_dir()):
        try:
            documents = list(read(repository))
        except InputError as error:
            wrong.append(f"{repository}: {error}")
            continue
        for path, each in documents:
            if not each.is_job and not each.problems:
                counts["of no job"] += 1
                continue
            if each.problems:
                counts["told as broken, with lines"] += 1
                print(f"{path}: {each.problems[0]}")
                wrong += [f"{path}: {p}" for p in each.problems if p.line is None]
                continue
            counts["jobs"] += 1
            counts[each.report.kind if each.report.kind in known else "scripts"] += 1
            counts["with refused fields"] += bool(each.report.of("refused"))
            counts["as documents of ours"] += bool(each.text)
            counts["fields"] += len(each.report.fields)
            wrong += [f"{path}: {what}" for what in [*not_accounted_for(each), *invalid(each)]]
            mistakes = [p for c in check_text(each.text) for p in c.problems] if each.text else []
            counts["valid"] += bool(each.text) and not mistakes
            for problem in mistakes:
                print(f"{path}: ours: {problem}")
    print(dict(counts))
    assert wrong == []
