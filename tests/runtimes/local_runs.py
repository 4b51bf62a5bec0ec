"""Runs of the local runtime for tests, which leave no process behind."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from airflow_training.agent.files import AttemptFolder, read_json
from airflow_training.agent.proc import start_time
from airflow_training.documents.resolved import RunRef
from airflow_training.runtimes.local.runtime import LocalRuntime
from tests.contracts.runtime import JOB, Harness, Kind, watching
from tests.waiting import wait_until

COMMANDS: dict[Kind, tuple[str, ...]] = {
    "sleeper": ("sleep", "3600"),
    "quick": ("sh", "-c", "echo quick; exit 0"),
    "broken": ("sh", "-c", "echo this is broken; echo on stderr >&2; exit 3"),
}


@contextlib.asynccontextmanager
async def local_harness(local_dir: Path) -> AsyncIterator[Harness]:
    """Yield a prepared run; afterwards everything of it is ended, whatever the test did."""
    run = RunRef(uid=secrets.token_hex(10), job="contract", namespace="default", controller="tests")
    runtime = LocalRuntime(local_dir=local_dir)
    await runtime.prepare(run, JOB)
    try:
        yield Harness(runtime=runtime, run=run, commands=COMMANDS)
    finally:
        await runtime.remove(run)


def attempt_folder(
    local_dir: Path, harness: Harness, kind: Kind, attempt: int = 0
) -> AttemptFolder:
    return AttemptFolder(local_dir / harness.run.uid / f"{kind}-0" / f"attempt-0.0.{attempt}")


def agent_pid(folder: AttemptFolder) -> int:
    state = read_json(folder.state)
    assert state is not None
    return int(state["agent"]["pid"])


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process, and let it go on afterwards."""
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(
            lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        )
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def alive(pid: int) -> bool:
    return start_time(pid) is not None


def python_script(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


async def run_quick(harness: Harness, local_dir: Path, **changes: Any) -> AttemptFolder:
    """Run an instance to its success and return its folder."""
    async with watching(harness.runtime, harness.run) as seen:
        outcome = (await harness.runtime.create([harness.spec("quick", **changes)]))[0]
        assert outcome.result == "created", outcome.message
        await seen.until(lambda now: any(i.finished_at for i in now.values()))
        found = seen.now["quick", 0]
        log = attempt_folder(local_dir, harness, "quick").log.read_text()
        assert found.state == "succeeded", (found, log)
    return attempt_folder(local_dir, harness, "quick")
