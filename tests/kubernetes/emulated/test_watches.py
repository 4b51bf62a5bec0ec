"""The emulator answers as a real API server would: watches."""

from __future__ import annotations

import pytest
from kubernetes_asyncio import watch
from kubernetes_asyncio.client import ApiException

from tests.kubernetes.emulated.client import (
    MERGE,
    Api,
    Events,
    connect,
    phase_is,
    pod,
    refused,
)
from tests.kubernetes.emulator import Cluster
from tests.waiting import until

pytestmark = pytest.mark.emulator


class TestWatches:
    async def test_what_happens_is_seen_in_order(self, cluster: Cluster, api: Api) -> None:
        async with Events(api, resource_version="0") as events:
            await api.core.create_namespaced_pod("default", pod("a", ["true"]))
            await until(phase_is(cluster, "a", "Succeeded"))
            await api.core.delete_namespaced_pod("a", "default")
            await events.until("DELETED", "a")
        assert events.seen[0] == ("ADDED", "a")
        versions = [int(one["metadata"]["resourceVersion"]) for one in events.objects]
        assert versions == sorted(set(versions))
        assert events.objects[-1]["status"]["phase"] == "Succeeded"
        assert events.objects[0]["kind"] == "Pod"

    async def test_a_watch_resumes_from_a_version(self, api: Api) -> None:
        await api.core.create_namespaced_pod("default", pod("a"))
        listed = await api.core.list_namespaced_pod("default")
        await api.core.create_namespaced_pod("default", pod("b"))
        async with Events(api, resource_version=listed.metadata.resource_version) as events:
            await events.until("ADDED", "b")
        assert ("ADDED", "a") not in events.seen

    async def test_objects_enter_and_leave_a_selection(self, api: Api) -> None:
        await api.core.create_namespaced_pod("default", pod("a"))
        async with Events(api, label_selector="on=yes", resource_version="0") as events:
            await api.core.patch_namespaced_pod(
                "a", "default", {"metadata": {"labels": {"on": "yes"}}}, _content_type=MERGE
            )
            await events.until("ADDED", "a")
            await api.core.patch_namespaced_pod(
                "a", "default", {"metadata": {"labels": {"on": "no"}}}, _content_type=MERGE
            )
            await events.until("DELETED", "a")
        assert (await api.core.read_namespaced_pod("a", "default")).metadata.labels == {"on": "no"}

    async def test_old_versions_are_gone_after_a_compaction(
        self, cluster: Cluster, api: Api
    ) -> None:
        listed = await api.core.list_namespaced_pod("default")
        await api.core.create_namespaced_pod("default", pod("a"))
        cluster.control.compact()
        async with Events(api, resource_version=listed.metadata.resource_version) as events:
            await events.ended()
        assert events.seen == [("ERROR", "")]
        assert (events.objects[0]["code"], events.objects[0]["reason"]) == (410, "Expired")
        with pytest.raises(ApiException) as error:  # as the client's own watch tells it
            async for _ in watch.Watch().stream(
                api.core.list_namespaced_pod, "default",
                resource_version=listed.metadata.resource_version, timeout_seconds=1,
            ):  # fmt: skip
                pass
        assert error.value.status == 410

    async def test_old_versions_may_be_an_http_error_too(self, cluster: Cluster, api: Api) -> None:
        listed = await api.core.list_namespaced_pod("default")
        await api.core.create_namespaced_pod("default", pod("a"))
        cluster.control.compact(http_gone=True)
        with pytest.raises(ApiException) as error:
            await api.core.list_namespaced_pod(
                "default", watch=True, resource_version=listed.metadata.resource_version
            )
        assert (error.value.status, refused(error)["reason"]) == (410, "Expired")

    async def test_bookmarks_and_timeouts(self) -> None:
        with Cluster(bookmark_seconds=0.05) as cluster:
            connection, api = await connect(cluster)
            async with (
                connection,
                Events(
                    api, allow_watch_bookmarks=True, timeout_seconds=1, resource_version="0"
                ) as events,
            ):
                await events.until("BOOKMARK", "")
                cluster.control.create_namespace("elsewhere")
                await events.ended()
        assert events.seen[-1] == ("BOOKMARK", "")
        version = int(events.objects[-1]["metadata"]["resourceVersion"])
        assert version > int(events.objects[0]["metadata"]["resourceVersion"])
        assert events.error is None

    async def test_initial_events_end_with_a_marked_bookmark(self, api: Api) -> None:
        await api.core.create_namespaced_pod("default", pod("a"))
        options = {"send_initial_events": True, "allow_watch_bookmarks": True}
        async with Events(api, resource_version_match="NotOlderThan", **options) as events:
            await events.until("BOOKMARK", "")
        assert events.seen[0] == ("ADDED", "a")
        marked = events.objects[events.seen.index(("BOOKMARK", ""))]["metadata"]["annotations"]
        assert marked == {"k8s.io/initial-events-end": "true"}
