"""A plan that starts the training itself: the command it gives, what its ranks read, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_training.admission.check import AdmissionResponse, check_text
from airflow_training.admission.plan.engine import execution_problems
from airflow_training.admission.plan.history import NO_HISTORY
from airflow_training.admission.plan.job_plan import JobPlan
from airflow_training.admission.plan.step import plan_job
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.frameworks.pods import training_container
from airflow_training.runtimes.memory import MemoryRuntime

TINY = {"hidden": 64, "layers": 4, "heads": 4, "seq": 64, "vocab": 512}
EIGHT_GPUS = {"count": 1, "device": "A100-SXM4-80GB", "devices_per_node": 8}
MODULE = """
from torch import nn

def example():
    raise AssertionError("nobody may call it")

loss = nn.functional.mse_loss

class optimizer: ...

try:
    from samples import data
except ImportError:
    data = None
"""
APPLY = ["replicas", "env", "microBatch", "engine"]


def checked(
    folder: Path, *, spec: dict[str, Any] | None = None, plans: bool = True, **plan: Any
) -> AdmissionResponse:
    """Check a job of two ranks whose plan starts `train.py` of a folder."""
    (folder / "train.py").write_text(MODULE)
    (folder / "view.yaml").write_text(yaml.safe_dump(TINY))
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "planned"},
        "spec": {
            "framework": "pytorch",
            "runtime": {"name": "local"},
            "roles": [{"name": "master"}, {"name": "worker", "replicas": 1}],
            "plan": {
                "model": "view.yaml",
                "cluster": "request",
                "globalBatch": 16,
                "constraints": {"devices": 2},
                "apply": APPLY,
                "engine": {"model": "train:example", "epochs": 2},
                **plan,
            },
            **(spec or {}),
        },
    }

    def planner(job: TrainingJob, resolved: ResolvedJob) -> JobPlan:
        return plan_job(job, resolved, runtime=lambda _: MemoryRuntime(), history=NO_HISTORY)

    text = yaml.safe_dump(document, sort_keys=False)
    [found] = check_text(
        text, run_uid="x" * 20, planner=planner if plans else None, base_dir=str(folder)
    )
    return found


def command_of(found: AdmissionResponse, role: str) -> Any:
    assert found.resolved is not None, [str(problem) for problem in found.problems]
    template = found.resolved.role(role).template
    return training_container(template, None, name="pytorch")["command"]


def mistakes(found: AdmissionResponse) -> dict[str, str]:
    return {problem.field: str(problem) for problem in found.problems}


def test_every_rank_starts_our_runner_and_reads_what_to_train_in_the_plan(tmp_path: Path):
    found = checked(tmp_path, engine={"model": "train:example", "steps": 9, "seed": 3})
    runner = ["python", "-m", "airflow_training.execution.runner"]
    assert [command_of(found, role) for role in ("master", "worker")] == [runner, runner]
    assert found.resolved is not None
    [text] = [
        file.content
        for file in found.resolved.role("worker").files
        if file.path.endswith("plan.json")
    ]
    written = json.loads(text)
    assert written["engine"] == {
        "model": "train:example",
        "loss": "loss",
        "optimizer": "optimizer",
        "data": "data",
        "steps": 9,
        "seed": 3,
        "shuffle": True,
        "randomness": "refuse",
    }
    assert execution_problems(written) == []
    assert written["strategy"]["cp"] == written["strategy"]["ep"] == 1


def test_instances_of_several_ranks_keep_the_exit_code_of_a_refused_one(tmp_path: Path):
    found = checked(
        tmp_path,
        spec={"parameters": {"nprocPerNode": 2}},
        constraints={"devices": 4},
        cluster={"name": "one", "nodes": [EIGHT_GPUS]},
        engine={"model": "train:example", "steps": 9, "python": ["python3.11", "-u"]},
    )
    launcher = ["-m", "airflow_training.networks.trainer.launching"]
    runner = ["-m", "airflow_training.execution.runner"]
    assert command_of(found, "worker") == ["python3.11", "-u", *launcher, *runner]
    assert found.resolved is not None
    assert {role.restart_policy for role in found.resolved.roles} == {"ExitCode"}


@pytest.mark.parametrize("plans", [True, False])
def test_functions_that_the_module_lacks_are_all_named_before_anything_starts(tmp_path, plans):
    engine = {"model": "train:exampel", "loss": "los", "optimizer": "a b", "epochs": 1}
    said = mistakes(checked(tmp_path, plans=plans, engine=engine))
    assert said == {
        "spec.plan.engine.model": (
            "spec.plan.engine.model: train has no 'exampel' (line 25)\n"
            "  hint: did you mean 'example'?"
        ),
        "spec.plan.engine.loss": (
            "spec.plan.engine.loss: train has no 'los' (line 26)\n  hint: did you mean 'loss'?"
        ),
        "spec.plan.engine.optimizer": (
            "spec.plan.engine.optimizer: is no name of a function, given: 'a b' (line 27)"
        ),
    }


def test_a_model_that_is_no_python_needs_the_module_named(tmp_path: Path):
    said = mistakes(checked(tmp_path, engine={"epochs": 1}))
    assert "nothing else says which module is trained" in said["spec.plan.engine.model"]


@pytest.mark.parametrize(
    ("plan", "spec", "field", "says"),
    [
        ({"apply": ["replicas", "engine"]}, {}, "spec.plan.apply", "name both"),
        ({"apply": ["env"]}, {}, "spec.plan.engine", "apply does not name engine"),
        ({"engine": None}, {}, "spec.plan.engine", "how long to train"),
        ({"engine": {"model": "train:example"}}, {}, "spec.plan.engine.steps", "either"),
        (
            {"engine": {"model": "train:example", "steps": 1, "epochs": 1}},
            {},
            "spec.plan.engine.steps",
            "either",
        ),
        ({"precision": "fp8"}, {}, "spec.plan.precision", "by itself"),
        ({"constraints": {"cp": 2}}, {}, "spec.plan.constraints.cp", "no other than 1"),
        ({}, {"command": ["python", "train.py"]}, "spec.command", "engine starts the training"),
        ({}, {"framework": "custom"}, "spec.framework", "RANK"),
        ({"engine": {"model": "train", "epochs": 1}}, {}, "spec.plan.engine.model", "is no module"),
    ],
)
def test_what_engine_cannot_do_is_refused_at_its_field(tmp_path, plan, spec, field, says):
    said = mistakes(checked(tmp_path, spec=spec, **plan))
    assert says in said[field], said


def test_a_plan_in_fp16_is_carried_out(tmp_path: Path):
    found = checked(tmp_path, precision="fp16")
    assert not mistakes(found)
    assert command_of(found, "worker")[-1] == "airflow_training.execution.runner"


def test_a_plan_that_our_runner_cannot_carry_out_says_why():
    strategy = {"global_batch": 16, "micro_batch": 4, "cp": 2, "dp": 2}
    [why] = execution_problems({"strategy": strategy})
    assert why == "strategy.cp: attention over a sequence that ranks share is not carried out"
