"""What a framework refuses, and what it fills in."""

from __future__ import annotations

import dataclasses

import pytest

from airflow_training.frameworks.defaults import list_defaults
from airflow_training.frameworks.exit_codes import TABLES
from airflow_training.frameworks.registry import load_for
from tests.frameworks.samples import (
    a_job,
    a_resolved_job,
    codes,
    container_of,
    environment_of,
    resolve_job,
)

MASTER_AND_WORKER = {"master": 1, "worker": 2}


@pytest.mark.parametrize(
    ("framework", "roles", "spec", "expected"),
    [
        pytest.param(
            "pytorch", {"mastr": 1, "worker": 2}, {},
            [("unknown_role", "spec.roles[0].name")],
            id="a-role-the-framework-does-not-know",
        ),
        pytest.param(
            "mpi", {"worker": 2}, {}, [("missing", "spec.roles")], id="a-required-role-is-absent"
        ),
        pytest.param(
            "mpi", {"launcher": 0, "worker": 2}, {},
            [("missing", "spec.roles[0].replicas")],
            id="a-required-role-of-nobody",
        ),
        pytest.param(
            "pytorch", {"master": 2}, {},
            [("not_supported", "spec.roles[0].replicas")],
            id="two-masters",
        ),
        pytest.param(
            "jax", {"worker": {"replicas": 2, "minReplicas": 1, "maxReplicas": 4}}, {},
            [
                ("not_supported", "spec.roles[0].minReplicas"),
                ("not_supported", "spec.roles[0].maxReplicas"),
            ],
            id="elastic-where-the-framework-is-not",
        ),
        pytest.param(
            "pytorch", MASTER_AND_WORKER, {"parameters": {"nprocPerNod": 2}},
            [("bad_parameter", "spec.parameters.nprocPerNod")],
            id="unknown-parameter",
        ),
        pytest.param(
            "pytorch", MASTER_AND_WORKER, {"parameters": {"nprocPerNode": "two"}},
            [("bad_parameter", "spec.parameters.nprocPerNode")],
            id="parameter-of-the-wrong-type",
        ),
        pytest.param(
            "mpi", {"launcher": 1, "worker": 2},
            {"parameters": {"implementation": "Open", "slotsPerWorker": 0}},
            [
                ("bad_parameter", "spec.parameters.implementation"),
                ("bad_parameter", "spec.parameters.slotsPerWorker"),
            ],
            id="parameters-out-of-range",
        ),
        pytest.param(
            "pytorch", MASTER_AND_WORKER, {"env": [{"name": "WORLD_SIZE", "value": "1"}]},
            [("reserved_env", "spec.env[0].name")],
            id="a-variable-the-framework-sets",
        ),
        pytest.param(
            "custom", {"a": {"env": [{"name": "A"}, {"name": "TRAINING_RANK", "value": "0"}]}}, {},
            [("reserved_env", "spec.roles[0].env[1].name")],
            id="a-variable-of-every-instance",
        ),
        pytest.param(
            "jax",
            {
                "worker": {
                    "template": {
                        "spec": {"containers": [{"name": "jax", "env": [{"name": "PROCESS_ID"}]}]}
                    }
                }
            },
            {},
            [("reserved_env", "spec.roles[0].template.spec.containers[0].env[0].name")],
            id="a-variable-inside-a-template",
        ),
        pytest.param(
            "paddle", {"worker": 2}, {"env": [{"name": "PADDLE_TRAINER_ID", "value": "0"}]},
            [("reserved_env", "spec.env[0].name")],
            id="a-variable-the-launcher-sets",
        ),
        pytest.param(
            "paddle", {"worker": 2}, {"env": [{"name": "TRAINING_ROLE", "value": "TRAINER"}]},
            [("reserved_env", "spec.env[0].name")],
            id="a-variable-that-is-ours-elsewhere",
        ),
        pytest.param(
            "custom", {"w" * 60: 1}, {}, [("name_too_long", "spec.roles[0].name")], id="long-role"
        ),
        pytest.param(
            "custom", {"worker": {"networkPolicy": {"ingress": [{"ports": ["peers", 1]}]}}}, {},
            [("bad_reference", "spec.roles[0].networkPolicy.ingress[0].ports[0]")],
            id="a-port-that-the-role-does-not-have",
        ),
        pytest.param(
            "custom", {"worker": {"networkPolicy": {"egress": [{"ports": ["peers"]}]}}}, {},
            [("bad_reference", "spec.roles[0].networkPolicy.egress[0].ports[0]")],
            id="the-name-of-a-port-of-nobody",
        ),
        pytest.param(
            # digits-00000-<role>-9 has 63 characters, -10 has 64
            "custom", {"w" * 48: 11}, {}, [("name_too_long", "spec.roles[0].name")],
            id="long-only-with-the-highest-index",
        ),
    ],
)  # fmt: skip
def test_refused_before_anything_starts(framework, roles, spec, expected):
    _, problems = resolve_job(a_job(framework, roles, **spec))
    assert codes(problems) == expected


