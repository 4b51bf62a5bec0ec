"""A script that stops getting anywhere: its log says where it stood, and its instance fails."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from airflow_training.documents.resolved_blocks import StallRules
from airflow_training.runtimes.port import ExcusesWaits
from tests.contracts.runtime import Harness, watching
from tests.runtimes.local_runs import attempt_folder, python_script

pytestmark = pytest.mark.e2e
PY_SPY = Path(sys.executable).parent / "py-spy"
"""On the PATH of every instance."""
STALL = StallRules(seconds=1.0)
HANGS = """
import time
from airflow_training.agent.progress import report
def here_it_waits():
    time.sleep(3600)
for step in range(12):
    report(step=step)
    time.sleep(0.01)
here_it_waits()
"""
SHOWS_PATH = "import airflow_training, sys; print(airflow_training.__path__[0]); {more}"


def without_py_spy() -> dict[str, str]:
    """Return an environment in which py-spy is not found."""
    folders = os.environ["PATH"].split(os.pathsep)
    left = [each for each in folders if not (Path(each) / "py-spy").exists()]
    return {"PATH": os.pathsep.join(left), "PYTHONFAULTHANDLER": "1"}


@pytest.mark.parametrize(
    ("env", "first_line"),
    [
        pytest.param(
            {},
            "Process ",
            id="py-spy",
            marks=pytest.mark.skipif(not PY_SPY.exists(), reason="needs py-spy"),
        ),
        pytest.param(without_py_spy(), "Fatal Python error: Aborted", id="faulthandler"),
    ],
)
async def test_a_script_that_hangs_is_ended_and_its_log_says_where(
    harness: Harness, tmp_path: Path, env: dict[str, str], first_line: str
) -> None:
    async with watching(harness.runtime, harness.run) as seen:
        spec = harness.spec("quick", command=python_script(HANGS), env=env, stall=STALL)
        await harness.runtime.create([spec])
        found = await seen.state("quick", 0, "failed")
    assert found.reason == "Hang"
    assert "after step 11; 1 s are allowed" in found.message
    log = attempt_folder(tmp_path, harness, "quick").log.read_text()
    assert first_line in log
    assert "here_it_waits" in log


async def test_who_waits_for_others_does_not_hang_for_as_long_as_that_is_said(
    harness: Harness,
) -> None:
    async with watching(harness.runtime, harness.run) as seen:
        spec = harness.spec(
            "quick",
            command=python_script(HANGS),
            stall=StallRules(seconds=4.0),
            in_place_seconds=60.0,
        )
        outcome = (await harness.runtime.create([spec]))[0]
        await seen.until(
            lambda now: any(i.progress and i.progress.step == 11 for i in now.values())
        )
        told_at = time.time()
        assert isinstance(harness.runtime, ExcusesWaits)
        for _ in range(2):  # it is the same order
            await harness.runtime.await_peers([outcome.ref], seconds=6.0, number=1)
        found = await seen.state("quick", 0, "failed")
    assert found.reason == "Hang"
    assert found.finished_at is not None
    assert found.finished_at - told_at > 6.0
    assert "4 s are allowed" in found.message


async def test_who_waits_for_nobody_any_more_hangs_as_any_other(harness: Harness) -> None:
    async with watching(harness.runtime, harness.run) as seen:
        spec = harness.spec(
            "quick", command=python_script(HANGS), stall=STALL, in_place_seconds=60.0
        )
        outcome = (await harness.runtime.create([spec]))[0]
        assert isinstance(harness.runtime, ExcusesWaits)
        await seen.state("quick", 0, "running")
        await harness.runtime.await_peers([outcome.ref], seconds=3600.0, number=1)
        await harness.runtime.await_peers([outcome.ref], seconds=0.0, number=2)
        found = await seen.state("quick", 0, "failed")
    assert found.reason == "Hang"


async def test_the_others_leave_their_stacks_before_they_go(
    harness: Harness, tmp_path: Path
) -> None:
    async with watching(harness.runtime, harness.run) as seen:
        spec = harness.spec("quick", command=python_script(HANGS), env={"PYTHONFAULTHANDLER": "1"})
        outcome = (await harness.runtime.create([spec]))[0]
        await seen.until(
            lambda now: any(i.progress and i.progress.step == 11 for i in now.values())
        )
        await harness.runtime.delete([outcome.ref], grace_seconds=2, dump_stacks=True)
        await seen.until(lambda now: not now)
    assert "here_it_waits" in attempt_folder(tmp_path, harness, "quick").log.read_text()


async def test_a_script_finds_the_library_and_what_is_installed_beside_it(
    harness: Harness, tmp_path: Path
) -> None:
    script = SHOWS_PATH.format(
        more="import airflow_training.checkpoints.group, airflow_training.documents"
    )
    async with watching(harness.runtime, harness.run) as seen:
        env = {"PYTHONPATH": "/mine"}
        await harness.runtime.create(
            [harness.spec("quick", command=python_script(script), env=env, working_dir="/")]
        )
        await seen.until(lambda now: any(i.finished_at for i in now.values()))
        log = attempt_folder(tmp_path, harness, "quick").log.read_text()
        assert seen.now["quick", 0].state == "succeeded", log
    assert log.startswith(str(tmp_path / ".agent"))
    assert log.strip().endswith(".pyz/airflow_training")


async def test_the_library_needs_nothing_that_is_installed(
    harness: Harness, tmp_path: Path
) -> None:
    script = "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p];"
    script += SHOWS_PATH.format(more="from airflow_training.checkpoints import Group; print(Group)")
    async with watching(harness.runtime, harness.run) as seen:
        command = (*python_script(script)[:1], "-S", "-c", script)
        await harness.runtime.create([harness.spec("quick", command=command, working_dir="/")])
        await seen.until(lambda now: any(i.finished_at for i in now.values()))
        log = attempt_folder(tmp_path, harness, "quick").log.read_text()
        assert seen.now["quick", 0].state == "succeeded", log


async def test_a_script_that_a_signal_has_stopped_is_ended_though_it_reports_nothing(
    harness: Harness, tmp_path: Path
) -> None:
    stops = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create(
            [harness.spec("quick", command=python_script(stops), stall=STALL)]
        )
        found = await seen.state("quick", 0, "failed")
    assert found.reason == "Hang"
    assert "a signal has stopped it (state T, as SIGSTOP does)" in found.message
    log = attempt_folder(tmp_path, harness, "quick").log.read_text()
    assert "ending it, as it hangs" in log
