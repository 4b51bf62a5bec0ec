"""Whether what `cloud run` sends to an Airflow would be found by those who run it, and what its DAG run tells of it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from airflow_training.cloud.service.airflow_launcher import DagRunLauncher
from airflow_training.compiler.submission import (
    SUBMISSION_KEY,
    submission_conf,
    submission_events,
)
from airflow_training.control.model import Event
from airflow_training.errors import InputError
from airflow_training.state.store import deployment_id, open_store
from tests.airflow.jobs import shell

pytestmark = pytest.mark.usefixtures("airflow_home")

BY = {"by": "ada"}


def checked(folder: Path) -> None:
    launcher = DagRunLauncher(folder, is_shared=False)
    launcher.check({}, run_id="train-1", folder=folder, by="ada")


@pytest.mark.parametrize(
    ("executor", "named"),
    [
        pytest.param("CeleryExecutor", "tasks run by CeleryExecutor", id="another-executor"),
        pytest.param(
            "LocalExecutor,KubernetesExecutor", "tasks run by KubernetesExecutor", id="one-of-two"
        ),
        pytest.param("LocalExecutor", "a triggerer is on elsewhere", id="a-triggerer"),
    ],
)
def test_a_folder_that_other_machines_do_not_see_takes_nothing(
    executor, named, monkeypatch, tmp_path
):
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
    open_store().airflow.save_triggerers(deployment_id(), ["elsewhere"])
    with pytest.raises(InputError, match=r"\[training\] cloud_folder: is not set") as refused:
        checked(tmp_path / "cloud")
    assert named in str(refused.value)
    assert not (tmp_path / "cloud").exists()


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written by the API server"):
        checked(tmp_path / "file" / "cloud")


def test_nobody_else_on_the_machine_reads_what_lies_in_a_folder_that_others_may_enter(tmp_path):
    """An administrator has made it, or mounted it there."""
    folder = tmp_path / "cloud"
    folder.mkdir(mode=0o755)
    with pytest.raises(InputError):  # the job is none; the folder comes before
        DagRunLauncher(folder, is_shared=True).check({}, run_id="t-1", folder=folder, by="ada")
    modes = {each.name: each.stat().st_mode & 0o007 for each in folder.iterdir()}
    assert modes == {"content": 0, "runs": 0, "submissions": 0}


def test_an_airflow_that_may_start_no_processes_says_so_before_anything_moves(tmp_path):
    job = shell("train", "true")
    launcher = DagRunLauncher(tmp_path / "cloud", is_shared=True)
    with pytest.raises(InputError, match=r"set \[training\] allow_local = True"):
        launcher.check(job, run_id="train-1", folder=tmp_path, by="ada")


def test_why_the_newest_dag_runs_have_no_training_is_known():
    facts = open_store().airflow
    for number in range(120):
        facts.save_refusal("one", dag_id="d", run_id=f"r{number}", why=f"too large: {number}")
    assert facts.refusal_of("one", dag_id="d", run_id="r119") == "too large: 119"
    assert facts.refusal_of("one", dag_id="d", run_id="r20") == "too large: 20"
    assert facts.refusal_of("one", dag_id="d", run_id="r19") == ""
    assert facts.refusal_of("two", dag_id="d", run_id="r119") == ""


def test_the_story_of_a_submission_passes_through_the_dag_run():
    events = [
        Event(at=1.5, reason="Submitted", message="train.py", data={"by": "ada"}),
        Event(at=2.0, reason="EnvironmentReady", message="here", data={}),
    ]
    assert submission_events(submission_conf(events), by="ada") == events
    assert submission_events(submission_conf(events), by="eve") == []


@pytest.mark.parametrize(
    "conf",
    [
        None,
        {},
        {SUBMISSION_KEY: "Submitted"},
        {SUBMISSION_KEY: [{"reason": "Submitted"}]},
        {SUBMISSION_KEY: [{"at": 1, "reason": "JobSucceeded", "message": "", "data": {}}]},
        {SUBMISSION_KEY: [{"at": "1", "reason": "Submitted", "message": "", "data": {}}]},
        {SUBMISSION_KEY: [{"at": 1, "reason": "Submitted", "message": 3, "data": {}}]},
        {SUBMISSION_KEY: [{"at": 1, "reason": "Submitted", "message": "", "data": {}}]},
        {SUBMISSION_KEY: [{"at": math.inf, "reason": "Submitted", "message": "", "data": BY}]},
        {SUBMISSION_KEY: [{"at": 1e15, "reason": "Submitted", "message": "", "data": BY}]},
        {SUBMISSION_KEY: [{"at": True, "reason": "Submitted", "message": "", "data": BY}]},
    ],
)
def test_what_somebody_else_writes_there_is_no_story(conf):
    assert submission_events(conf, by="ada") == []
