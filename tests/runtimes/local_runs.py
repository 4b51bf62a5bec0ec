"""Runs of the local runtime for tests, which leave no process behind."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from airflow_training.runtimes.local import LocalRuntime
from airflow_training.spec.resolved import RunRef
from tests.contracts.runtime import JOB, Harness

COMMANDS = {
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
