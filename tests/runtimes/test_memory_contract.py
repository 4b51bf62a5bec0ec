"""The memory runtime keeps the contract of the port."""

from __future__ import annotations

import pytest

from airflow_training.documents.resolved import RunRef
from airflow_training.runtimes.faults import Behaviour, Script
from airflow_training.runtimes.memory import MemoryRuntime
from tests.contracts.runtime import JOB, Harness, RuntimeContract


class TestMemory(RuntimeContract):
    @pytest.fixture
    async def harness(self) -> Harness:
        script = Script(
            roles={
                "sleeper": Behaviour(run_seconds=None, stop_seconds=0.01),
                "quick": Behaviour(run_seconds=0.01),
                "broken": Behaviour(run_seconds=0.01, exit_code=3),
            }
        )
        run = RunRef(uid="0" * 20, job="contract", namespace="default", controller="tests")
        harness = Harness(runtime=MemoryRuntime(script=script), run=run)
        await harness.runtime.prepare(run, JOB)
        return harness
