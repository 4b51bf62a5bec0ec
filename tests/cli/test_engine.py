"""A module that knows nothing of parallelism, trained by its plan as a job, killed in between."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.execution import plain_training

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(540)]

CRASH = """
class Killed(list):
    def __getitem__(self, number):
        taken.append(number)
        if os.environ["RANK"] == "1" and len(taken) == 16 * 7 and not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(number)

taken = []
"""
"""Ends one rank, once, by the kernel's own means, while all train step six."""

NOISE = """

class Noise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(x.shape)
"""
"""What it draws follows from no sample's place."""


def plain_job(scope: str, **constraints: object) -> dict[str, Any]:
    """Write a plain module one of whose ranks is killed once, and return its job on four ranks."""
    source = Path(plain_training.__file__).read_text()
    source = source.replace("def data()", f"import os, signal\n{CRASH}\ndef data()", 1)
    source = source.replace(
        "return [\n        (torch.randn", "return Killed(\n        (torch.randn", 1
    )
    source = source.replace("for _ in range(SAMPLES)\n    ]", "for _ in range(SAMPLES)\n    )", 1)
    Path("train.py").write_text(source)
    assert "Killed(" in source
    root = str(Path(__file__).resolve().parents[2])
    return {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "plain"},
        "spec": {
            "framework": "pytorch",
            "runtime": {"name": "local"},
            "roles": [{"name": "master"}, {"name": "worker", "replicas": 3}],
            "env": [
                {"name": "PYTHONPATH", "value": root},
                {"name": "OMP_NUM_THREADS", "value": "1"},
            ],
            "restart": {"scope": scope, "backoff": {"initialSeconds": 0.05}},
            "checkpoint": {"uri": "ckpt", "everySteps": 4},
            "output": {"uri": "trained"},
            "plan": {
                "model": "train:example",
                "cluster": "request",
                "globalBatch": 16,
                "replan": "Never",
                "constraints": {"devices": 4, "micro_batch": 2, **constraints},
                "apply": ["replicas", "env", "microBatch", "engine"],
                "engine": {"epochs": 3, "seed": 5, "precision": "fp64"},
            },
        },
    }


def assert_trained_as_on_one_device(shown: str) -> None:
    import torch

    weights = torch.load("trained/model.pt", weights_only=True)
    loss, serial = plain_training.train_serially(seed=5, epochs=3, micro_batch=4)
    assert weights.keys() == serial.keys()
    for name, tensor in serial.items():
        assert float((weights[name] - tensor).norm() / tensor.norm()) <= 1e-10, name
    assert "step 12/12" in shown
    assert f"loss {loss:.4g}" in shown, shown
    assert os.environ.get("RANK") is None


def regroupings(command: Any) -> list[dict[str, Any]]:
    events = json.loads(command("events", "one", "-o", "json").stdout)["events"]
    return [event["data"] for event in events if event["reason"] == "Regrouped"]


@pytest.mark.parametrize("scope", ["Job", pytest.param("Instance", marks=pytest.mark.soak)])
def test_a_plan_trains_a_plain_module_on_four_ranks_and_goes_on_after_a_kill(command, home, scope):
    """Each rank holds a part of the state: all of them go back to the checkpoint, whether they keep their process or not."""
    Path("job.yaml").write_text(yaml.safe_dump(plain_job(scope, pp=2, dp=2)))
    done = command("run", "job.yaml", "--run-id", "one", "-o", "json")
    assert done.code == 0, done.stderr
    assert Path("killed").exists()
    assert "going on after step 4" in command("logs", "show", "one", "--role", "master").stdout
    assert_trained_as_on_one_device(command("status", "one").stdout)
    told = regroupings(command)
    assert [(each["source"], each["step"]) for each in told] == (
        [("checkpoint", 4)] if scope == "Instance" else []
    )
    shutil.rmtree("ckpt")


def test_replicas_that_survive_keep_their_process_and_no_step_is_lost(command, home):
    """One restart is counted, of the instance that was killed; no job attempt, no checkpoint that is read."""
    Path("job.yaml").write_text(yaml.safe_dump(plain_job("Instance", dp=4, zero=0)))
    done = command("run", "job.yaml", "--run-id", "one", "-o", "json")
    assert done.code == 0, done.stderr
    assert Path("killed").exists()
    assert sum(json.loads(done.stdout)["restarts"].values()) == 1
    assert_trained_as_on_one_device(command("status", "one").stdout)
    (told,) = regroupings(command)
    assert (told["ranks"], told["lost_steps"]) == (4, 0)
    assert told["source"].startswith("rank ")
    assert "going on after step" not in command("logs", "show", "one").stdout
    shutil.rmtree("ckpt")


def test_a_refused_module_ends_its_run_with_several_ranks_in_an_instance(command, home):
    source = Path(plain_training.__file__).read_text().replace("nn.GELU()", "Noise()")
    Path("train.py").write_text(source + NOISE)
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "refused"},
        "spec": {
            "framework": "pytorch",
            "runtime": {"name": "local"},
            "parameters": {"nprocPerNode": 2},
            "roles": [{"name": "master"}],
            "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
            "restart": {"backoff": {"initialSeconds": 0.05}},
            "plan": {
                "model": "train:example",
                "cluster": {"nodes": [{"count": 1, "device": "CPU-8", "devices_per_node": 2}]},
                "globalBatch": 16,
                "replan": "Never",
                "constraints": {"devices": 2, "dp": 2},
                "apply": ["env", "microBatch", "engine"],
                "engine": {"epochs": 1},
            },
        },
    }
    Path("job.yaml").write_text(yaml.safe_dump(document))
    ended = command("run", "job.yaml", "--run-id", "one", "-o", "json")
    assert ended.code == 1
    found = json.loads(ended.stdout)
    assert sum(found["restarts"].values()) == 0  # another try would end the same way
    assert found["root_cause"]["exit_code"] == 2
    assert "Noise draws random numbers" in command("logs", "show", "one").stdout
