"""The plan step: what a job asks, for which cluster, and what its run gets of the answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_training.admission.check import AdmissionResponse, check_text
from airflow_training.admission.plan.history import NO_HISTORY, History
from airflow_training.admission.plan.job_plan import JobPlan
from airflow_training.admission.plan.step import plan_job
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.runtimes.port import ClusterSnapshot, NodeView
from airflow_training.runtimes.rendering import expected_addresses, render_instance

TINY = {"hidden": 64, "layers": 4, "heads": 4, "seq": 64, "vocab": 512}
GPT = {"hidden": 2048, "layers": 24, "heads": 16, "seq": 1024, "vocab": 50304}
A100: dict[str, Any] = {
    "name": "two nodes",
    "nodes": [
        {
            "count": 2,
            "device": "A100-SXM4-80GB",
            "devices_per_node": 8,
            "nics_per_node": 8,
            "nic_gbit_s": 200,
        }
    ],
}
MASTER_AND_WORKERS = ({"name": "master"}, {"name": "worker", "replicas": 3})


class Machines(MemoryRuntime):
    """A runtime that sees these machines."""

    def __init__(self, *nodes: NodeView) -> None:
        super().__init__()
        self.nodes = nodes

    async def cluster_view(
        self, job: ResolvedJob | None = None, *, with_free: bool = False
    ) -> ClusterSnapshot:
        return ClusterSnapshot(nodes=self.nodes)


def planned(
    *roles: dict[str, Any],
    nodes: Sequence[NodeView] = (),
    spec: dict[str, Any] | None = None,
    folder: str = "",
    history: History = NO_HISTORY,
    **plan: Any,
) -> AdmissionResponse:
    """Return a pytorch job after its plan; by default of a tiny model on one machine of 4 cores."""
    seen = nodes or (NodeView(name="here", cpus=4, memory_bytes=32 * 2**30),)

    def planner(job: TrainingJob, resolved: ResolvedJob) -> JobPlan:
        return plan_job(job, resolved, runtime=lambda _: Machines(*seen), history=history)

    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "planned"},
        "spec": {
            "framework": "pytorch",
            "runtime": {"name": "local"},
            "command": ["python", "train.py"],
            "roles": [dict(role) for role in roles or MASTER_AND_WORKERS],
            "plan": {"model": TINY, "globalBatch": 16, **plan},
            **(spec or {}),
        },
    }
    text = yaml.safe_dump(document, sort_keys=False)
    [checked] = check_text(text, run_uid="x" * 20, planner=planner, base_dir=folder)
    return checked


def resolved(checked: AdmissionResponse) -> ResolvedJob:
    assert checked.resolved is not None, [str(problem) for problem in checked.problems]
    return checked.resolved


def plan_of(checked: AdmissionResponse) -> dict[str, Any]:
    plan = resolved(checked).plan
    assert plan is not None
    return dict(plan.document)


def problems(checked: AdmissionResponse) -> dict[str, str]:
    """Return field -> text of every mistake."""
    assert checked.resolved is None
    return {problem.field: str(problem) for problem in checked.problems}


def gpus(number: int, **more: Any) -> dict[str, Any]:
    return {"resources": {"limits": {"nvidia.com/gpu": number}}, **more}


# what is applied ----------------------------------------------------------------------------------
def test_the_last_role_that_trains_gets_what_the_others_leave():
    checked = planned(constraints={"devices": 4})
    job = resolved(checked)
    assert {role.name: role.replicas for role in job.roles} == {"master": 1, "worker": 3}
    checked = planned(constraints={"devices": 2})
    assert resolved(checked).role("worker").replicas == 1
    assert plan_of(checked)["applied"]["replicas"] == {"worker": 1}


def test_ranks_are_counted_anew_when_a_role_in_front_changes():
    checked = planned(
        {"name": "a", "replicas": 3},
        {"name": "b", "replicas": 2},
        spec={"framework": "custom"},
        role="a",
        constraints={"devices": 4},
    )
    assert [(r.name, r.replicas, r.rank_offset) for r in resolved(checked).roles] == [
        ("a", 2, 0),
        ("b", 2, 2),
    ]


def test_every_role_that_trains_finds_the_split_the_batch_and_files_for_launchers():
    job = resolved(planned(constraints={"dp": 4, "devices": 4, "micro_batch": 2, "zero": 1}))
    for role in job.roles:
        assert role.env["DP_SIZE"] == "4"
        assert role.env["MICRO_BATCH_SIZE"] == "2"
        assert role.env["GRADIENT_ACCUMULATION_STEPS"] == "2"
        assert "--use-distributed-optimizer" in role.env["MEGATRON_ARGS"]
        files = {file.path.rpartition("/")[2]: file.content for file in role.files}
        assert json.loads(files["deepspeed.json"])["train_batch_size"] == 16
        assert "data_parallel_replicate_degree = 4" in files["torchtitan.toml"]
        assert json.loads(files["plan.json"])["strategy"]["dp"] == 4


@pytest.mark.parametrize(
    ("command", "env", "wanted"),
    [
        ("torchrun pretrain_gpt.py $MEGATRON_ARGS", [], "1"),
        ("torchrun pretrain_gpt.py $MEGATRON_ARGS", ["CUDA_DEVICE_MAX_CONNECTIONS"], None),
        ("torchrun train.py", [], None),
    ],
    ids=["megatron", "own-value", "another-program"],
)
def test_megatron_gets_the_variable_that_it_asks_for(command, env, wanted):
    worker = {"name": "worker", "replicas": 3}
    worker["env"] = [{"name": name, "value": "8"} for name in env]
    job = resolved(
        planned(
            {"name": "master"},
            worker,
            spec={"command": ["sh", "-c", command]},
            constraints={"tp": 4},
        )
    )
    assert job.role("worker").env.get("CUDA_DEVICE_MAX_CONNECTIONS") == wanted


def test_an_empty_list_plans_without_applying():
    job = resolved(planned(apply=[]))
    assert job.role("worker").replicas == 3
    assert not {"TP_SIZE", "MICRO_BATCH_SIZE", "MEGATRON_ARGS"} & set(job.role("worker").env)
    assert job.role("worker").files == ()
    assert job.plan is not None
    assert job.plan.document["applied"] == {"replicas": {}, "env": [], "role": "worker"}


@pytest.mark.parametrize(
    ("apply", "there", "not_there"),
    [
        pytest.param(["env"], "TP_SIZE", "MICRO_BATCH_SIZE", id="env"),
        pytest.param(["microBatch"], "MICRO_BATCH_SIZE", "TP_SIZE", id="microBatch"),
    ],
)
def test_only_what_is_named_is_applied(apply, there, not_there):
    env = resolved(planned(apply=apply)).role("worker").env
    assert there in env
    assert not_there not in env


def test_the_document_is_kept_as_it_was_written():
    """So that a run which goes on, or is exported, is the same one."""
    document = resolved(planned(constraints={"devices": 2})).document
    assert document["spec"]["roles"][1] == {"name": "worker", "replicas": 3}


def test_nccl_is_told_of_switches_that_reduce_unless_the_user_says_otherwise():
    sharp = {**A100["nodes"][0], "nic": "infiniband-sharp"}
    options: dict[str, Any] = {
        "model": GPT,
        "cluster": {"name": "sharp", "nodes": [sharp]},
        "constraints": {"dp": 16, "devices": 16},
    }
    worker = {"name": "worker", "replicas": 16, **gpus(1)}
    assert resolved(planned(worker, **options)).role("worker").env["NCCL_COLLNET_ENABLE"] == "1"
    own = {**worker, "env": [{"name": "NCCL_COLLNET_ENABLE", "value": "0"}]}
    assert "NCCL_COLLNET_ENABLE" not in resolved(planned(own, **options)).role("worker").env
    options["cluster"] = A100
    assert "NCCL_COLLNET_ENABLE" not in resolved(planned(worker, **options)).role("worker").env


@pytest.mark.parametrize(
    ("runtime", "seen", "written"),
    [
        pytest.param("local", "$(TRAINING_INSTANCE_DIR)/plan", "plan", id="local"),
        pytest.param("kubernetes", "/etc/training/plan", "/etc/training/plan", id="kubernetes"),
    ],
)
def test_the_files_are_where_the_variables_say(runtime, seen, written):
    job = resolved(planned(cluster=A100, spec={"runtime": {"name": runtime}, "image": "train"}))
    run = RunRef(uid="u" * 20, job=job.name, namespace=job.namespace, controller="c")
    made = render_instance(job, run, expected_addresses(job, "x"), role="master", index=0)
    for variable, name in (
        ("DEEPSPEED_CONFIG", "deepspeed.json"),
        ("TORCHTITAN_CONFIG", "torchtitan.toml"),
        ("PLAN_FILE", "plan.json"),
    ):
        assert made.env[variable] == f"{seen}/{name}"
        assert f"{written}/{name}" in made.files


# sizes --------------------------------------------------------------------------------------------
def test_a_plan_takes_whole_instances():
    checked = planned(
        {"name": "master"},
        {"name": "worker", "replicas": 1},
        spec={"parameters": {"nprocPerNode": 8}, **gpus(8), "runtime": {"name": "kubernetes"},
              "image": "train"},
        model=GPT,
        cluster=A100,
        globalBatch=64,
    )  # fmt: skip
    assert plan_of(checked)["devices"] in (8, 16)
    assert resolved(checked).role("worker").replicas == plan_of(checked)["devices"] // 8 - 1


def test_without_replicas_the_plan_is_for_the_size_the_job_has():
    checked = planned({"name": "master"}, {"name": "worker", "replicas": 1}, apply=["env"])
    assert plan_of(checked)["devices"] == 2


def test_elastic_bounds_bound_the_plan():
    roles = ({"name": "worker", "replicas": 2, "minReplicas": 1, "maxReplicas": 2},)
    assert plan_of(planned(*roles))["devices"] <= 2


def test_devices_that_the_job_cannot_have_are_refused():
    roles = ({"name": "worker", "replicas": 2, "minReplicas": 1, "maxReplicas": 2},)
    found = problems(planned(*roles, constraints={"devices": 4}))
    assert "the job can have 1 to 2 devices" in found["spec.plan.constraints.devices"]


def test_bounds_are_counted_in_devices():
    checked = planned(
        {"name": "worker", "replicas": 2, "minReplicas": 2, "maxReplicas": 2},
        spec={"parameters": {"nprocPerNode": 8}, **gpus(8)},
        cluster=A100,
        constraints={"devices": 8},
    )
    found = problems(checked)["spec.plan.constraints.devices"]
    assert "the job can have 16 devices, 8 in each instance" in found


def test_an_instance_with_more_devices_than_ranks_is_warned_of():
    checked = planned(
        {"name": "worker", "replicas": 2},
        spec={"parameters": {"nprocPerNode": 1}, **gpus(8)},
        model=GPT,
        cluster=A100,
    )
    assert "has 8 devices and starts 1 rank" in " ".join(plan_of(checked)["warnings"])


def test_roles_with_unequal_devices_are_refused():
    found = problems(
        planned(
            {"name": "a", **gpus(1)},
            {"name": "b", **gpus(2)},
            spec={"framework": "custom"},
            cluster=A100,
        )
    )
    assert "unequal numbers of devices: a 1, b 2" in found["spec.roles"]


def test_a_role_without_ranks_cannot_be_planned_for():
    found = problems(
        planned(
            {"name": "launcher"}, {"name": "worker"}, spec={"framework": "mpi"}, role="launcher"
        )
    )
    assert "takes no ranks" in found["spec.plan.role"]


def test_a_variable_of_the_plan_is_not_the_users():
    env = [{"name": "TP_SIZE", "value": "4"}]
    found = problems(planned(spec={"env": env}))
    assert "'TP_SIZE' is set by the plan" in found["spec.env[0].name"]
    assert resolved(planned(spec={"env": env}, apply=["replicas"])).plan is not None


# clusters -----------------------------------------------------------------------------------------
def test_nodes_are_what_the_runtime_sees():
    checked = planned(
        nodes=[NodeView(name=f"n{i}", cpus=2.5, memory_bytes=2**34) for i in range(3)],
        constraints={"devices": 4},
    )
    assert plan_of(checked)["cluster"] == "the local nodes"
    assert plan_of(checked)["strategy"]["precision"] == "fp32", "processors gain nothing by bf16"


def test_gpus_of_nodes_are_known_by_their_labels():
    checked = planned(
        {"name": "worker", "replicas": 4},
        spec={**gpus(1), "framework": "custom"},
        nodes=[
            NodeView(
                name="gpus",
                cpus=64,
                memory_bytes=2**39,
                gpus=4,
                labels={"nvidia.com/gpu.product": "NVIDIA H100 80GB HBM3"},
            ),
            NodeView(name="cpus", cpus=64, memory_bytes=2**39),
        ],
        model=GPT,
    )
    assert plan_of(checked)["devices"] <= 4
    assert plan_of(checked)["strategy"]["precision"] == "bf16"


def test_a_rank_that_asks_for_two_processors_has_two():
    checked = planned(
        {"name": "worker", "replicas": 1},
        spec={"framework": "custom", "resources": {"requests": {"cpu": "2"}}},
    )
    assert plan_of(checked)["devices"] <= 2


def test_request_is_what_the_job_asks_for():
    checked = planned({"name": "worker", "replicas": 3}, cluster="request")
    assert plan_of(checked)["devices"] <= 3


def test_model_and_cluster_may_be_files_beside_the_job(tmp_path: Path):
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(TINY))
    (tmp_path / "cluster.json").write_text(json.dumps(A100))
    checked = planned(model="model.yaml", cluster="cluster.json", folder=str(tmp_path))
    assert plan_of(checked)["cluster"] == "two nodes"


def test_keys_may_be_spelled_as_in_a_job_or_as_in_a_file():
    for spelled in ({"kvHeads": 2, "tiedEmbeddings": False}, {"kv_heads": 2}):
        assert plan_of(planned(model={**TINY, **spelled}))
    assert plan_of(planned(constraints={"microBatch": 2}))["strategy"]["micro_batch"] == 2


# refusals -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("plan", "field", "says"),
    [
        pytest.param(
            {"model": {**TINY, "hidden": 66}}, "spec.plan.model.heads", "allowed: ",
            id="sizes-that-do-not-divide",
        ),
        pytest.param(
            {"model": {**TINY, "heds": 4}}, "spec.plan.model.heds", "did you mean 'heads'",
            id="unknown-key-of-the-model",
        ),
        pytest.param(
            {"cluster": {"name": "c", "nodes": [{"count": 1, "device": "A100-SXM-90",
             "devices_per_node": 8}]}},
            "spec.plan.cluster.nodes[0].device", "did you mean 'A100-",
            id="unknown-device",
        ),
        pytest.param({"cluster": "nods"}, "spec.plan.cluster", "did you mean 'nodes'",
                     id="unknown-cluster"),
        pytest.param({"model": "model.yml"}, "spec.plan", "cannot be read", id="no-such-file"),
        pytest.param({"model": "nonsense"}, "spec.plan.model", "module:function", id="no-model"),
        pytest.param({"model": "no_module_of_ours:net"}, "spec.plan.model", "cannot be called",
                     id="no-such-module"),
        pytest.param({"constraints": {"tpp": 2}}, "spec.plan.constraints.tpp",
                     "did you mean 'tp'", id="unknown-constraint"),
        pytest.param({"constraints": {"tp": {"min": 4, "max": 2}}}, "spec.plan.constraints.tp",
                     "hint: ", id="contradiction-in-one"),
        pytest.param({"constraints": {"tp": 3}}, "spec.plan.constraints.tp", "hint: ",
                     id="contradiction-with-the-model"),
        pytest.param({"objective": "money"}, "spec.plan.cluster.nodes[0].price_per_device_hour",
                     "price_per_device_hour", id="money-without-prices"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_one_message_with_what_would(plan, field, says):
    found = problems(planned(**plan))
    assert list(found) == [field]
    assert says in found[field]


def test_a_cluster_that_is_too_small_is_refused_with_the_smallest_that_would_fit():
    large = {"hidden": 12288, "layers": 96, "heads": 96, "seq": 2048, "vocab": 51200}
    found = problems(
        planned({"name": "worker", "replicas": 8}, spec=gpus(1), model=large, cluster=A100)
    )
    [message] = found.values()
    assert "no strategy fits into the memory of 16 devices" in message
    assert "the smallest cluster that would fit has" in message


def test_all_mistakes_of_a_plan_come_at_once():
    found = problems(
        planned(model={**TINY, "heds": 4}, cluster="nods", constraints={"tpp": 2}, role="workr")
    )
    assert len(found) == 4


def test_text_from_a_form_names_no_files_and_no_python_of_the_server():
    text = yaml.safe_dump(
        {
            "apiVersion": "airflow-training/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "form"},
            "spec": {
                "framework": "custom",
                "command": ["true"],
                "roles": [{"name": "worker"}],
                "plan": {"model": "os:getcwd", "cluster": "/etc/x.yaml", "globalBatch": 1},
            },
        }
    )
    [checked] = check_text(text, source="form")
    assert {problem.field for problem in checked.problems if problem.code == "not_allowed"} == {
        "spec.plan.model",
        "spec.plan.cluster",
    }
