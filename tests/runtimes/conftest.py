"""A run of the local runtime for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contracts.runtime import Harness
from tests.runtimes.local_runs import local_harness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    async with local_harness(tmp_path) as harness:
        yield harness
