"""The local runtime keeps the contract of the port, with real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airflow_training.runtimes.local.runtime import LocalRuntime
from tests.contracts.runtime import Harness, RuntimeContract
from tests.runtimes.local_runs import local_harness


@pytest.mark.e2e
class TestLocal(RuntimeContract):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[Harness]:
        async with local_harness(tmp_path) as harness:
            assert isinstance(harness.runtime, LocalRuntime)
            yield harness
