"""The walk of docs/execution.md as a DAG: a plain module, trained by the planner's split on a cluster that shrinks and grows."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.airflow.stack import Airflow
from tests.docs.pages import ROOT, blocks_of
from tests.execution.adaptive import assert_trained_as_on_one_device, losses, process_of
from tests.waiting import PATIENCE, wait_until

pytest.importorskip("torch")
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

PAGE = ROOT / "docs" / "execution.md"


def test_a_dag_trains_by_a_plan_while_its_cluster_shrinks_and_grows(airflow: Airflow) -> None:
    files = {
        block.file: block.text for block in blocks_of(PAGE) if block.file
    }  # the last of a name
    home = airflow.stack.home
    cluster, jobs = home / "cluster.yaml", home / "jobs"
    document = yaml.safe_load(files["adaptive.yaml"])
    spec = document["spec"]
    spec["plan"]["cluster"] = "../cluster.yaml"  # each YAML file of the folder is a job
    spec["env"] = [{"name": "OMP_NUM_THREADS", "value": "1"}]
    steps = spec["plan"]["engine"]["steps"]
    cluster.write_text(files["cluster.yaml"])
    (jobs / "train.py").write_text(files["train.py"])
    airflow.write(document)

    run_id = airflow.trigger("adaptive")
    uid = airflow.uid("adaptive", run_id)
    place = home / "training" / uid

    def told(reason: str) -> list[Any]:
        return [each.event for each in airflow.store.events(uid) if each.event.reason == reason]

    def wait_for(what: str, condition: Callable[[], bool]) -> None:
        def there() -> bool:
            airflow.revive()
            return condition()

        # one event may be that four processes import torch, or that ranks meet again
        wait_until(
            there,
            what,
            alive=lambda: not airflow._has_ended("adaptive", run_id) or condition(),
            seen=lambda: list(airflow._story("adaptive", run_id)),
            patience=3 * PATIENCE,
        )

    def have(nodes: int) -> None:
        fresh = cluster.with_suffix(".new")
        fresh.write_text(re.sub(r"count: \d+", f"count: {nodes}", files["cluster.yaml"]))
        fresh.replace(cluster)

    wait_for("it trains", lambda: max(losses(place), default=0) >= 6)
    plan = airflow.store.job(uid).plan
    assert plan is not None
    assert plan.applied_replicas == {"worker": 3}, "the planner's own choice, of four devices"
    kept = {key: process_of(place, *key) for key in (("master", 0), ("worker", 0), ("worker", 1))}
    have(3)
    os.kill(process_of(place, "worker", 2), signal.SIGKILL)
    wait_for("three go on", lambda: len(told("Regrouped")) == 1)
    have(4)
    wait_for("four go on", lambda: len(told("Regrouped")) == 2)
    assert {key: process_of(place, *key) for key in kept} == kept
    plans = sorted(place.glob("master-0/attempt-*/plan/plan.json"))
    while max(losses(place), default=0) < steps:
        before = max(losses(place), default=0)
        wait_for("it makes steps", lambda: max(losses(place), default=0) > before)  # noqa: B023 - asked now
    assert airflow.wait_run("adaptive", run_id) == "success"

    shrunk, grown = (each.data for each in told("Regrouped"))
    assert (shrunk["ranks"], shrunk["lost_steps"], shrunk["revision"]) == (3, 0, 1)
    assert (grown["ranks"], grown["lost_steps"], grown["revision"]) == (4, 0, 2)
    ledger = airflow.ledger("adaptive", run_id)
    assert (ledger.job.job_attempt, len(ledger.job.restarts)) == (0, 1)
    serial = assert_trained_as_on_one_device(jobs / "trained", steps, module=files["train.py"])
    for step, found in losses(place).items():
        assert all(each == pytest.approx(serial[step - 1], rel=1e-10) for each in found), step

    [followed] = plans
    compared = subprocess.run(
        [sys.executable, "-m", "airflow_training.cli", "align", "train:example", "--plan", followed, "-o", "json"],
        cwd=jobs,
        env={**airflow.stack.env, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )  # fmt: skip
    assert compared.returncode == 0, compared.stderr
    answer = json.loads(compared.stdout)
    assert (answer["equal"], answer["ranks"]) == (True, 4)
    assert _strategy(followed)["dp"] == 4


def _strategy(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())["strategy"]
    return found
