"""An elastic torchrun job on this machine: it goes on with fewer instances and grows back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, job_file
from tests.waiting import PATIENCE, wait_until

# in `make e2e`: tests/supervise/test_lost_instance.py, and for ranks tests/checkpoints/test_rejoining.py
pytestmark = [pytest.mark.e2e, pytest.mark.soak]

SAMPLES, EPOCHS = 120, 8
TRAIN = f"""
import time
from pathlib import Path
import torch
import torch.distributed as dist
from airflow_training.checkpoints import Checkpointer, ResumableSampler

class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("used", torch.zeros({SAMPLES}, dtype=torch.int64))

dist.init_process_group("gloo")
model = Counts()
sampler = ResumableSampler({SAMPLES}, batch_size=2, seed=0)
checkpoint = Checkpointer(model=model, data=sampler, optimizer=None, scheduler=None, scaler=None, ema=None)
step = checkpoint.restore()
print("starts at", step, "as", dist.get_rank(), "of", dist.get_world_size(), flush=True)
for epoch in range(sampler.epoch, {EPOCHS}):
    for batch in sampler.batches(sampler):
        mine = torch.zeros_like(model.used)
        mine[batch] = 1
        dist.all_reduce(mine)
        model.used += mine
        checkpoint.step(step)
        step += 1
        time.sleep(0 if Path("hurry").exists() else 0.2)
checkpoint.close()
if dist.get_rank() == 0:
    Path("used").write_text(" ".join(map(str, model.used.tolist())))
"""


def starts(home: Path) -> list[tuple[int, int]]:
    """Return at which step rank 0 of each formation began, and with how many ranks, in order."""
    found = []
    for log in home.glob("training/*/worker-*/attempt-*/log"):
        for line in log.read_text().splitlines():
            if "starts at" in line and " as 0 of " in line:
                words = line.split("starts at ")[1].split()
                found.append((int(words[0]), int(words[-1])))
    return sorted(found)


def committed_step() -> int:
    """Return the newest step of which there is a manifest, 0 for none."""
    found = Path("ckpt").glob("r-*/*/manifests/*.json")
    return max((int(path.name.partition("-")[0]) for path in found), default=0)


@pytest.mark.parametrize(
    ("size", "victim"),
    [
        pytest.param(3, 0, id="rank-0"),
        pytest.param(3, 2, id="another"),
    ],
)
def test_a_lost_instance_costs_a_rank_until_it_is_back(command, home, size, victim):
    Path("train.py").write_text(TRAIN)
    path = job_file(
        Path("job.yaml"),
        command=[str(Path(sys.executable).with_name("torchrun")), "train.py"],
        framework="pytorch",
        parameters={"lastCallSeconds": 1, "threadsPerInstance": 1},
        roles=[{"name": "worker", "replicas": size, "minReplicas": size - 1, "maxReplicas": size}],
        checkpoint={"uri": "ckpt", "everySteps": 5},
        restart={"maxRestarts": 0, "backoff": {"initialSeconds": 0.05}},
    )
    words = [*COMMAND, "run", str(path), "--run-id", "r", "-o", "json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as run:
        try:
            wait_until(lambda: committed_step() >= 10, alive=lambda: run.poll() is None)
            (state,) = home.glob(f"training/*/worker-{victim}/current/.agent/state.json")
            os.kill(json.loads(state.read_text())["child"]["pid"], 9)
            wait_until(
                lambda: [world for _, world in starts(home)] == [size, size - 1, size],
                alive=lambda: run.poll() is None,
                seen=lambda: starts(home),
            )
            Path("hurry").touch()
            out, _ = run.communicate(timeout=PATIENCE)
        finally:
            run.kill()
    assert run.returncode == 0
    (_, at_fewer, at_all) = (step for step, _ in starts(home))
    assert at_fewer >= 10
    assert at_all >= at_fewer + 5, "it grew before it had got on"
    assert Path("used").read_text().split() == [str(EPOCHS)] * SAMPLES
    status = json.loads(out)
    assert status["restarts"]["infrastructure"] == sum(status["restarts"].values()) == 1
    assert status["roles"]["worker"]["desired"] == size
    told = [each["reason"] for each in command("events", "r", "-o", "json").json["events"]]
    assert told.count("GoesOnWithFewer") == told.count("BackToFullSize") == 1
