"""`validate`, `explain` and `schema`, and the templates of `init`."""

from __future__ import annotations

import json
import re
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.cli.conftest import job_file

PROBLEM_KEYS = ["code", "field", "value", "message", "allowed", "hint", "line"]

EXPLAIN_KEYS = [
    "job", "framework", "environment", "schedule", "expectedStart", "waves", "gang", "roles", "successPolicy",
    "trainer", "instances",
    "services", "defaults", "warnings",
]  # fmt: skip


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


@pytest.mark.parametrize("uri", ["saved", "saved/here", "file://{cwd}/saved"])
def test_checkpoints_where_a_file_lies_are_refused_before_anything_starts(typed, uri):
    kept = {"uri": uri.replace("{cwd}", str(Path.cwd()))}
    path = job_file(Path("job.yaml"), runtime={"name": "local"}, checkpoint=kept)
    assert typed("validate", str(path)).code == 0
    Path("saved").touch()
    told = typed("validate", str(path))
    assert told.code == 2
    assert (
        f"spec.checkpoint.uri: there is a file {Path.cwd()}/saved, and checkpoints need a folder"
        in told.stdout
    )
    assert typed("run", str(path)).code == 2


def test_a_program_that_is_not_there_is_told(typed):
    path = job_file(Path("job.yaml"), command=["python3.99", "-c", "1"], runtime={"name": "local"})
    told = typed("validate", str(path))
    assert told.code == 0
    assert "spec.command: there is no program python3.99 on the PATH" in told.stderr
    dag = {"params": {"shell": {"type": "string", "default": "sh"}}}
    for command in (["sh", "-c", "true"], ["python", "-c", "1"], ["{{ params.shell }}"]):
        job_file(path, command=command, runtime={"name": "local"}, dag=dag)
        there = typed("validate", str(path))
        assert there.code == 0
        assert "no program" not in there.stderr, command
    elsewhere = typed("validate", str(path), "--set", "spec.runtime.name=kubernetes")
    assert "no program" not in elsewhere.stderr


def test_programs_beside_our_interpreter_are_there(typed, monkeypatch):
    """Instances have its folder in their PATH."""
    ours = Path("ours")
    ours.mkdir()
    (ours / "torchrun").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(ours.absolute() / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    path = job_file(Path("job.yaml"), command=["torchrun", "x"], runtime={"name": "local"})
    assert "no program" not in typed("validate", str(path)).stderr


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