def test_a_long_name_of_the_job_is_blamed_on_the_job():
    job = a_job("custom", {"worker": 1})
    job.metadata.name = "j" * 60
    assert codes(resolve_job(job)[1]) == [("name_too_long", "metadata.name")]


def test_names_that_just_fit_are_taken():
    assert not resolve_job(a_job("custom", {"w" * 48: 10}))[1]


def test_mistakes_say_what_would_be_right():
    _, problems = resolve_job(
        a_job("pytorch", {"mastr": 1}, parameters={"rendezvousBackend": "c10", "nprocs": 1})
    )
    role, backend, unknown = problems
    assert (role.allowed, role.hint) == (["master", "worker"], "did you mean 'master'?")
    assert backend.allowed == ["c10d", "etcd", "etcd-v2"]
    assert "nprocPerNode" in unknown.allowed


def test_a_default_of_the_framework_may_be_overridden_by_the_user():
    env = [{"name": "OMP_NUM_THREADS", "value": "1"}]
    job = a_resolved_job("pytorch", {"master": 1}, parameters={"threadsPerInstance": 4}, env=env)
    assert "OMP_NUM_THREADS" not in environment_of(job, "master")


def test_a_variable_is_reserved_only_where_it_is_set():
    # the rendezvous belongs to elastic jobs, TF_CONFIG to clusters
    for framework, roles, name in (
        ("pytorch", {"master": 1}, "PET_RDZV_ID"),
        ("tensorflow", {"worker": 1}, "TF_CONFIG"),
    ):
        assert not resolve_job(a_job(framework, roles, env=[{"name": name}]))[1]


# --- policies and ranks -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "roles", "scope", "targets", "untracked", "output", "order"),
    [
        pytest.param(
            "pytorch", {"worker": 2, "master": 1}, "Job", (), [], "master", ["master", "worker"],
            id="pytorch",
        ),
        pytest.param(
            "tensorflow", {"ps": 1, "worker": 2, "chief": 1}, "Instance", ("chief",), ["ps"],
            "chief", ["chief", "worker", "ps"],
            id="tensorflow-with-a-chief",
        ),
        pytest.param(
            "tensorflow", {"evaluator": 1, "worker": 2}, "Instance", (), ["evaluator"],
            "worker", ["worker", "evaluator"],
            id="tensorflow-without",
        ),
        pytest.param(
            "mpi", {"worker": 2, "launcher": 1}, "Job", ("launcher",), ["worker"],
            "launcher", ["launcher", "worker"],
            id="mpi",
        ),
        pytest.param("jax", {"worker": 2}, "Job", (), [], "worker", ["worker"], id="jax"),
        pytest.param(
            "xgboost", {"master": 1, "worker": 1}, "Job", (), [], "master", ["master", "worker"],
            id="xgboost",
        ),
        pytest.param(
            "lightgbm", {"master": 1, "worker": 1}, "Job", (), [], "master", ["master", "worker"],
            id="lightgbm",
        ),
        pytest.param(
            "paddle", {"worker": 1, "master": 1}, "Job", (), [], "worker", ["master", "worker"],
            id="paddle",
        ),
        pytest.param(
            "ray", {"big": 1, "worker": 2, "head": 1}, "Instance", ("head",), ["worker", "big"],
            "head", ["head", "worker", "big"],
            id="ray",
        ),
        pytest.param(
            "custom", {"b": 1, "a": 2}, "Instance", (), [], "b", ["b", "a"], id="custom"
        ),
    ],
)  # fmt: skip
def test_policies_of_each_framework(framework, roles, scope, targets, untracked, output, order):
    job = a_resolved_job(framework, roles)
    assert job.restart.scope == scope
    assert job.success_policy.target_roles == targets
    assert [role.name for role in job.roles if not role.tracked] == untracked
    assert job.output_role == output
    assert [role.name for role in job.roles] == order
    assert {role.restart_policy for role in job.roles} == {"OnFailure"}


