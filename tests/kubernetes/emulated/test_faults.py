"""The emulator answers as a real API server would: its faults, asked for."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from kubernetes_asyncio.client import ApiException

from tests.kubernetes.emulated.client import (
    Api,
    Events,
    pod,
    refused,
)
from tests.kubernetes.emulator import Cluster
from tests.waiting import until

pytestmark = pytest.mark.emulator


class TestFaults:
    async def test_errors_with_retry_after(self, cluster: Cluster, api: Api) -> None:
        cluster.control.fail_requests(
            code=429, retry_after=3, verb="create", path="/pods$", times=2
        )
        for _ in range(2):
            with pytest.raises(ApiException) as error:
                await api.core.create_namespaced_pod("default", pod("a"))
            assert error.value.headers is not None
            assert error.value.headers["Retry-After"] == "3"
            assert refused(error)["reason"] == "TooManyRequests"
        await api.core.create_namespaced_pod("default", pod("a"))

    @pytest.mark.parametrize("after_effect", [False, True])
    async def test_lost_answers(self, cluster: Cluster, api: Api, after_effect: bool) -> None:
        cluster.control.reset_requests(after_effect=after_effect, verb="create")
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await api.core.create_namespaced_pod("default", pod("a"))
        assert (cluster.control.get("pods", "a") is not None) == after_effect

    async def test_slow_answers(self, cluster: Cluster, api: Api) -> None:
        cluster.control.hang_requests(seconds=30, verb="list")
        with pytest.raises(asyncio.TimeoutError):
            await api.core.list_namespaced_pod("default", _request_timeout=0.1)
        await api.core.list_namespaced_pod("default")

    async def test_cut_watches(self, cluster: Cluster, api: Api) -> None:
        async with Events(api) as events:
            await until(lambda: cluster.control.open_watches() == 1)
            assert cluster.control.cut_watches() == 1
            await events.ended()
        assert isinstance(events.error, aiohttp.ClientError)

    async def test_duplicated_and_late_events(self, cluster: Cluster, api: Api) -> None:
        cluster.control.duplicate_events()
        cluster.control.delay_events(pattern="default/slow", seconds=0.2)
        async with Events(api, resource_version="0") as events:
            await until(lambda: cluster.control.open_watches() == 1)
            cluster.control.create(pod("slow", nodeSelector={"no": "where"}))
            cluster.control.create(pod("fast", nodeSelector={"no": "where"}))
            await events.until("MODIFIED", "slow")
        assert events.seen.index(("ADDED", "fast")) < events.seen.index(("ADDED", "slow"))
        slow = [kind for kind, name in events.seen if name == "slow"]
        assert slow[:4] == ["ADDED", "ADDED", "MODIFIED", "MODIFIED"]

    async def test_a_server_that_is_away(self, cluster: Cluster, api: Api) -> None:
        async with Events(api) as events:
            await until(lambda: cluster.control.open_watches() == 1)
            cluster.control.server_away()
            await events.ended()
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await api.core.list_namespaced_pod("default")
        cluster.control.server_back()
        assert (await api.core.list_namespaced_pod("default")).items == []
