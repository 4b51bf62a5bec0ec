"""A run id that is used again after the store has forgotten the run: what its folder means then."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from airflow_training.agent.files import write_json
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import InputError
from airflow_training.runtimes.folders.paths import RunFolder
from airflow_training.runtimes.local import previous_run
from airflow_training.runtimes.local.leftovers import Stray
from airflow_training.runtimes.local.previous_run import leftover_problem, quarantine_previous

RUN = RunRef(uid="u", job="digits", namespace="default", controller="here", submitted_at=200.0)
NEW = dataclasses.replace(RUN, submitted_at=None)


def folder_of(
    tmp_path: Path, *, submitted_at: float = 100.0, controller: str = "here"
) -> RunFolder:
    folder = RunFolder(tmp_path, RUN.uid)
    folder.make()
    write_json(folder.about, {"submitted_at": submitted_at, "controller": controller})
    return folder


def test_what_an_earlier_run_left_makes_way(tmp_path: Path):
    folder = folder_of(tmp_path)
    assert leftover_problem(folder, NEW) is None
    quarantine_previous(folder, RUN)
    assert not folder.path.exists()
    assert (tmp_path / "u.100.000" / "run.json").exists()


def test_the_folder_of_the_run_itself_stays(tmp_path: Path):
    folder = folder_of(tmp_path, submitted_at=200.0)
    quarantine_previous(folder, RUN)
    assert folder.about.exists()


def test_what_another_deployment_made_is_left_to_it(tmp_path: Path):
    folder = folder_of(tmp_path, controller="elsewhere")
    problem = leftover_problem(folder, NEW)
    assert problem is not None
    assert (problem.code, problem.field) == ("conflict", "run_id")
    assert "belongs to the deployment elsewhere" in problem.message
    with pytest.raises(InputError, match="elsewhere"):
        quarantine_previous(folder, RUN)
    assert folder.about.exists()


def test_what_lives_without_folder_and_store_keeps_its_run_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    strays = [Stray(pid=4711, start_time=1, is_agent=False)]
    monkeypatch.setattr(previous_run, "find_strays", lambda _: strays)
    folder = RunFolder(tmp_path, RUN.uid)
    problem = leftover_problem(folder, NEW)
    assert problem is not None
    assert "pid 4711" in problem.message
    assert leftover_problem(folder, RUN) is None, "a run that the store knows ends its own strays"
