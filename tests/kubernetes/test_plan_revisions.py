"""Ranks in pods follow another plan in their processes: what their agents are given reaches them as a file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_training.state.store import Store
from tests.execution.adaptive import (
    BATCH,
    MODULE,
    assert_trained_as_on_one_device,
    process_of,
    write_cluster,
)
from tests.kubernetes.emulator import Cluster
from tests.waiting import PATIENCE, wait_until

pytest.importorskip("torch")
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

STEPS = 200
ROOT = Path(__file__).parents[2]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(kubelet="processes") as cluster:
        yield cluster


def job(folder: Path) -> dict[str, Any]:
    (folder / "train.py").write_text(MODULE)
    write_cluster(folder / "cluster.json", 3)
    return {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "adaptive"},
        "spec": {
            "framework": "pytorch",
            "image": "trainer:1",
            "reconcileSeconds": 1,
            "roles": [{"name": "master"}, {"name": "worker"}],
            "env": [
                {"name": "PYTHONPATH", "value": f"{folder}:{ROOT}"},
                {"name": "OMP_NUM_THREADS", "value": "1"},
            ],
            "restart": {"scope": "Instance", "backoff": {"initialSeconds": 60}},
            "checkpoint": {"uri": str(folder / "ckpt"), "everySteps": 50},
            "output": {"uri": str(folder / "trained")},
            "plan": {
                "model": "train:example",
                "cluster": "cluster.json",
                "globalBatch": BATCH,
                "constraints": {"tp": 1, "zero": 0},
                "apply": ["replicas", "env", "microBatch", "engine"],
                "engine": {"steps": STEPS, "precision": "fp64", "python": [sys.executable]},
            },
        },
    }


@pytest.mark.usefixtures("route")
def test_pods_that_stay_follow_a_smaller_plan_and_a_larger_one_in_their_processes(
    cluster: Cluster, tmp_path: Path, sqlite_template: Path
) -> None:
    shutil.copy(sqlite_template, tmp_path / "airflow_training.db")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job(tmp_path)))
    mine = {
        "AIRFLOW_HOME": str(tmp_path),
        "KUBECONFIG": str(cluster.write_kubeconfig(tmp_path / "kubeconfig")),
    }
    words = ["run", "job.yaml", "--runtime", "kubernetes", "--run-id", "one"]
    with (tmp_path / "said").open("wb") as said:
        run = subprocess.Popen(
            [sys.executable, "-m", "airflow_training.cli", *words],
            cwd=tmp_path,
            env={**os.environ, **mine},
            stdout=said,
            stderr=said,
        )
    store = Store(f"sqlite:///{tmp_path / 'airflow_training.db'}")

    def events() -> list[Any]:
        runs = [each.uid for each in store.runs() if each.key.run_id == "one"]
        return [each.event for uid in runs for each in store.events(uid)]

    def told(reason: str) -> list[Any]:
        return [each for each in events() if each.reason == reason]

    def wait_for(what: str, condition: Callable[[], bool]) -> None:
        wait_until(
            condition,
            what,
            alive=lambda: run.poll() is None or condition(),
            seen=(tmp_path / "said").read_text,
            patience=3 * PATIENCE,  # one event may be that all processes import torch
        )

    try:
        wait_for("all train", lambda: reached(store) >= 6)
        kept = {key: process_of(tmp_path, *key) for key in (("master", 0), ("worker", 0))}
        pods = uids(cluster)
        write_cluster(tmp_path / "cluster.json", 2)
        os.kill(process_of(tmp_path, "worker", 1), signal.SIGKILL)
        wait_for("two go on", lambda: len(told("Regrouped")) == 1)
        write_cluster(tmp_path / "cluster.json", 3)
        wait_for("three go on", lambda: len(told("Regrouped")) == 2)
        assert {key: process_of(tmp_path, *key) for key in kept} == kept
        now = uids(cluster)
        assert [now[name] for name in ("master-0", "worker-0")] == [
            pods[name] for name in ("master-0", "worker-0")
        ]
        while run.poll() is None:
            before = reached(store)
            wait_until(lambda: run.poll() is not None or reached(store) > before)  # noqa: B023 - asked now
        assert run.returncode == 0, (tmp_path / "said").read_text()
        [one] = store.runs()
        ledger = store.ledger(one.uid)
        shrunk, grown = (each.data for each in told("Regrouped"))
    finally:
        run.terminate()
        run.wait(PATIENCE)
        store.close()
    assert (shrunk["ranks"], shrunk["lost_steps"], shrunk["revision"]) == (2, 0, 1)
    assert (grown["ranks"], grown["lost_steps"], grown["revision"]) == (3, 0, 2)
    assert (ledger.job.job_attempt, len(ledger.job.restarts)) == (0, 1)
    assert_trained_as_on_one_device(tmp_path / "trained", STEPS)


def reached(store: Store) -> int:
    """Return the last step that an instance reported."""
    found = [each.uid for each in store.runs()]
    told = [report for uid in found for report in store.progress.newest(uid).values()]
    return max((each.step or 0 for each in told), default=0)


def uids(cluster: Cluster) -> dict[str, str]:
    """Return the uid of each instance's pod."""
    found = {}
    for pod in cluster.control.list("pods", namespace="default"):
        labels = pod["metadata"]["labels"]
        name = f"{labels['airflow-training/role']}-{labels['airflow-training/index']}"
        found[name] = pod["metadata"]["uid"]
    return found