def test_the_end_of_a_head_of_ray_is_that_of_its_cluster():
    (rule,) = a_resolved_job("ray", {"head": 1, "worker": 2}).failure_policy.rules
    assert (rule.action, rule.target_roles) == ("RestartJob", ("head",))


def test_workers_of_xgboost_begin_once_its_tracker_listens():
    (waits,) = a_resolved_job("xgboost", {"master": 1, "worker": 1}).role("worker").depends_on
    assert (waits.role, waits.status) == ("master", "PortOpen")


def test_what_the_user_says_wins():
    job = a_resolved_job(
        "mpi",
        {"launcher": 1, "worker": {"replicas": 2, "tracked": True, "restartPolicy": "Never"}},
        successPolicy={"operator": "Any", "targetRoles": ["worker"]},
        restart={"scope": "Instance", "exitCodes": "kubeflow"},
        output={"uri": "s3://x", "role": "worker"},
    )
    worker = job.role("worker")
    assert (worker.tracked, worker.restart_policy) == (True, "Never")
    assert (job.success_policy.operator, job.success_policy.target_roles) == ("Any", ("worker",))
    assert (job.restart.scope, job.restart.exit_codes.name) == ("Instance", "kubeflow")
    assert job.output_role == "worker"


@pytest.mark.parametrize(
    ("framework", "roles", "role", "expected"),
    [
        pytest.param("pytorch", MASTER_AND_WORKER, "worker", ["master"], id="worker-on-master"),
        pytest.param("pytorch", {"worker": 2}, "worker", [], id="no-master-to-wait-for"),
        pytest.param(
            "mpi", {"launcher": 1, "worker": 2}, "launcher", ["worker"], id="launcher-on-workers"
        ),
        pytest.param(
            "pytorch", {"master": 1, "worker": {"dependsOn": []}}, "worker", [],
            id="an-empty-list-takes-the-default-away",
        ),
        pytest.param(
            "pytorch",
            {"worker": 1, "master": {"dependsOn": [{"role": "worker"}]}},
            "master",
            ["worker"],
            id="the-user-adds-one",
        ),
    ],
)  # fmt: skip
def test_default_dependencies(framework, roles, role, expected):
    job = a_resolved_job(framework, roles)
    assert [dependency.role for dependency in job.role(role).depends_on] == expected


@pytest.mark.parametrize("name", sorted(TABLES))
def test_no_exit_code_is_retryable_and_permanent(name):
    table = TABLES[name]
    assert not set(table.retryable) & set(table.permanent)
    assert {137, 143} <= set(table.retryable)


# --- templates and ports ------------------------------------------------------------------------


def test_layers_of_a_template_from_the_weakest_to_the_strongest():
    job = a_resolved_job(
        "pytorch",
        {
            "master": {
                "image": "role",
                "env": [{"name": "B", "value": "role"}],
                "template": {
                    "spec": {
                        "containers": [
                            {"name": "pytorch", "env": [{"name": "C", "value": "template"}]},
                            {"name": "sidecar", "image": "logs"},
                        ]
                    }
                },
            }
        },
        image="job",
        env=[{"name": "A", "value": "job"}, {"name": "B", "value": "job"}],
    )
    container = container_of(job, "master")
    assert container["image"] == "role"
    assert container["command"] == ["python", "train.py"]
    assert {e["name"]: e["value"] for e in container["env"]} == {
        "A": "job",
        "B": "role",
        "C": "template",
    }
    assert len(job.role("master").template["spec"]["containers"]) == 2


@pytest.mark.parametrize(
    ("runtime", "worker"),
    [("kubernetes", ["/bin/sh", "/etc/mpi/sshd.sh"]), ("local", ["sleep", "2147483647"])],
)
def test_the_command_of_an_mpi_job_is_the_launchers(runtime, worker):
    job = a_resolved_job("mpi", {"launcher": 1, "worker": 2}, runtime=runtime)
    assert container_of(job, "launcher")["command"] == ["python", "train.py"]
    assert container_of(job, "worker")["command"] == worker


