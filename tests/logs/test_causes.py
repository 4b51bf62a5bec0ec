"""Every cause file is sound, and real failures and healthy runs are told from each other.

A fixture: `causes/<id>/<case>.log` (or a folder with a log for each rank) and `<case>.yaml`.
"""

from __future__ import annotations

import pytest

from airflow_training.logs.diagnosis.catalogue import (
    CAUSES_FOLDER,
    Catalogue,
    faults_of,
    load,
    read_cause,
)
from tests.logs.fixtures import HERE, Case, cases

FILES = sorted(CAUSES_FOLDER.glob("*.yaml"))
FAILURES = list(cases(HERE / "causes"))
HEALTHY = list(cases(HERE / "healthy"))


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_cause_file_is_sound(path):
    assert faults_of(read_cause(path)) == []


@pytest.mark.parametrize("case", FAILURES, ids=lambda case: case.name)
def test_a_failure_is_explained(case: Case, catalogue: Catalogue):
    found = case.diagnose(catalogue)
    assert case.files
    assert not found.healthy
    assert case.denied_by(found.causes[0]) == {}, [
        (c.id, c.confidence, c.evidence) for c in found.causes
    ]


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.name)
def test_a_healthy_run_is_not_called_failed(case: Case, catalogue: Catalogue):
    found = case.diagnose(catalogue)
    assert case.files
    assert found.healthy, [(c.id, c.confidence, c.evidence) for c in found.causes]
