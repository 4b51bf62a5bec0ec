"""What `validate` says of a job whose training is described, and what its instances get."""

from __future__ import annotations

import copy
import json
from datetime import datetime, timezone
from typing import Any

import pytest
import yaml

from airflow_training.admission.check import check_text
from airflow_training.admission.explain import explain
from airflow_training.admission.trainer.packing import packed_files
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import InputError
from airflow_training.networks.digest import network_digest
from airflow_training.state.codec import from_json, to_json
from tests.networks.trainer.made import IMAGES, LISTS, TABLE, TEXT, network_document

JOB: dict[str, Any] = {
    "apiVersion": "airflow-training/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "table"},
    "spec": {
        "roles": [{"name": "master"}, {"name": "worker", "replicas": 2}],
        "runtime": {"name": "local"},
        "data": {"uri": "data", "files": ["a.csv"]},
        "trainer": {
            "network": {"document": network_document(TABLE)},
            "data": {"format": "csv", "label": "kind"},
        },
    },
}


def changed(**trainer: Any) -> dict[str, Any]:
    job = copy.deepcopy(JOB)
    job["spec"]["trainer"] |= trainer
    return job


def answer_of(job: dict[str, Any], base_dir: str = "", **more: Any) -> Any:
    (answer,) = check_text(yaml.safe_dump(job, sort_keys=False), base_dir=base_dir, **more)
    return answer


def told(job: dict[str, Any], base_dir: str = "") -> dict[str, str]:
    return {each.field: each.message for each in answer_of(job, base_dir).problems}


def trainer_file(job: ResolvedJob, role: str) -> Any:
    (text,) = [f.content for f in job.role(role).files if f.path.endswith("trainer.json")]
    return json.loads(text)


def test_a_job_needs_neither_framework_nor_command():
    job = answer_of(JOB).resolved
    assert job.framework == "pytorch"
    (container,) = job.role("worker").template["spec"]["containers"]
    assert container["command"] == ["python", "-m", "airflow_training.networks.trainer"]
    assert {role.restart_policy for role in job.roles} == {"ExitCode"}


def test_several_processes_of_an_instance_end_with_the_code_of_the_first_that_failed():
    document = yaml.safe_load(yaml.safe_dump(JOB))
    document["spec"]["parameters"] = {"nprocPerNode": 2}
    job = answer_of(document).resolved
    (container,) = job.role("worker").template["spec"]["containers"]
    assert container["command"] == [
        *("python", "-m", "airflow_training.networks.trainer.launching"),
        *("-m", "airflow_training.networks.trainer"),
    ]
    assert {role.restart_policy for role in job.roles} == {"ExitCode"}


def test_a_job_that_may_get_more_memory_says_so_to_its_trainer():
    document = yaml.safe_load(yaml.safe_dump(JOB))
    assert "TRAINER_MEMORY_UP_TO" not in answer_of(document).resolved.role("worker").env
    document["spec"]["restart"] = {"onOutOfMemory": {"factor": 2, "upTo": "1Gi"}}
    assert answer_of(document).resolved.role("worker").env["TRAINER_MEMORY_UP_TO"] == str(1 << 30)


def test_the_network_travels_with_the_job_by_its_digest():
    job = answer_of(JOB).resolved
    document = network_document(TABLE)
    assert job.trainer.network.document == document
    assert job.trainer.network.digest == network_digest(document)
    for role in ("master", "worker"):
        assert trainer_file(job, role)["network"] == document
        assert job.role(role).env["TRAINER_DIGEST"] == job.trainer.digest
    assert from_json(ResolvedJob, to_json(job)) == job


def test_what_looks_like_a_template_in_a_network_stays_as_it_is(tmp_path):
    layers = network_document(TABLE)
    layers["metadata"]["description"] = "{{{ run }} {% if %}"
    (tmp_path / "net.yaml").write_text(yaml.safe_dump(layers))
    job = changed(network={"file": "net.yaml"})
    found = answer_of(job, str(tmp_path), run_uid="r").resolved
    assert trainer_file(found, "master")["network"] == layers


def test_a_mistake_in_the_network_is_told_at_its_line_in_the_job():
    layers = network_document(TABLE)
    layers["spec"]["layers"][2]["type"] = "Linaer"
    job = changed(network={"document": layers})
    (problem,) = answer_of(job).problems
    assert problem.field == "spec.trainer.network.document.spec.layers[2].type"
    assert problem.hint == "did you mean 'Linear'?"
    lines = yaml.safe_dump(job, sort_keys=False).splitlines()
    assert "Linaer" in lines[problem.line - 1]


def test_mistakes_of_all_kinds_are_told_at_once():
    layers = network_document(TABLE)
    layers["spec"]["layers"][2]["type"] = "Linaer"
    job = changed(
        network={"document": layers}, epochs=0, optimizer={"name": "Adam", "momentum": 0.9}
    )
    job["spec"]["command"] = ["python", "train.py"]
    assert {*told(job)} == {
        "spec.command",
        "spec.trainer.epochs",
        "spec.trainer.network.document.spec.layers[2].type",
        "spec.trainer.optimizer.momentum",
    }


def test_without_a_trainer_the_framework_is_required():
    job = copy.deepcopy(JOB)
    del job["spec"]["trainer"]
    job["spec"]["command"] = ["true"]
    assert told(job) == {"spec.framework": "is required"}


@pytest.mark.parametrize(
    ("network", "field"),
    [
        ({}, "spec.trainer.network"),
        ({"file": "a.yaml", "name": "lenet"}, "spec.trainer.network"),
        ({"file": "a.yaml", "version": 2}, "spec.trainer.network.version"),
    ],
)
def test_a_network_is_said_in_one_way(network, field):
    assert field in told(changed(network=network))


