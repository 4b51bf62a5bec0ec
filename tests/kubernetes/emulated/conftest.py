"""A cluster for each test, and its administrator's client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.kubernetes.emulated.client import Api, connect
from tests.kubernetes.emulator import Cluster


@pytest.fixture
def cluster() -> Any:
    with Cluster() as started:
        yield started


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    connection, found = await connect(cluster)
    async with connection:
        yield found
