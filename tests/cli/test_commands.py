"""What a user sees who types: answers as tables and JSON, mistakes with a way out, exit codes."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from datetime import datetime, timezone
from pathlib import Path

import pytest

from airflow_training import __version__
from tests.cli.conftest import job_file

PROBLEM_KEYS = ["code", "field", "value", "message", "allowed", "hint", "line"]
EXPLAIN_KEYS = [
    "job", "framework", "schedule", "expectedStart", "waves", "gang", "roles", "successPolicy", "instances",
    "services", "defaults", "warnings",
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
        pytest.param(["run", "job.yaml", "--simulate", "binary"], "is no YAML", id="binary-faults"),
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
    assert "bad.yaml: 2 mistakes" in told.stdout
    assert typed("validate", str(good)).code == 0
    words = typed("validate", str(good), "--set", "spec.command=python train.py")
    assert 'hint: write it as a list: ["python", "train.py"]' in words.stdout
    one = job_file(Path("one.yaml"), framwork="x")
    assert "one.yaml: 1 mistake\n" in typed("validate", str(one)).stdout


def test_a_script_that_is_not_beside_its_job_is_told(typed):
    path = job_file(Path("job.yaml"), command=["python", "train.py"], runtime={"name": "local"})
    told = typed("validate", str(path))
    assert told.code == 0
    assert f"spec.command: there is no file train.py in {Path.cwd()}" in told.stderr
    Path("train.py").touch()
    assert "train.py" not in typed("validate", str(path)).stderr
    Path("train.py").unlink()
    elsewhere = typed("validate", str(path), "--set", "spec.runtime.name=kubernetes")
    assert "train.py" not in elsewhere.stderr, "only an image knows what it holds"


def test_every_parameter_that_is_mistyped_is_reported(typed):
    answer = typed("validate", "job.yaml", "-p", "lr", "-p", "a=[", "-p", "=1")
    assert answer.code == 2
    assert answer.stderr.count("--param: ") == 3


@pytest.mark.parametrize("command", ["validate", "explain", "run", "plan job", "submit"])
def test_every_mistake_of_parameters_is_told_at_once(typed, command):
    """What is none, what the job does not know, and what a parameter does not take."""
    number = {"type": "number", "minimum": 0, "default": 0.1}
    params = {"lr": number, "momentum": number, "beta": number}
    env = [{"name": "LR", "value": "{{ params.lr }}"}]
    job_file(Path("job.yaml"), image="i:1", dag={"params": params}, env=env)
    words = ["-p", "lr=-1", "-p", "momentum=x", "-p", "rl=1", "-p", "bare", "-p", "beta=["]
    done = typed(*command.split(), "job.yaml", *words)
    assert done.code == 2
    told = done.stdout + done.stderr
    for each in (
        "params.lr: must be at least 0",
        "params.momentum: must be of type number, not text",
        "the job has no parameter 'rl'",
        "'bare' is no NAME=VALUE",
        "beta: '[' is no YAML value",
    ):
        assert each in told


@pytest.mark.parametrize("written", [[], ["-o", "json"]], ids=["table", "json"])
def test_of_several_files_every_mistake_names_its_file(typed, written):
    job_file(Path("good.yaml"), dag={"params": {"lr": {"default": 0.1}}})
    job_file(Path("bad.yaml"), env=[{"name": "TRAINING_RANK", "value": "0"}])
    done = typed("validate", "good.yaml", "bad.yaml", "-p", "rl=1", "-p", "bare", *written)
    assert done.code == 2
    if not written:
        assert "error: bad.yaml: spec.env[0].name: " in done.stdout
        assert "error: good.yaml, bad.yaml: --param: the job has no parameter 'rl'" in done.stderr
        assert "error: good.yaml, bad.yaml: --param: 'bare' is no NAME=VALUE" in done.stderr
        assert "good.yaml: 2 mistakes\n" in done.stdout
        assert "bad.yaml: 3 mistakes\n" in done.stdout
        return
    good, bad = done.json["files"]
    assert (good["path"], good["valid"], bad["path"], bad["valid"]) == (
        "good.yaml",
        False,
        "bad.yaml",
        False,
    )
    fields = [each["field"] for each in good["errors"]]
    assert fields == ["--param", "--param"]
    assert [each["field"] for each in bad["errors"]] == [*fields, "spec.env[0].name"]


def test_names_are_checked_where_the_job_goes(typed):
    side = {"containers": [{"name": "Side_1", "image": "i:1"}]}
    path = job_file(Path("job.yaml"), image="i:1")
    words = ["--set", f"spec.roles.worker.template={{spec: {json.dumps(side)}}}"]
    here = typed("validate", str(path), *words)
    assert here.code == 0
    assert "template.spec.containers[0].name: is refused by Kubernetes" in here.stderr
    explained = typed("explain", str(path), *words)
    assert explained.code == 0
    assert "template.spec.containers[0].name: is refused by Kubernetes" in explained.stderr
    for command in ("validate", "explain"):
        there = typed(command, str(path), *words, "--runtime", "kubernetes")
        assert there.code == 2
        assert "containers[0].name: is refused by Kubernetes" in there.stdout + there.stderr


def test_a_parameter_without_a_legible_value_is_not_said_to_be_missing(typed):
    job_file(Path("job.yaml"), dag={"params": {"lr": {"type": "number"}}})
    done = typed("run", "job.yaml", "-p", "lr=[")
    assert done.code == 2
    assert done.stderr.count("error:") == 1


def test_two_jobs_of_one_name_are_refused(typed):
    one = job_file(Path("one.yaml")).read_text()
    other = job_file(Path("other.yaml"), name="other").read_text()
    Path("jobs.yaml").write_text(f"{one}\n---\n{other}\n---\n{one}\n")
    (answer,) = typed("validate", "jobs.yaml", "-o", "json").json["files"]
    assert [(each["code"], each["field"], each["line"]) for each in answer["errors"]] == [
        ("duplicate", "metadata.name", 5)
    ]


def test_the_next_command_can_be_pasted(typed):
    assert typed("init", "my job").stderr == "next: airflow-training run 'my job/job.yaml'\n"
    assert (
        "next: airflow-training run 'my job/job.yaml'\n"
        in typed("explain", "my job/job.yaml").stderr
    )
    asked = typed("explain", "my job/job.yaml", "--runtime", "local").stderr
    assert "next: airflow-training run 'my job/job.yaml' --runtime local\n" in asked
    job_file(Path("job.yaml"), dag={"params": {"lr": {"type": "number"}}})
    words = ["job.yaml", "-p", "lr=0.5", "--set", "spec.suspend=true"]
    for command in (["validate"], ["explain", "--job", "digits", "--runtime", "local"]):
        told = typed(*command, *words).stderr
        assert f"next: airflow-training run {' '.join([*words, *command[1:]])}\n" in told


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


@pytest.mark.parametrize(
    ("named", "words", "told"),
    [
        pytest.param(None, [], ["kubernetes", "airflow-training"], id="nobody"),
        pytest.param("local", [], ["kubernetes", "airflow-training"], id="file-says-another"),
        pytest.param("kubernetes", [], ["kubernetes", "user"], id="file"),
        pytest.param(None, ["--runtime", "local"], ["local", "user"], id="option"),
        pytest.param("local", ["--runtime", "kubernetes"], ["kubernetes", "user"], id="both"),
    ],
)
def test_explain_says_who_named_the_runtime(typed, named, words, told):
    path = job_file(Path("job.yaml"), image="i:1", runtime={"name": named} if named else {})
    answer = typed("explain", str(path), *words, "-o", "json").json
    (found,) = [each for each in answer["defaults"] if each["field"] == "spec.runtime.name"]
    assert [found["value"], found["from"]] == told


def test_explain_says_what_the_deployment_decides(typed, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__DEFAULT_RUNTIME", "kubernetes")
    monkeypatch.setenv("AIRFLOW__TRAINING__MAX_RUN_SECONDS", "3600")
    path = Path("job.yaml")
    for asked, why in ((None, ""), (60, None), (7200, ", the job asks for 7200")):
        job_file(path, image="i:1", activeDeadlineSeconds=asked)
        answer = typed("explain", str(path), "-o", "json").json
        told = {each["field"]: each for each in answer["defaults"]}
        assert told["spec.runtime.name"] == {
            "field": "spec.runtime.name",
            "value": "kubernetes",
            "from": "deployment",
            "why": "[training] default_runtime",
        }
        deadline = told["spec.activeDeadlineSeconds"]
        if why is None:
            assert (deadline["value"], deadline["from"], "why" in deadline) == (60, "user", False)
            continue
        assert (deadline["value"], deadline["from"]) == (3600, "deployment")
        assert deadline["why"] == f"[training] max_run_seconds is 3600{why}"
    assert "deployment: [training] default_runtime" in typed("explain", str(path)).stdout


def test_a_param_is_not_called_unknown_while_a_part_of_the_document_cannot_be_read(typed):
    env = [{"name": "LR", "value": "{{ params.lr }}", "valu": 1}]
    path = job_file(Path("job.yaml"), image="i:1", env=env)
    done = typed("validate", str(path), "-p", "lr=1")
    assert done.code == 2
    assert "valu" in done.stdout
    assert "no parameter" not in done.stdout


def test_explain_lists_the_next_starts(typed):
    path = job_file(Path("job.yaml"), dag={"schedule": "0 3 * * *", "timezone": "Asia/Tokyo"})
    shown = typed("explain", str(path)).stdout
    assert "schedule 0 3 * * * (Asia/Tokyo)\n" in shown
    assert (
        re.findall(r"next \S+T(\S+), in UTC \S+T(\S+)\n", shown)
        == [("03:00:00+09:00", "18:00:00+00:00")] * 3
    )


def test_explain_shows_the_dates_that_a_run_would_see(typed):
    words = ["{{ logical_date.strftime('%Y') }}", "{{ data_interval_end.year }}"]
    path = job_file(Path("job.yaml"), command=["echo", *words])
    (instance,) = typed("explain", str(path), "-o", "json").json["instances"]
    year = str(datetime.now(tz=timezone.utc).year)
    assert instance["command"] == ["echo", year, year]
    path = job_file(path, command=["echo", "{{ logical_date.yaer }}"])
    refused = typed("validate", str(path))
    assert refused.code == 2
    assert "did you mean 'year'?" in refused.stdout


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
def test_the_store_is_made_checked_and_pruned(typed, home):
    (home / "airflow_training.db").unlink()
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
    slow = "  logs: {patterns: [{name: a, line: '{x}/{y}', example: 1/2}]}\n"
    Path("mine.yaml").write_text(shown.stdout.rstrip() + "\n" + slow)
    broken = typed("frameworks", "check", "mine.yaml")
    assert broken.code == 2
    assert "spec.logs.patterns[0].line: would be slow" in broken.stdout


def test_an_empty_store_lists_nothing_and_says_how_to_begin(typed):
    done = typed("list")
    assert done.code == 0
    assert "next: airflow-training init" in done.stderr
    assert typed("list", "-o", "json").json == {"runs": []}


@pytest.mark.e2e
def test_no_command_imports_airflow(typed):
    """It would cost seconds; the arrows between rooms forbid it."""
    import subprocess
    import sys

    code = (
        "import sys; sys.argv = ['airflow-training', 'list'];"
        "from airflow_training.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "import airflow_training.supervise.loop, airflow_training.admission.check\n"
        "import airflow_training.runtimes.local.runtime\n"
        "heavy = {'airflow', 'alembic', 'httpx', 'kubernetes', 'fsspec', 'jsonschema', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    typed("db", "upgrade")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