@pytest.mark.parametrize(
    ("layers", "data", "field"),
    [
        ((TABLE[0], TABLE[2]), {"format": "csv", "label": "kind"}, "network"),
        (TABLE, {"format": "csv", "inputs": {"x": ["a", "b"]}}, "data.label"),
        (TABLE, {"format": "csv", "label": "k", "inputs": {"z": "a"}}, "data.inputs.z"),
        (TABLE, {"format": "csv", "label": "k", "query": "q"}, "data.query"),
        (TABLE, {"format": "images"}, "data.format"),
        (IMAGES, {"format": "text"}, "data.format"),
        (LISTS, {"format": "npz", "query": "q", "classes": ["a"]}, "data.classes"),
        (TEXT, {"format": "text", "label": "k"}, "data.label"),
        (TABLE, {"format": "npz", "label": "k", "delimiter": ";"}, "data.delimiter"),
    ],
)
def test_what_does_not_fit_together_is_told_before_a_file_is_read(layers, data, field):
    job = changed(network={"document": network_document(layers)}, data=data)
    assert f"spec.trainer.{field}" in told(job)


def test_a_network_in_a_file_beside_the_job(tmp_path):
    (tmp_path / "net.yaml").write_text(yaml.safe_dump(network_document(TABLE)))
    job = changed(network={"file": "net.yaml"})
    found = answer_of(job, str(tmp_path)).resolved
    assert found.trainer.network.document == network_document(TABLE)
    assert "comes from none" in told(job)["spec.trainer.network.file"]
    assert (
        "leads out"
        in told(changed(network={"file": "../x"}), str(tmp_path))["spec.trainer.network.file"]
    )
    (tmp_path / "net.yaml").write_text("kind: Network\n")
    assert "metadata" in told(job, str(tmp_path))["spec.trainer.network.file"]


def test_ten_thousand_files_reach_the_instances():
    job = copy.deepcopy(JOB)
    job["spec"]["data"]["files"] = [f"part-{n:05}-of-10000.csv" for n in range(10_000)]
    found = answer_of(job, run_uid="r")
    assert found.problems == []
    assert trainer_file(found.resolved, "worker")["data"]["files"][-1] == "part-09999-of-10000.csv"
    job["spec"]["data"]["files"] = ["{{ run_id }}.csv"]
    assert "spec.data.files[0]" in told(job)


def test_a_parameter_sets_a_field_for_a_sweep():
    job = changed(fromParams={"optimizer.learningRate": "lr", "epochs": "n"})
    job["spec"]["dag"] = {"params": {"lr": {"default": 0.25}, "n": {"type": "integer"}}}
    found = trainer_file(answer_of(job, params={"n": 7}, run_uid="r").resolved, "worker")
    assert (found["optimizer"]["options"]["lr"], found["epochs"]) == (0.25, 7)
    assert [*told_of(job, n=0)] == ["spec.trainer.epochs"]
    job["spec"]["trainer"]["fromParams"] = {"optimizer.learningrate": "lr", "epochs": "m"}
    assert {*told_of(job, n=1)} == {
        "spec.trainer.fromParams.optimizer.learningrate",
        "spec.trainer.fromParams.epochs",
    }


def told_of(job: dict[str, Any], **params: Any) -> list[str]:
    return [each.field for each in answer_of(job, params=params, run_uid="r").problems]


def test_a_dag_file_is_read_without_the_store():
    (found,) = check_text(yaml.safe_dump(changed(network={"name": "lenet"})), look_up=False)
    assert found.problems == []
    assert found.resolved.trainer is None


def test_explain_says_what_is_trained_and_which_values_are_defaults():
    found = explain(answer_of(JOB), now=datetime(2026, 1, 1, tzinfo=timezone.utc))
    assert found["trainer"]["network"] == "net"
    defaults = {each["field"]: each for each in found["defaults"]}
    assert defaults["spec.trainer.epochs"] == {
        "field": "spec.trainer.epochs",
        "value": 10,
        "from": "airflow-training",
    }
    assert defaults["spec.roles[0].restartPolicy"]["from"] == "airflow-training"


def test_a_packed_training_mentions_none_of_our_modules_but_those_it_can_do_without():
    files = packed_files(answer_of(JOB, "/home/user/jobs").resolved)
    assert {"train.py", "net.py", "network.yaml", "requirements.txt", "README.md"} <= {*files}
    assert "DATA = '/home/user/jobs/data'" in files["train.py"]
    users = [name for name, text in files.items() if "import airflow_training" in text]
    assert users == []
    assert [n for n, text in files.items() if "from airflow_training" in text] == [
        "trainer/session.py"
    ]


def test_a_job_without_a_trainer_cannot_be_packed():
    job = copy.deepcopy(JOB)
    del job["spec"]["trainer"]
    job["spec"] |= {"framework": "custom", "command": ["true"]}
    with pytest.raises(InputError, match="trains no network"):
        packed_files(answer_of(job).resolved)


def test_a_pod_gets_the_program_that_brings_the_trainer():
    from airflow_training.documents.resolved import RunRef
    from airflow_training.runtimes.kubernetes.pods import PodOptions, needs_agent
    from airflow_training.runtimes.rendering import expected_addresses, render_instance

    job = copy.deepcopy(JOB)
    job["spec"] |= {"runtime": {"name": "kubernetes"}, "image": "registry.example/torch:2"}
    resolved = answer_of(job).resolved
    run = RunRef(uid="", job="table", namespace="default", controller="")
    addresses = expected_addresses(resolved, run.prefix)
    spec = render_instance(resolved, run, addresses, role="worker", index=0)
    assert needs_agent(spec, PodOptions())
    assert json.loads(spec.files[spec.env["TRAINER_FILE"]])["epochs"] == 10
