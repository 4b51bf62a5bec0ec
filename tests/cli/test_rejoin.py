"""A job whose ranks stay when one is lost: only that one is started again, and gets the state from a live one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, job_file

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).resolve().parents[2] / "docs" / "resumable.md"
STEPS = 20
PARTS = f"""
import __main__, logging, os, signal, time

import torch

logging.basicConfig(level=logging.INFO, format="%(message)s")
torch.set_num_threads(1)
torch.manual_seed(int(os.environ["TRAINING_ATTEMPT"]))
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
samples = 16 * {STEPS} * int(os.environ["WORLD_SIZE"])
x = torch.arange(3.0 * samples).reshape(-1, 3) / (3 * samples)
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
epochs = 1

def loss_of(found, wanted):
    time.sleep(0.01)
    last = int(os.environ["WORLD_SIZE"]) - 1
    if (int(os.environ["RANK"]), os.environ["TRAINING_ATTEMPT"], __main__.step) == (last, "0", 10):
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.nn.functional.mse_loss(found, wanted)
"""
AFTER = """
import hashlib

content = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
print("ends after step", step, hashlib.sha256(content).hexdigest(), flush=True)
"""


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_ranks_that_stay_lose_no_step(command, home, workers):
    """The script is the one of the page on resumable scripts."""
    text = PAGE.read_text(encoding="utf-8").partition("\n## Ranks that stay when one is lost\n")[2]
    snippet = re.search(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert snippet is not None
    Path("parts.py").write_text(PARTS)
    Path("train.py").write_text(snippet[1] + AFTER)
    path = job_file(
        Path("job.yaml"),
        ("master", 1),
        ("worker", workers),
        framework="pytorch",
        command=[sys.executable, "train.py"],
        checkpoint={"uri": "ckpt", "everySteps": 8},
        restart={"scope": "Instance", "backoff": {"initialSeconds": 0.05}},
    )
    words = [*COMMAND, "run", str(path), "--run-id", "r", "-o", "json"]
    try:  # torch is imported by several processes: longer than other commands may take
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=240)
    finally:
        command("kill", "r")
    assert done.returncode == 0, done.stderr
    restarts = json.loads(done.stdout)["restarts"]
    assert restarts["infrastructure"] == 1, restarts
    said = {
        name: "".join(
            log.read_text() for log in sorted(home.glob(f"training/*/{name}/attempt-*/log"))
        )
        for name in ("master-0", *(f"worker-{index}" for index in range(workers)))
    }
    took = f"ranks [{workers}] have the state after step 10 from rank 0"
    assert {name for name in said if took in said[name]} == {"master-0", f"worker-{workers - 1}"}
    assert "going on after step" not in "".join(said.values()), "that is how a restore begins"
    ends = [line for log in said.values() for line in log.splitlines() if "ends after" in line]
    assert len(ends) == 1 + workers
    assert len(set(ends)) == 1
    assert ends[0].startswith(f"ends after step {STEPS} ")
