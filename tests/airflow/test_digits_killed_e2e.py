"""The digits job as a DAG, killed whichever way, ends with the accuracy and the state of one that never was."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest
import yaml

from airflow_training.checkpoints import reading
from tests.airflow.stack import Airflow
from tests.waiting import wait_until

# in `make e2e`: tests/cli/test_digits_killed.py, and of Airflow test_survival_e2e.py
pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).resolve().parents[2] / "dags" / "examples" / "digits"
EPOCHS = 6
VICTIMS = ("training", "agent", "triggerer", "everything")


def write_job(airflow: Airflow, name: str) -> None:
    """Put the example into the jobs folder, with less to wait for between attempts."""
    document = yaml.safe_load((EXAMPLE / "digits-checkpointed.yaml").read_text())
    document["metadata"]["name"] = name
    document["spec"]["restart"] = {"backoff": {"initialSeconds": 0.05}}
    document["spec"]["runtime"] = {"name": "local"}
    document["spec"]["checkpoint"]["uri"] = str(airflow.stack.home / f"{name}-checkpoints")
    airflow.write(document)
    shutil.copy(EXAMPLE / "train.py", airflow.stack.home / "jobs" / "train.py")


def processes(airflow: Airflow, uid: str) -> dict[str, list[int]]:
    """Return the pids of all agents of a run, and of the training processes that they hold."""
    found: dict[str, list[int]] = {"agent": [], "training": []}
    (folder,) = airflow.stack.home.glob(f"training/{uid}*")
    for path in sorted(folder.glob("*-0/current/.agent/state.json")):
        state = json.loads(path.read_text())
        found["agent"].append(state["agent"]["pid"])
        found["training"].append(state["child"]["pid"])
    return found


def committed_step(airflow: Airflow, name: str) -> int:
    """Return the newest step of which there is a manifest, 0 for none."""
    found = airflow.stack.home.glob(f"{name}-checkpoints/*/*/manifests/*.json")
    return max((int(path.name.partition("-")[0]) for path in found), default=0)


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


def strike(airflow: Airflow, uid: str, victim: str) -> None:
    living = processes(airflow, uid)
    if victim == "triggerer":
        airflow.crash("triggerer")
    elif victim == "everything":  # agents first, so that nobody sees how their trainings ended
        kill(*living["agent"], *living["training"])
        airflow.crash("triggerer", "scheduler", "api-server")
    else:
        kill(living[victim][-1])


def result(airflow: Airflow, name: str, run_id: str) -> tuple[float, int, str]:
    """Return accuracy, step and digest over the whole state of the last checkpoint."""
    uid = airflow.uid(name, run_id)
    (folder,) = airflow.stack.home.glob(f"training/{uid}*")
    metrics = json.loads((folder / "master-0" / "current" / "output" / "metrics.json").read_text())
    known = airflow.ledger(name, run_id).job.checkpoint
    assert known is not None
    newest = reading.find(known.uri, step=known.step, digest=known.digest)
    return metrics["accuracy"], newest.step, newest.root_digest


def test_a_dag_ends_as_if_nothing_had_been(airflow: Airflow):
    calm, rough = "calm", "rough"
    write_job(airflow, calm)
    run_id = airflow.trigger(calm, epochs=EPOCHS)
    assert airflow.wait_run(calm, run_id) == "success"
    expected = result(airflow, calm, run_id)
    assert expected[0] > 0.95

    write_job(airflow, rough)
    run_id = airflow.trigger(rough, epochs=EPOCHS)
    uid = airflow.uid(rough, run_id)
    for number, victim in enumerate(VICTIMS, start=1):
        # with newer checkpoints between them: recoveries without progress are limited
        least = number * expected[1] // (len(VICTIMS) + 2)
        wait_until(lambda: committed_step(airflow, rough) >= least, f"step {least} is saved")  # noqa: B023 - called here
        strike(airflow, uid, victim)
    airflow.revive()
    assert airflow.wait_run(rough, run_id) == "success"
    assert result(airflow, rough, run_id) == expected
    # killing Airflow alone restarts nothing
    restarted = [each for each in VICTIMS if each != "triggerer"]
    assert len(airflow.ledger(rough, run_id).job.restarts) == len(restarted)
