"""The other jobs of the training operator: their roles, what ended them, and what nobody wrote."""

from __future__ import annotations

import pytest

from tests.interchange.reading import fates, mistakes, ours, refused

KINDS = {
    "TFJob": ("tfReplicaSpecs", "tensorflow"),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost"),
    "PaddleJob": ("paddleReplicaSpecs", "paddle"),
    "MPIJob": ("mpiReplicaSpecs", "mpi"),
}


def job(
    kind: str, *roles: str, spec: str = "", env: str = "", container: str = "", **sizes: int
) -> str:
    field, name = KINDS[kind]
    text = f"apiVersion: kubeflow.org/v1\nkind: {kind}\nmetadata: {{name: digits}}\nspec:\n"
    text += "".join(f"  {line}\n" for line in spec.splitlines()) + f"  {field}:\n"
    for role in roles:
        text += (
            f"    {role}:\n      replicas: {sizes.get(role, 1)}\n      template:\n        spec:\n"
            f"          containers:\n            - {{name: {container or name}, image: a, "
            f"command: [python, train.py]{f', env: [{env}]' if env else ''}}}\n"
        )
    return text


@pytest.mark.parametrize(
    ("kind", "roles", "framework", "targets"),
    [
        ("TFJob", ("Chief", "Worker", "PS", "Evaluator"), "tensorflow", ["chief"]),
        ("TFJob", ("Worker", "PS"), "tensorflow", ["worker"]),
        ("XGBoostJob", ("Master", "Worker"), "xgboost", ["master"]),
        ("PaddleJob", ("Master", "Worker"), "paddle", ["master"]),
    ],
)
def test_who_decides_is_written_down(kind, roles, framework, targets):
    text = job(kind, *roles)
    spec = ours(text)
    assert spec["framework"] == framework
    assert [role["name"] for role in spec["roles"]] == [role.lower() for role in roles]
    assert spec["successPolicy"]["targetRoles"] == targets
    assert refused(text) == {}


def test_what_is_tried_again_where_nobody_says_so_depends_on_the_kind():
    policies = {
        kind: ours(job(kind, "Master", "Worker"))["roles"][0]["restartPolicy"]
        for kind in ("XGBoostJob", "PaddleJob")
    }
    assert policies == {"XGBoostJob": "Never", "PaddleJob": "OnFailure"}
    found = fates(job("TFJob", "Worker"))["spec.tfReplicaSpecs.Worker.restartPolicy"]
    assert (found.value, found.default) == ("Never", True)


def test_roles_are_read_in_any_case():
    assert [role["name"] for role in ours(job("TFJob", "worker", "Ps"))["roles"]] == [
        "worker",
        "ps",
    ]


def test_success_of_worker_0_alone_is_refused():
    assert list(refused(job("TFJob", "Worker", Worker=3))) == ["spec.successPolicy"]
    every = job("TFJob", "Worker", Worker=3, spec="successPolicy: AllWorkers")
    assert refused(every) == {}


def test_a_cluster_of_changing_size_is_refused():
    assert refused(job("TFJob", "Chief", spec="enableDynamicWorker: true")) == {
        "spec.enableDynamicWorker": 5
    }
    elastic = job("PaddleJob", "Worker", spec="elasticPolicy: {minReplicas: 1, maxReplicas: 4}")
    assert set(refused(elastic)) == {
        "spec.elasticPolicy.minReplicas",
        "spec.elasticPolicy.maxReplicas",
    }


def test_the_cluster_that_the_operator_told_is_the_frameworks():
    text = job("TFJob", "Chief", env="{name: TF_CONFIG, value: mine}, {name: LEVEL, value: info}")
    env = ours(text)["roles"][0]["template"]["spec"]["containers"][0]["env"]
    assert env == [{"name": "LEVEL", "value": "info"}]


def test_an_mpi_job_keeps_its_slots_and_says_that_it_needs_ssh():
    text = job(
        "MPIJob",
        "Launcher",
        "Worker",
        Worker=2,
        container="train",
        spec="slotsPerWorker: 4\nmainContainer: train\ncleanPodPolicy: Running",
    )
    text = text.replace(", command: [python, train.py]}\n", "}\n").replace(
        "image: a}", "image: a, command: [mpirun, python, train.py]}", 1
    )
    spec, found = ours(text), fates(text)
    assert spec["parameters"] == {"slotsPerWorker": 4}
    assert spec["cleanPodPolicy"] == "Running"
    assert [r["template"]["spec"]["containers"][0]["name"] for r in spec["roles"]] == ["mpi", "mpi"]
    assert "ssh server" in found["spec.mpiReplicaSpecs"].why


@pytest.mark.parametrize(
    ("text", "field", "line"),
    [
        (job("TFJob"), "spec.tfReplicaSpecs", 5),
        (job("TFJob", "Chief", spec="successPolicy: Most"), "spec.successPolicy", 5),
        (
            job("XGBoostJob", "Master", container="side}\n            - {name: main"),
            "spec.xgbReplicaSpecs.Master.template.spec.containers",
            10,
        ),
        (job("MPIJob", "Launcher", spec="slotsPerWorker: many"), "spec.slotsPerWorker", 5),
        (job("MPIJob", "Launcher").replace("org/v1", "org/v2beta1"), "apiVersion", 1),
    ],
)
def test_a_broken_job_is_told_with_its_line(text, field, line):
    assert (field, line) in mistakes(text)


def test_a_role_that_is_not_known_is_refused():
    text = job("XGBoostJob", "Master", "Scheduler")
    assert set(refused(text).values()) == {13, 17}
