"""The digits job, killed whichever way, ends with the accuracy and the state of one that never was."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import COMMAND
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(540)]

EXAMPLE = Path(__file__).resolve().parents[2] / "dags" / "examples" / "digits"
EPOCHS = 8
STEPS = {1: EPOCHS * 90, 2: EPOCHS * 45}
"""By the number of ranks."""
OF_ONE = ("training of master", "agent of master", "run", "everything")
OF_TWO = ("training of master", "training of worker", "agent of worker", "run", "everything")


def run_words(run_id: str) -> list[str]:
    return [*COMMAND, "run", "job.yaml", "--run-id", run_id, "-p", f"epochs={EPOCHS}", "-o", "json"]


def write_job(*roles: str) -> None:
    """Put the example where commands are typed, with less to wait for between attempts."""
    shutil.copy(EXAMPLE / "train.py", "train.py")
    document = yaml.safe_load((EXAMPLE / "digits-checkpointed.yaml").read_text())
    document["spec"]["roles"] = [{"name": role, "replicas": 1} for role in roles]
    document["spec"]["restart"] = {"backoff": {"initialSeconds": 0.05}}
    Path("job.yaml").write_text(yaml.safe_dump(document))


def committed_step(run_id: str) -> int:
    """Return the newest step of which there is a manifest, 0 for none."""
    found = Path("checkpoints").glob(f"{run_id}-*/*/manifests/*.json")
    return max((int(path.name.partition("-")[0]) for path in found), default=0)


def folder_of(home: Path, run_id: str) -> Path:
    """Return where the local runtime keeps a run."""
    (root,) = Path("checkpoints").glob(f"{run_id}-*")  # it ends with the first letters of its uid
    (found,) = home.glob(f"training/{root.name.rpartition('-')[2]}*")
    return found


def processes(home: Path, run_id: str, role: str) -> dict[str, int]:
    """Return the pids of the newest attempt's agent and of the training process that it holds."""
    path = folder_of(home, run_id) / f"{role}-0" / "current" / ".agent" / "state.json"
    state = json.loads(path.read_text())
    return {"agent": state["agent"]["pid"], "training": state["child"]["pid"]}


@contextlib.contextmanager
def driven(run_id: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        run_words(run_id), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as run:
        try:
            yield run
        finally:
            run.kill()


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


def result(command: Any, home: Path, run_id: str) -> tuple[float, int, str]:
    """Return accuracy, step and digest over the whole state of the last checkpoint."""
    metrics = folder_of(home, run_id) / "master-0" / "current" / "output" / "metrics.json"
    shown = command("checkpoints", "show", run_id, "-o", "json").json
    return json.loads(metrics.read_text())["accuracy"], shown["step"], shown["root_digest"]


@pytest.mark.parametrize(
    ("roles", "candidates", "kills"),
    [
        pytest.param(("master",), OF_ONE, 1, id="sample"),
        pytest.param(("master", "worker"), OF_TWO, len(OF_TWO), id="all", marks=pytest.mark.soak),
    ],
)
def test_it_ends_as_if_nothing_had_been(command, home, roles, candidates, kills):
    write_job(*roles)
    with driven("calm") as calm:
        assert calm.wait(timeout=250) == 0
    expected = result(command, home, "calm")
    assert expected[0] > 0.9
    steps = STEPS[len(roles)]
    assert expected[1] == steps

    dice = random.Random()
    victims = dice.sample(candidates, kills)
    # with newer checkpoints between them: recoveries without progress are limited
    moments = [
        number * steps // (len(victims) + 2) + dice.randint(0, 30)
        for number in range(1, len(victims) + 1)
    ]
    print("kills:", list(zip(moments, victims, strict=True)))
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(driven("rough"))
        for moment, victim in zip(moments, victims, strict=True):
            wait_until(
                lambda: committed_step("rough") >= moment,  # noqa: B023 - called here
                f"the moment to kill {victim}",
                alive=lambda: run.poll() is None,  # noqa: B023
            )
            time.sleep(dice.random() / 10)
            living = {role: processes(home, "rough", role) for role in roles}
            match victim.split():
                case ["run"]:
                    kill(run.pid)
                case ["everything"]:
                    kill(run.pid, *(pid for each in living.values() for pid in each.values()))
                case [kind, "of", role]:
                    kill(living[role][kind])
            if victim in ("run", "everything"):
                run.wait()
                run = stack.enter_context(driven("rough"))
        assert run.wait(timeout=250) == 0
    assert result(command, home, "rough") == expected
