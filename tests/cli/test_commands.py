"""What a user sees who types: answers as tables and JSON, mistakes with a way out, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import job_file

PROBLEM_KEYS = ["code", "field", "value", "message", "allowed", "hint", "line"]
EXPLAIN_KEYS = [
    "job", "framework", "waves", "gang", "roles", "successPolicy", "instances", "services",
    "defaults", "warnings",
]  # fmt: skip


# usage -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "hint"),
    [
        pytest.param(["statu", "x"], "Did you mean 'status'", id="command"),
        pytest.param(["status", "x", "--ouput", "json"], "--output", id="option"),
        pytest.param(["frameworks", "lst"], "Did you mean 'list'", id="sub-command"),
        pytest.param(["logs", "show"], "Missing argument", id="argument"),
        pytest.param(["scale", "x", "--role", "a"], "--replicas", id="missing-option"),
    ],
)
def test_a_slip_of_the_fingers_says_what_was_meant(typed, words, hint):
    done = typed(*words)
    assert done.code == 2
    assert hint in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(["status", "nobody"], "nobody", id="unknown-run"),
        pytest.param(["list", "--state", "Runing"], "allowed: Pending", id="unknown-state"),
        pytest.param(["run"], "allowed: FILE", id="no-job"),
        pytest.param(["run", "missing.yaml"], "missing.yaml", id="no-file"),
        pytest.param(["run", "a.yaml", "--from-run", "b"], "only one", id="two-jobs"),
        pytest.param(["run", "--template", "weekly"], "no job template", id="no-template"),
        pytest.param(["run", "job.yaml", "--param", "lr"], "NAME=VALUE", id="param"),
        pytest.param(["run", "job.yaml", "--runtime", "slurm"], "allowed: local", id="runtime"),
        pytest.param(["run", "job.yaml", "--set", "spec.rolls=1"], "spec.rolls", id="set"),
        pytest.param(["run", "job.yaml", "--job", "x"], "allowed: digits", id="job"),
        pytest.param(["run", "job.yaml", "--single"], "cannot run as one instance", id="single"),
        pytest.param(["run", "job.yaml", "--simulate", "none.yaml"], "none.yaml", id="simulate"),
        pytest.param(["db", "prune", "--older-than", "soon"], "12h or 30d", id="age"),
        pytest.param(["frameworks", "show", "pytorsch"], "did you mean 'pytorch'", id="framework"),
        pytest.param(["submit"], "allowed: FILE", id="submit"),
        pytest.param(["submit", "job.yaml", "--server", "nowhere"], "http://", id="server"),
        pytest.param(["init", "--from", "weekly"], "weekly", id="init-from"),
    ],
)
def test_bad_input_is_exit_2_without_a_traceback(typed, words, told):
    job_file(Path("job.yaml"), ("a", 1), ("b", 1), image="i:1")
    done = typed(*words)
    assert done.code == 2, done.stderr
    assert told in done.stderr
    assert done.stdout == ""


def test_a_setting_of_the_wrong_type_is_named(typed, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__MAX_RUNNING_JOBS", "many")
    done = typed("list")
    assert done.code == 2
    assert "max_running_jobs" in done.stderr


def test_a_server_that_does_not_answer_is_exit_1(typed):
    job_file(Path("job.yaml"))
    done = typed("submit", "job.yaml", "--server", "http://127.0.0.1:9")
    assert done.code == 1
    assert "does not answer" in done.stderr


# validate, explain, schema -----------------------------------------------------------------------
def test_validate_reports_every_mistake_of_every_file(typed):
    good = job_file(Path("good.yaml"))
    bad = job_file(Path("bad.yaml"), ("master", 1), ("worker", -1), framwork="x")
    done = typed("validate", str(good), str(bad), "-o", "json")
    assert done.code == 2
    first, second = done.json["files"]
    assert first == {"path": "good.yaml", "valid": True, "errors": [], "warnings": []}
    assert second["valid"] is False
    assert {each["code"] for each in second["errors"]} == {"unknown_key", "out_of_range"}
    assert all(list(each) == PROBLEM_KEYS for each in second["errors"])
    told = typed("validate", str(good), str(bad))
    assert told.code == 2
    assert "good.yaml: valid" in told.stdout
    assert "framwork" in told.stdout
    assert typed("validate", str(good)).code == 0


def test_explain_says_what_would_be_created(typed):
    path = job_file(
        Path("job.yaml"), ("master", 1), ("worker", 2), framework="pytorch", image="i:1"
    )
    answer = typed("explain", str(path), "-o", "json").json
    assert list(answer) == EXPLAIN_KEYS
    assert answer["waves"] == [["master"], ["worker"]]
    names = [each["name"] for each in answer["instances"]]
    assert names == ["digits-master-0", "digits-worker-0", "digits-worker-1"]
    assert answer["instances"][1]["env"]["RANK"] == "1"
    assert answer["instances"][0]["hostname"].endswith(".svc")
    local = typed("explain", str(path), "--runtime", "local", "--run-id", "x", "-o", "json").json
    assert local["instances"][0]["hostname"] == "127.0.0.1"
    assert local["instances"][0]["name"] != "digits-master-0"
    table = typed("explain", str(path))
    assert table.code == 0
    assert "digits-worker-1" in table.stdout
    assert "RANK=2" in table.stdout


def test_schema_is_a_json_schema(typed):
    schema = typed("schema").json
    assert "$schema" in schema
    assert "properties" in schema


# templates ---------------------------------------------------------------------------------------
def test_templates_are_found_by_name(typed, home):
    folder = home / "job_templates"
    folder.mkdir()
    job_file(folder / "weekly.yaml", name="weekly")
    assert "did you mean 'weekly'" in typed("init", "--from", "wekly").stderr
    assert typed("init", "--from", "weekly").code == 0
    assert json.loads(Path("job.yaml").read_text())["metadata"]["name"] == "weekly"
    again = typed("init", "--from", "weekly")
    assert again.code == 2
    assert "--force" in again.stderr


# db, frameworks, list ----------------------------------------------------------------------------
def test_the_store_is_made_checked_and_pruned(typed):
    before = typed("db", "check", "-o", "json")
    assert before.code == 1
    assert before.json["current"] is False
    assert typed("db", "upgrade", "-o", "json").json["current"] is True
    assert typed("db", "check").code == 0
    assert typed("db", "prune", "--older-than", "1d", "-o", "json").json == {"deleted": 0}


def test_frameworks_are_listed_shown_and_checked(typed):
    names = [each["name"] for each in typed("frameworks", "list", "-o", "json").json["frameworks"]]
    assert {"custom", "pytorch", "mpi", "tensorflow"} <= set(names)
    shown = typed("frameworks", "show", "pytorch")
    assert "kind: Framework" in shown.stdout
    Path("mine.yaml").write_text(shown.stdout)
    assert typed("frameworks", "check", "mine.yaml").code == 0
    Path("mine.yaml").write_text(shown.stdout.replace("description", "descripton", 1))
    broken = typed("frameworks", "check", "mine.yaml", "-o", "json")
    assert broken.code == 2
    assert broken.json["errors"][0]["code"] == "unknown_key"


def test_an_empty_store_lists_nothing_and_says_how_to_begin(typed):
    done = typed("list")
    assert done.code == 0
    assert "next: airflow-training init" in done.stderr
    assert typed("list", "-o", "json").json == {"runs": []}


def test_no_command_imports_airflow(typed):
    """It would cost seconds; the arrows between rooms forbid it."""
    import subprocess
    import sys

    code = (
        "import sys; sys.argv = ['airflow-training', 'list'];"
        "from airflow_training.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "import airflow_training.supervise.loop, airflow_training.supervise.admission\n"
        "import airflow_training.runtimes.local\n"
        "heavy = {'airflow', 'alembic', 'httpx', 'kubernetes', 'fsspec', 'jsonschema', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    typed("db", "upgrade")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
