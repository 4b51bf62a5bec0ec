"""A run on this machine loses an instance and gets it back, with real processes; its host may die meanwhile.

Set TRAINING_SEED for the same moments again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflow_training.state.store import Store
from tests.waiting import PATIENCE, wait_until

SEED = int(os.environ.get("TRAINING_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
GPT = {"hidden": 1024, "layers": 8, "heads": 16, "seq": 1024, "vocab": 32000}

# trains until the file `enough` is there; says how far it is, and when it lives
SCRIPT = """
mark() { echo "$1 $TRAINING_JOB_ATTEMPT $TRAINING_INDEX $TRAINING_WORLD_SIZE $DP_SIZE $(date +%s.%N)" >> marks; }
trap 'mark stop; exit 143' TERM
mark start
step=0
while [ ! -e enough ]; do
  step=$((step + 1))
  echo "{\\"step\\": $step, \\"total_steps\\": 1000000}" >> "$TRAINING_PROGRESS_FILE"
  sleep 0.1
done
mark stop
"""


@dataclass
class Lab:
    """A folder with a job, the cluster it is planned for, and whoever hosts the run."""

    folder: Path
    hosts: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def has(self, nodes: int) -> None:
        machine = {
            "name": "gpus",
            "count": nodes,
            "device": "A100-SXM4-80GB",
            "devices_per_node": 1,
            "nic_gbit_s": 200,
        }
        fresh = self.folder / "cluster.new"
        fresh.write_text(json.dumps({"name": "lab", "nodes": [machine]}))
        fresh.replace(self.folder / "cluster.json")

    def write_job(self) -> None:
        plan = {
            "model": GPT,
            "cluster": "cluster.json",
            "globalBatch": 12,
            "constraints": {"tp": 1, "pp": 1},
        }
        document = {
            "apiVersion": "airflow-training/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "lossy"},
            "spec": {
                "framework": "custom",
                "command": ["sh", "-c", SCRIPT],
                "roles": [{"name": "worker"}],
                "reconcileSeconds": 1,
                "plan": plan,
            },
        }
        (self.folder / "job.json").write_text(json.dumps(document))

    def host(self) -> subprocess.Popen[bytes]:
        """Start (or go on with) the run."""
        command = [
            sys.executable,
            "-m",
            "airflow_training.cli",
            "run",
            str(self.folder / "job.json"),
        ]
        with (
            (self.folder / "stdout").open("wb") as stdout,
            (self.folder / "stderr").open("ab") as stderr,
        ):
            self.hosts.append(
                subprocess.Popen(
                    [*command, "--run-id", "lossy", "--output", "json"],
                    env={**os.environ, "AIRFLOW_HOME": str(self.folder)},
                    stdout=stdout,
                    stderr=stderr,
                )
            )
        return self.hosts[-1]

    def kill(self) -> None:
        """Kill the newest host as nobody can answer."""
        self.hosts[-1].send_signal(signal.SIGKILL)
        self.hosts[-1].wait()

    def marks(self) -> list[tuple[str, int, int, str, str, float]]:
        """Return what, job attempt, index, world size, data-parallel size and time."""
        path = self.folder / "marks"
        lines = path.read_text().splitlines() if path.exists() else []
        rows = [line.split() for line in lines]
        return [(r[0], int(r[1]), int(r[2]), r[3], r[4], float(r[5])) for r in rows]

    def until_it_trains(self, *, attempt: int, ranks: int) -> None:
        """Return when all ranks of a job attempt have begun."""
        wait_until(
            lambda: (
                sum(what == "start" and job == attempt for what, job, *_ in self.marks()) >= ranks
            ),
            f"{ranks} ranks of attempt {attempt}, seed {SEED}",
            alive=lambda: self.hosts[-1].poll() is None,
            seen=lambda: f"{self.marks()}\n{(self.folder / 'stderr').read_text()}",
        )

    def end(self) -> dict[str, Any]:
        """Let the training end; return what the host printed last."""
        (self.folder / "enough").touch()
        code = self.hosts[-1].wait(PATIENCE)
        stderr = (self.folder / "stderr").read_text()
        assert code == 0, f"seed {SEED}: {stderr}"
        assert "Traceback" not in stderr
        answer: dict[str, Any] = json.loads((self.folder / "stdout").read_text())
        return answer

    def events(self, reason: str) -> list[Any]:
        with contextlib.closing(Store(f"sqlite:///{self.folder / 'airflow_training.db'}")) as store:
            run = store.find_run("lossy").uid
            return [e.event for e in store.events(run) if e.event.reason == reason]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    lab.write_job()
    lab.has(3)
    yield lab
    (tmp_path / "enough").touch()
    for host in lab.hosts:
        with contextlib.suppress(subprocess.TimeoutExpired):
            host.wait(PATIENCE)
        host.kill()
        host.wait()


def check_lives(lab: Lab, expected: dict[int, int]) -> None:
    """Every rank of every split ran exactly once, and two splits never at the same time."""
    starts: dict[int, list[float]] = {}
    stops: dict[int, list[float]] = {}
    for what, attempt, _, world, dp, at in lab.marks():
        assert world == dp == str(expected[attempt]), "the ranks know their split"
        (starts if what == "start" else stops).setdefault(attempt, []).append(at)
    assert {attempt: len(each) for attempt, each in starts.items()} == expected
    assert {attempt: len(each) for attempt, each in stops.items()} == expected
    for earlier, later in zip(sorted(expected), sorted(expected)[1:], strict=False):
        assert max(stops[earlier]) <= min(starts[later]), f"seed {SEED}: {lab.marks()}"


@pytest.mark.e2e
def test_a_run_loses_an_instance_goes_on_with_fewer_and_gets_it_back(lab):
    lab.host()
    lab.until_it_trains(attempt=0, ranks=3)
    lab.has(2)
    lab.until_it_trains(attempt=1, ranks=2)
    lab.has(3)
    lab.until_it_trains(attempt=2, ranks=3)
    status = lab.end()
    assert status["state"] == "Succeeded"
    assert status["job_attempt"] == 2
    assert sum(status["restarts"].values()) == 0
    assert status["plan"]["applied"]["replicas"] == {"worker": 3}
    check_lives(lab, {0: 3, 1: 2, 2: 3})
    lost, regained = lab.events("Replanned")
    assert lost.message.startswith("gpus lost 1 node, 2 are left")
    assert regained.message.startswith("gpus gained 1 node, now 3")
    assert regained.data["cost_steps"] > 0


@pytest.mark.e2e
@pytest.mark.soak
def test_a_host_that_is_killed_while_the_split_changes_changes_it_once(lab):
    """SIGKILL at random moments from the change on; the same run goes on each time."""
    moments = random.Random(SEED)
    print(f"TRAINING_SEED={SEED}")
    lab.host()
    lab.until_it_trains(attempt=0, ranks=3)
    for attempt, nodes in ((1, 2), (2, 3)):
        lab.has(nodes)
        for _ in range(2):
            time.sleep(moments.uniform(0.5, 5.0))
            lab.kill()
            lab.host()
        lab.until_it_trains(attempt=attempt, ranks=nodes)
    status = lab.end()
    assert status["state"] == "Succeeded"
    assert status["job_attempt"] == 2
    assert sum(status["restarts"].values()) == 0
    check_lives(lab, {0: 3, 1: 2, 2: 3})
    assert len(lab.events("Replanned")) == 2
