"""How long a failure keeps a job from its next step, and what controllers that are killed do to counts."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from airflow_training.state.store import Store
from benchmarks.report import figure, heading, median, quantile
from tests.supervise.kills import run_killed_at_its_actions

FAILURES = 40
KILLS = 500

SCRIPT = """
import json, os, time
from airflow_training.agent.progress import report, report_checkpoint
from airflow_training.checkpoints import Group

told = json.loads(os.environ["TRAINING_CHECKPOINT"])
group = Group.open(told["root"], incarnation=told["incarnation"], order=told["order"])
step = group.base.step if group.base else 0
attempt = int(os.environ["TRAINING_ATTEMPT"])
for step in range(step + 1, step + 4):
    report(step=step)
    with open("moments.jsonl", "a") as file:
        print(json.dumps({"attempt": attempt, "step": step, "at": time.time()}), file=file)
    time.sleep(0.02)
if attempt < FAILURES:
    group.write(step, {"state": bytes(1024)}, document={})
    manifest = group.commit(step, deadline=10)
    report_checkpoint({"uri": told["root"], "step": step, "digest": manifest.digest})
    with open("moments.jsonl", "a") as file:
        print(json.dumps({"attempt": attempt, "killed": True, "at": time.time()}), file=file)
    os.kill(os.getpid(), 9)
"""

JOB: dict[str, Any] = {
    "apiVersion": "airflow-training/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "falls"},
    "spec": {
        "framework": "custom",
        "command": [sys.executable, "train.py"],
        "checkpoint": {"uri": "ckpt"},
        "roles": [{"name": "worker"}],
    },
}


def seconds_to_the_next_step(folder: Path, **restart: object) -> list[float]:
    """Return, for each of many failures, the seconds from the kill to the first step after it."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT.replace("FAILURES", str(FAILURES)))
    job = {**JOB, "spec": {**JOB["spec"], "restart": restart}}
    (folder / "job.yaml").write_text(json.dumps(job))
    subprocess.run(
        [sys.executable, "-m", "airflow_training.cli", "run", "job.yaml"],
        cwd=folder,
        env={**os.environ, "AIRFLOW_HOME": str(folder)},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    moments = [json.loads(line) for line in (folder / "moments.jsonl").read_text().splitlines()]
    killed = [each["at"] for each in moments if "killed" in each]
    first: dict[int, float] = {}
    for each in moments:
        first.setdefault(each["attempt"], each["at"])
    return [first[attempt + 1] - at for attempt, at in enumerate(killed)]


async def kills_between(folder: Path) -> tuple[int, int, int]:
    """Return (kills, runs, recoveries that are too many or too few) of controllers killed in between."""
    store = Store(f"sqlite:///{folder / 'kills.db'}")
    kills = runs = wrong = 0
    expected = ["Job"] * 3 + ["FreshJob"] + ["Job"] * 3
    while kills < KILLS:
        ended = await run_killed_at_its_actions(store, runs)
        kills, runs = kills + ended.kills, runs + 1
        wrong += [each.scope for each in ended.entry.restarts] != expected
    store.close()
    return kills, runs, wrong


def main() -> None:
    heading("From a failure to the next step, and counting")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        default = seconds_to_the_next_step(folder / "default")
        bare = seconds_to_the_next_step(folder / "bare", backoff={"initialSeconds": 0})
        kills, runs, wrong = asyncio.run(kills_between(folder))
    note = f"{FAILURES} kills; 2 s of it are the backoff"
    figure(
        "failure to first new step, p95", quantile(default, 0.95), "s", target="<= 5 s", note=note
    )
    figure("the same, median", median(default), "s")
    figure("without backoff, p95", quantile(bare, 0.95), "s")
    figure("without backoff, median", median(bare), "s")
    note = f"{kills} kills in {runs} runs"
    figure("runs with a recovery too many or too few", wrong, "", target="0", note=note)
