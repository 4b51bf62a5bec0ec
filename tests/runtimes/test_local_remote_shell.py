"""Commands that one instance runs inside another."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from airflow_training.agent.files import read_json
from tests.contracts.runtime import Harness, watching
from tests.runtimes.local_runs import attempt_folder, run_quick
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e


async def test_the_remote_shell_runs_inside_the_other_instance(
    harness: Harness, tmp_path: Path
) -> None:
    host = f"{harness.run.prefix}-sleeper-0"
    inside = 'echo "$ROLE $PPID"; cat; echo oops >&2; exit 5'
    call = f"echo typed | $TRAINING_REMOTE_SHELL -x -o A=b {host}.anything '{inside}'; echo rc=$?"
    await harness.runtime.create([harness.spec("sleeper", env={"ROLE": "worker"})])
    folder = await run_quick(harness, tmp_path, command=("sh", "-c", call))
    worker = read_json(attempt_folder(tmp_path, harness, "sleeper").state)
    assert worker is not None
    agent = worker["agent"]["pid"]
    assert folder.log.read_text() == f"worker {agent}\ntyped\noops\nrc=5\n"


async def test_the_remote_shell_names_the_hosts_there_are(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "airflow_training.agent.remote_shell"
    call = (
        f"import {program} as r, sys; r._WAIT_SECONDS = 0; sys.exit(r.remote_shell(['w', 'true']))"
    )
    folder = await run_quick(
        harness, tmp_path, command=("sh", "-c", f'{sys.executable} -c "{call}"; echo rc=$?')
    )
    said = folder.log.read_text()
    assert "cannot reach 'w'" in said
    assert f"{harness.run.prefix}-quick-0" in said
    assert said.endswith("rc=255\n")


async def test_a_remote_command_ends_with_its_caller(harness: Harness, tmp_path: Path) -> None:
    host = f"{harness.run.prefix}-sleeper-0"
    call = f"exec $TRAINING_REMOTE_SHELL {host} 'echo $$$$; exec sleep 3600'"
    await harness.runtime.create([harness.spec("sleeper")])
    async with watching(harness.runtime, harness.run) as seen:
        made = await harness.runtime.create([harness.spec("quick", command=("sh", "-c", call))])
        log = attempt_folder(tmp_path, harness, "quick").log
        wait_until(lambda: log.read_text().endswith("\n"))
        remote = int(log.read_text())
        await harness.runtime.delete([made[0].ref], grace_seconds=0)
        await seen.gone("quick", 0)
        wait_until(lambda: not Path(f"/proc/{remote}").exists())
        assert seen.now["sleeper", 0].state == "running"
