"""How the command line is used: words, help, exit codes, output."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from airflow_training import __version__
from tests.cli.conftest import job_file


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        pytest.param(["statu", "x"], "Did you mean 'status'", id="command"),
        pytest.param(["status", "x", "--ouput", "json"], "--output", id="option"),
        pytest.param(["frameworks", "lst"], "Did you mean 'list'", id="sub-command"),
        pytest.param(["logs", "show"], "Missing argument", id="argument"),
        pytest.param(["scale", "x", "--role", "a"], "--replicas", id="missing-option"),
        pytest.param(["scale", "x", "--role", "a", "--replicas", "0"], "--replicas", id="zero"),
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
        pytest.param(["run", "job.yaml", "--runtime", "htcondor"], "allowed: local", id="runtime"),
        pytest.param(["run", "job.yaml", "--base-dir", "nowhere"], "no folder", id="base-dir"),
        pytest.param(["run", "job.yaml", "--set", "spec.rolls=1"], "spec.rolls", id="set"),
        pytest.param(["run", "job.yaml", "--job", "x"], "allowed: digits", id="job"),
        pytest.param(["run", "job.yaml", "--single"], "cannot run as one instance", id="single"),
        pytest.param(["run", "job.yaml", "--simulate", "none.yaml"], "none.yaml", id="simulate"),
        pytest.param(["db", "prune", "--older-than", "soon"], "12h or 30d", id="age"),
        pytest.param(["frameworks", "show", "pytorsch"], "did you mean 'pytorch'", id="framework"),
        pytest.param(["submit"], "allowed: FILE", id="submit"),
        pytest.param(["submit", "job.yaml", "--server", "nowhere"], "http://", id="server"),
        pytest.param(["init", "--from", "weekly"], "weekly", id="init-from"),
        pytest.param(["init", "job.yaml"], "FOLDER: cannot be made", id="init-file"),
        pytest.param(["run", "job.yaml", "-p", "lrr=1"], "did you mean 'lr'", id="no-param"),
        pytest.param(["explain", "job.yaml", "-p", "x=1"], "allowed: lr", id="no-param-explain"),
        pytest.param(
            ["run", "job.yaml", "--simulate", "binary"], "is no UTF-8 text", id="binary-faults"
        ),
        pytest.param(["run", "job.yaml", "--simulate", "c.yaml"], "called 'c'", id="fault-of-c"),
        pytest.param(["db", "prune", "--older-than", "nand"], "12h or 30d", id="age-nan"),
        pytest.param(["db", "prune", "--older-than", "infd"], "12h or 30d", id="age-inf"),
        pytest.param(["run", "job.yaml", "--run-id", "x" * 251], "than 250", id="run-id"),
        pytest.param(["explain", "job.yaml", "--run-id", "x" * 251], "than 250", id="explain-id"),
        pytest.param(["run", "binary"], "no UTF-8", id="binary-job"),
        pytest.param(["run", "."], "directory", id="folder-job"),
        pytest.param(["run", "empty"], "holds no job", id="empty-job"),
    ],
)
def test_bad_input_is_exit_2_without_a_traceback(typed, words, told):
    params = {"lr": {"type": "number", "default": 0.1}}
    job_file(Path("job.yaml"), ("a", 1), ("b", 1), image="i:1", dag={"params": params})
    Path("binary").write_bytes(b"\x00\xff")
    Path("empty").touch()
    Path("c.yaml").write_text("[{at: 1, kill: c}]")
    done = typed(*words)
    assert done.code == 2, done.stderr
    assert told in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"comand": ["true"]}, "unknown_key", id="unknown-key"),
        pytest.param({"env": [{"name": "RANK", "value": "0"}]}, "reserved_env", id="reserved"),
        pytest.param(
            {"roles": [{"name": "master"}, {"name": "worker", "dependsOn": [{"role": "mastr"}]}]},
            "unknown_role",
            id="unknown-role",
        ),
        pytest.param(
            {
                "roles": [
                    {"name": "master", "dependsOn": [{"role": "worker"}]},
                    {"name": "worker", "dependsOn": [{"role": "master"}]},
                ]
            },
            "cycle",
            id="cycle",
        ),
        pytest.param(
            {"schedulingPolicy": {"gang": "volcano", "startup": "ordered"}},
            "gang_order_deadlock",
            id="gang-deadlock",
        ),
    ],
)
def test_a_refused_job_leaves_no_trace(typed, home, changes, code):
    """Exit 2, the mistake by its name, no run in the store, and nothing was started."""
    path = job_file(
        Path("job.yaml"), ("master", 1), ("worker", 2), framework="pytorch",
        command=["touch", str(home / "it-ran")], **changes,
    )  # fmt: skip
    found = typed("validate", str(path), "-o", "json").json["files"][0]["errors"]
    assert [each["code"] for each in found] == [code]
    done = typed("run", str(path))
    assert (done.code, done.stdout) == (2, "")
    assert found[0]["message"] in done.stderr
    assert typed("list", "-o", "json").json == {"runs": []}
    assert not (home / "it-ran").exists()


def test_a_setting_of_the_wrong_type_is_named(typed, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__MAX_RUNNING_JOBS", "many")
    done = typed("list")
    assert done.code == 2
    assert "max_running_jobs" in done.stderr


@pytest.mark.parametrize("words", [["list"], ["frameworks", "list"], ["run", "job.yaml"]])
def test_a_broken_configuration_file_is_named(typed, home, words):
    job_file(Path("job.yaml"))
    (home / "airflow.cfg").write_text("no section")
    done = typed(*words)
    assert done.code == 2
    assert "airflow.cfg" in done.stderr


def _no_database() -> str:
    Path("text").write_text("this is no database, only a text that is long enough to tell")
    return "sqlite:///text"


def _no_folder() -> str:
    Path("file").touch()
    return "sqlite:///file/store.db"


def _newer() -> str:
    with contextlib.closing(sqlite3.connect("newer.db")) as database, database:
        database.execute("CREATE TABLE training_alembic_version (version_num VARCHAR(32))")
        database.execute("INSERT INTO training_alembic_version VALUES ('9999')")
    return "sqlite:///newer.db"


@pytest.mark.parametrize(
    ("make", "code", "told"),
    [
        pytest.param(lambda: "nonsense", 2, "no SQLAlchemy URL", id="no-url"),
        pytest.param(lambda: "postgresql+psycopg2://u:secret@127.0.0.1:9/x", 1, "does not answer",
                     id="nobody-answers"),
        pytest.param(_no_database, 1, "does not answer: file is not a database", id="no-database"),
        pytest.param(_no_folder, 2, "file cannot be made", id="no-folder"),
        pytest.param(_newer, 2, "newer than this version knows", id="newer"),
    ],
)  # fmt: skip
def test_a_store_that_cannot_be_used_is_named_without_its_password(
    typed, monkeypatch, make, code, told
):
    monkeypatch.setenv("AIRFLOW__TRAINING__SQL_ALCHEMY_CONN", make())
    done = typed("list")
    assert done.code == code, done.stderr
    assert told in done.stderr
    assert "secret" not in done.stderr
    assert done.stdout == ""


def test_a_newer_store_is_not_to_be_upgraded(typed, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__SQL_ALCHEMY_CONN", _newer())
    done = typed("db", "check")
    assert done.code == 1
    assert "newer than this version knows" in done.stdout
    assert "next: pip install --upgrade airflow-training" in done.stderr


def test_a_folder_that_cannot_be_written_is_the_machines_fault(typed, monkeypatch):
    monkeypatch.chdir("/proc")
    done = typed("init", "self")
    assert done.code == 1
    assert "error: self/job.yaml: " in done.stderr


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_there_under_both_names(typed, option):
    assert "validate" in typed(option).stdout
    assert "--replicas" in typed("scale", option).stdout


def test_the_version_is_printed(typed):
    done = typed("--version")
    assert (done.code, done.stdout) == (0, f"{__version__}\n")


@pytest.mark.e2e
def test_a_server_that_does_not_answer_is_exit_1(typed):
    job_file(Path("job.yaml"))
    done = typed("submit", "job.yaml", "--server", "http://127.0.0.1:9")
    assert done.code == 1
    assert "does not answer" in done.stderr
