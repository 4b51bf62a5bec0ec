"""Ranks and drivers of a training without code are killed, and each sample is trained once in each epoch all the same.

The network counts for itself: every row has a weight of its own, which each training on the row makes smaller by the same factor.
"""

from __future__ import annotations

import json
import os
import random
import runpy
import signal
import time
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.cli.conftest import Background
from tests.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(540)]

RANKS = ("master-0", "worker-0", "worker-1")
ROWS, BATCH = 320, 32
SHRINK = 0.01
"""Of a weight, each time its row is trained."""
LAYERS = [
    {"name": "row", "type": "Input", "params": {"shape": [1], "dtype": "int64"}},
    {"name": "zero", "type": "Input", "params": {"shape": [1]}},
    {
        "name": "table",
        "type": "Embedding",
        "inputs": ["row"],
        "params": {"num_embeddings": ROWS * len(RANKS), "embedding_dim": 1},
    },
    {"name": "flat", "type": "Flatten"},
    {"name": "loss", "type": "MSELoss", "inputs": ["flat", "zero"]},
]


def write_job(*, epochs: int, every: int, restarts: int) -> None:
    """Write `job.yaml`, and for each rank a file of rows that no other file has."""
    Path("data").mkdir()
    for rank in range(len(RANKS)):
        rows = [f"{rank * ROWS + n:04},0" for n in range(ROWS)]
        Path("data", f"{rank}.csv").write_text("\n".join(["row,zero", *rows, ""]))
    network = {
        "apiVersion": "airflow-training/v1",
        "kind": "Network",
        "metadata": {"name": "counter"},
        "spec": {"layers": LAYERS},
    }
    trainer = {
        "network": {"document": network},
        "data": {"format": "csv", "label": "zero"},
        "epochs": epochs,
        "batchSize": BATCH,
        # the gradient of a mean over all ranks' batches
        "optimizer": {"name": "SGD", "learningRate": SHRINK * BATCH * len(RANKS) / 2},
        "threads": 1,
    }
    spec = {
        "runtime": {"name": "local"},
        "roles": [{"name": "master"}, {"name": "worker", "replicas": 2}],
        "data": {"uri": "data"},
        "trainer": trainer,
        "restart": {"backoff": {"initialSeconds": 0.05}, "maxRestarts": restarts},
        "checkpoint": {"uri": "checkpoints", "everySteps": every},
        "output": {"uri": "model"},
    }
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "counter"},
        "spec": spec,
    }
    Path("job.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


def times_trained() -> torch.Tensor:
    """Return how often each row was trained, as the weights of the model say."""
    torch.manual_seed(0)
    begun = runpy.run_path("model/net.py")["TrainNet"]().state_dict()
    ((name, ended),) = load_file("model/model.safetensors").items()
    ratio: torch.Tensor = (ended.double() / begun[name].double()).flatten()
    found: torch.Tensor = ratio.log() / torch.tensor(1 - SHRINK).log()
    return found


def saved() -> list[Path]:
    return [*Path("checkpoints").glob("r-*/*/manifests/*.json")]


def newest() -> int:
    """Return the newest step that was saved; 0: none."""
    return max([int(each.name.partition("-")[0]) for each in saved()], default=0)


def kill_rank(home: Path, name: str) -> bool:
    """Kill the training process of an instance; False where it has none now."""
    for state in home.glob(f"training/*/{name}/current/.agent/state.json"):
        child = (json.loads(state.read_text()).get("child") or {}).get("pid")
        try:
            if child:
                os.kill(child, signal.SIGKILL)
                return True
        except ProcessLookupError:
            pass
    return False


def kill_driver(run: Background) -> None:
    run.kill()
    run.wait()


def test_the_driver_of_three_ranks_is_killed_wherever_it_stands(home, background):
    epochs = 150
    write_job(epochs=epochs, every=20, restarts=9)
    words = ("run", "job.yaml", "--run-id", "r", "-o", "json")
    run = background(*words)
    # the first instance is created, and the others may not be
    run.until(lambda: [*home.glob("training/*/*-0/current/.agent/state.json")], "an instance")
    kill_driver(run)
    run = background(*words)
    run.until(saved, "a checkpoint")
    kill_driver(run)
    before = newest()
    wait_until(lambda: newest() > before, "ranks go on without a driver")
    kill_rank(home, "worker-0")  # nobody sees it
    run = background(*words)
    before = newest()
    run.until(lambda: newest() > before, "it goes on")
    assert kill_rank(home, "worker-1")
    kill_driver(run)  # before the job is started again, or while it is
    run = background(*words)
    out, err = run.communicate(4 * PATIENCE)
    found = json.loads(out)
    assert found["state"] == "Succeeded", (found, err)
    assert sum(found["restarts"].values()) >= 2, found
    assert times_trained() == pytest.approx(torch.full((ROWS * 3,), epochs), abs=0.1)


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_each_sample_is_trained_once_in_an_epoch_over_100_kills(home, background):
    seed = int(os.environ.get("KILLS_SEED", "7"))
    kills = int(os.environ.get("KILLS", "100"))
    epochs = 20 * kills
    chosen = random.Random(seed)
    write_job(epochs=epochs, every=10, restarts=10 * kills)
    words = ("run", "job.yaml", "--run-id", "r", "-o", "json")
    run = background(*words)
    ranks = drivers = at = 0
    while ranks + drivers < kills and not Path("model").exists():
        run.until(lambda at=at: newest() > at or Path("model").exists(), "progress")
        time.sleep(chosen.random() * 0.3)  # anywhere in a step, a save, a start
        at = newest()
        if chosen.random() < 0.5:
            ranks += kill_rank(home, chosen.choice(RANKS))
            continue
        kill_driver(run)
        drivers += 1
        if chosen.random() < 0.3:  # a rank dies while nobody watches
            ranks += kill_rank(home, chosen.choice(RANKS))
        run = background(*words)
    out, err = run.communicate(20 * PATIENCE)
    assert json.loads(out)["state"] == "Succeeded", (out, err)
    assert ranks + drivers >= kills, (ranks, drivers)
    told = (ranks, drivers, seed)
    assert times_trained() == pytest.approx(torch.full((ROWS * 3,), epochs), abs=0.1), told
