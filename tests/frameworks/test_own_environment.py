"""The TRAINING_ variables that every instance finds, whatever the framework."""

from __future__ import annotations

import json

import pytest

from tests.frameworks.samples import a_resolved_job, rendering_of


def own(job, role, index=0, **more):
    env = rendering_of(job, role, index, **more).environment()
    return {name: value for name, value in env.items() if name.startswith("TRAINING_")}


@pytest.mark.parametrize(
    ("runtime", "output", "address"),
    [
        pytest.param(
            "kubernetes",
            "/training/output",
            "digits-worker-1.digits-worker.default.svc:29500",
            id="kubernetes",
        ),
        pytest.param("local", "$(TRAINING_INSTANCE_DIR)/output", "127.0.0.1:40002", id="local"),
    ],
)
def test_every_instance_knows_who_it_is(runtime, output, address):
    job = a_resolved_job("custom", {"server": 1, "worker": 2}, runtime=runtime)
    assert own(job, "worker", 1, job_attempt=2, attempt=5) == {
        "TRAINING_JOB": "digits",
        "TRAINING_RUN_ID": "r1",
        "TRAINING_ROLE": "worker",
        "TRAINING_INDEX": "1",
        "TRAINING_RANK": "2",
        "TRAINING_WORLD_SIZE": "3",
        "TRAINING_ATTEMPT": "5",
        "TRAINING_JOB_ATTEMPT": "2",
        "TRAINING_OUTPUT_DIR": output,
        "TRAINING_ADDRESS": address,
    }


def test_a_name_that_paddle_uses_itself_is_left_to_it():
    env = own(a_resolved_job("paddle", {"master": 1, "worker": 2}), "worker", 1)
    assert env["TRAINING_INSTANCE_ROLE"] == "worker"
    assert "TRAINING_ROLE" not in env


@pytest.mark.parametrize(
    ("framework", "roles"),
    [
        ("mpi", {"launcher": 1, "worker": 3}),
        ("tensorflow", {"ps": 2, "worker": 2, "chief": 1}),
        ("custom", {"b": 2, "a": 2}),
    ],
)
def test_numbers_are_dense_over_all_instances_with_ranked_roles_first(framework, roles):
    job = a_resolved_job(framework, roles)
    numbers = {}
    for role in job.roles:
        for index in range(role.replicas):
            env = own(job, role.name, index)
            numbers[role.name, index] = int(env["TRAINING_RANK"])
            assert env["TRAINING_WORLD_SIZE"] == str(sum(roles.values()))
    assert sorted(numbers.values()) == list(range(sum(roles.values())))
    ranked = [role.name for role in job.roles if role.rank_offset is not None]
    assert numbers[ranked[0], 0] == 0


def test_data_model_checkpoint_and_output_are_told_where_the_job_has_them():
    job = a_resolved_job(
        "pytorch",
        {"master": 1},
        data={"uri": "s3://sets/{{ params.set }}", "initialModel": "s3://models/1"},
        checkpoint={"uri": "s3://ckpt/{{ run_id }}"},
        output={"uri": "s3://out"},
        dag={"params": {"set": {"type": "string", "default": "digits"}}},
    )
    job = type(job)(**{**_fields(job), "variables": {"params": {"set": "digits"}}})
    env = own(job, "master")
    assert env["TRAINING_DATA_URI"] == "s3://sets/digits"
    assert env["TRAINING_INITIAL_MODEL_URI"] == "s3://models/1"
    assert env["TRAINING_CHECKPOINT_URI"] == "s3://ckpt/r1"
    assert env["TRAINING_OUTPUT_URI"] == "s3://out"


def _fields(job):
    return {name: getattr(job, name) for name in job.__dataclass_fields__}


FILES = ["a.npz", "b.npz", "c.npz", "d.npz"]


@pytest.mark.parametrize(
    ("framework", "roles", "expected"),
    [
        pytest.param(
            "pytorch",
            {"master": 1, "worker": 2},
            {("master", 0): ["a.npz", "d.npz"], ("worker", 0): ["b.npz"], ("worker", 1): ["c.npz"]},
            id="rank-0-and-its-peers",
        ),
        pytest.param(
            "mpi",
            {"launcher": 1, "worker": 2},
            {
                ("launcher", 0): [],
                ("worker", 0): ["a.npz", "c.npz"],
                ("worker", 1): ["b.npz", "d.npz"],
            },
            id="who-has-no-rank-gets-none",
        ),
    ],
)
def test_sharded_files_are_disjoint_and_complete(framework, roles, expected):
    job = a_resolved_job(framework, roles, data={"files": FILES, "shard": "byInstance"})
    found = {
        (role, index): json.loads(own(job, role, index)["TRAINING_DATA_FILES"])
        for role, index in expected
    }
    assert found == expected
    assert sorted(file for part in found.values() for file in part) == FILES


def test_without_sharding_everybody_sees_all_files():
    job = a_resolved_job("jax", {"worker": 2}, data={"files": FILES})
    assert json.loads(own(job, "worker", 1)["TRAINING_DATA_FILES"]) == FILES


@pytest.mark.parametrize("name", ["TRAINING_CHECKPOINT_KEY", "TRAINING_DEVICE_COMMAND"])
def test_what_only_the_user_can_know_may_be_set(name):
    job = a_resolved_job("custom", {"worker": 1}, env=[{"name": name, "value": "theirs"}])
    (container,) = job.role("worker").template["spec"]["containers"]
    assert {"name": name, "value": "theirs"} in container["env"]