def test_an_mpi_worker_may_have_a_command_of_its_own():
    job = a_resolved_job("mpi", {"launcher": 1, "worker": {"command": ["serve"]}})
    assert container_of(job, "worker")["command"] == ["serve"]


@pytest.mark.parametrize(
    ("framework", "ports", "expected"),
    [
        pytest.param("pytorch", [], {"pytorchjob-port": 23456}, id="the-frameworks"),
        pytest.param(
            "pytorch",
            [{"name": "pytorchjob-port", "containerPort": 1234}],
            {"pytorchjob-port": 1234},
            id="the-users-number-wins",
        ),
        pytest.param(
            "pytorch",
            [{"name": "metrics", "containerPort": 9090}],
            {"pytorchjob-port": 23456, "metrics": 9090},
            id="more-come-after-it",
        ),
        pytest.param("custom", [], {"training-port": 29500}, id="custom"),
        pytest.param(
            "custom",
            [{"name": "http", "containerPort": 80}],
            {"http": 80},
            id="custom-yields-to-the-users",
        ),
    ],
)
def test_ports(framework, ports, expected):
    job = a_resolved_job(framework, {"worker": 1}, ports=ports)
    assert dict(job.role("worker").ports) == expected
    assert list(job.role("worker").ports) == list(expected)


def test_a_network_policy_has_the_numbers_of_ports():
    main = [{"name": "main", "containerPort": 2345}, {"name": "web", "containerPort": 80}]
    policy = {
        "ingress": [{"roles": ["worker"], "ports": ["main"]}, {"ports": ["web", 9]}],
        "egress": [
            {"roles": ["ps"], "ports": ["shards"]},
            {"peers": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
        ],
    }
    roles = {
        "worker": {"replicas": 2, "ports": main, "networkPolicy": policy},
        "ps": {"ports": [{"name": "shards", "containerPort": 7}], "networkPolicy": {}},
    }
    job = a_resolved_job("custom", roles, preflight={"network": {}})
    made = job.role("worker").network_policy
    assert made is not None
    assert made.ingress is not None
    assert made.egress is not None
    # what instances measure before their commands start is between them, too
    assert [(each.roles, each.ports) for each in made.ingress] == [
        (("worker",), (2345, 29399)),
        ((), (9, 80)),
    ]
    assert [(each.roles, each.ports) for each in made.egress] == [(("ps",), (7, 29399)), ((), ())]
    assert job.role("ps").network_policy is not None
    assert job.role("ps").network_policy.ingress is None
    assert a_resolved_job("custom", {"worker": 1}).role("worker").network_policy is None


def test_instances_without_a_port_cannot_measure_the_network(monkeypatch):
    monkeypatch.setattr("airflow_training.frameworks.resolve.ports_of", lambda *_: {})
    for replicas, expected in ((2, [("not_supported", "spec.preflight.network")]), (1, [])):
        _, problems = resolve_job(a_job("custom", {"worker": replicas}, preflight={"network": {}}))
        assert codes(problems) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, ("s3://models/{{ run_id }}", "All", 60.0), id="of-the-framework"),
        pytest.param(
            {"output": {"uri": "models"}, "cleanPodPolicy": "Running", "ttlSecondsAfterFinished": 5},
            ("models", "Running", 5),
            id="of-the-job",
        ),
    ],
)  # fmt: skip
def test_a_framework_says_where_outputs_go_and_what_stays(spec, expected):
    job = a_job("custom", {"worker": 1}, **spec)
    loaded = load_for(job, base_dir="", fetch=False)
    rules = {
        "output_uri": "s3://models/{{ run_id }}", "clean_pod_policy": "All",
        "ttl_seconds_after_finished": 60.0,
    }  # fmt: skip
    changed = loaded.framework.model_copy(
        update={"spec": loaded.framework.spec.model_copy(update=rules)}
    )
    made, problems = resolve_job(job, loaded=dataclasses.replace(loaded, framework=changed))
    assert not problems
    assert (made.output_uri, made.clean_pod_policy, made.ttl_seconds_after_finished) == expected
    listed = {
        each["field"]: each["from"] for each in list_defaults(job, made, framework=changed.spec)
    }
    whose = "user" if spec else "framework"
    assert {listed[f"spec.{key}"] for key in ("cleanPodPolicy", "ttlSecondsAfterFinished")} == {
        whose
    }
    assert ("spec.output.uri" in listed) == (not spec)
