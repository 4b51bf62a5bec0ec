"""The emulator answers as a real API server would: seen through the official asyncio client."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client import ApiException

from tests.kubernetes.emulator import ADMIN_TOKEN, Cluster, Node, remote_control

pytestmark = pytest.mark.anyio

POD_FOREVER = ["sleep", "inf"]


def pod(name: str, command: list[str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox:1", "command": command or POD_FOREVER}
    container |= spec.pop("container", {})
    meta = {"name": name, **spec.pop("metadata", {})}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": meta,
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }  # fmt: skip


class Api:
    """The client of one user, and a way to ask for what its models would not let through."""

    def __init__(self, cluster: Cluster, api: client.ApiClient, token: str) -> None:
        self.core: Any = client.CoreV1Api(api)
        self.custom: Any = client.CustomObjectsApi(api)
        self.scheduling: Any = client.SchedulingV1Api(api)
        self.auth: Any = client.AuthorizationV1Api(api)
        self.policy: Any = client.PolicyV1Api(api)
        self.batch: Any = client.BatchV1Api(api)
        self.version: Any = client.VersionApi(api)
        self._url, self._token = cluster.url, token

    async def raw(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, Any]:
        heads = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        heads |= {key.replace("_", "-"): value for key, value in headers.items()}
        async with aiohttp.ClientSession() as session:
            data = None if body is None else json.dumps(body)
            async with session.request(
                method, self._url + path, data=data, headers=heads
            ) as answer:
                text = await answer.text()
                return answer.status, json.loads(text) if text else None, answer.headers


@pytest.fixture
def cluster() -> Any:
    with Cluster() as started:
        yield started


async def connect(cluster: Cluster, token: str = ADMIN_TOKEN) -> tuple[client.ApiClient, Api]:
    connection = await config.new_client_from_config_dict(cluster.kubeconfig(token=token))
    return connection, Api(cluster, connection, token)


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    connection, found = await connect(cluster)
    async with connection:
        yield found


async def eventually(look: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Wait until `look` returns something true."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, "it never came"
        await asyncio.sleep(0.01)
    return found


def phase_is(cluster: Cluster, name: str, *phases: str) -> Callable[[], Any]:
    def look() -> Any:
        found = cluster.control.get("pods", name)
        return found if found is not None and found["status"]["phase"] in phases else None

    return look


def refused(error: pytest.ExceptionInfo[ApiException]) -> dict[str, Any]:
    """Return the Status document of a refusal."""
    body: dict[str, Any] = json.loads(error.value.body or b"")
    assert (body["kind"], body["status"]) == ("Status", "Failure")
    assert body["code"] == error.value.status
    return body


class Events:
    """Collects a watch until it ends."""

    def __init__(self, api: Api, **options: Any) -> None:
        self.seen: list[tuple[str, str]] = []
        self.objects: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self._api, self._options = api, options

    async def __aenter__(self) -> Events:
        self._open = asyncio.Event()
        self._task = asyncio.create_task(self._collect())
        await asyncio.wait_for(self._open.wait(), 10)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _collect(self) -> None:
        response = await self._api.core.list_namespaced_pod(
            "default", watch=True, _preload_content=False, **self._options
        )
        self._open.set()
        async with response:
            try:
                async for line in response.content:
                    event = json.loads(line)
                    self.objects.append(event["object"])
                    name = event["object"].get("metadata", {}).get("name", "")
                    self.seen.append((event["type"], name))
            except aiohttp.ClientError as error:
                self.error = error

    async def until(self, *event: str) -> None:
        await eventually(lambda: event in self.seen)

    async def ended(self) -> None:
        await asyncio.wait_for(self._task, 10)


class TestDiscovery:
    async def test_says_what_it_is(self, api: Api) -> None:
        assert (await api.version.get_code()).git_version == "v1.36.0"
        resources = await api.core.get_api_resources()
        names = {one.name for one in resources.resources}
        assert {"pods", "pods/status", "pods/log", "pods/eviction", "configmaps"} <= names

    async def test_has_only_what_is_installed(self, api: Api) -> None:
        code, body, _ = await api.raw("GET", "/apis/kueue.x-k8s.io/v1beta1")
        assert (code, body["reason"]) == (404, "NotFound")
        with pytest.raises(ApiException) as error:
            await api.custom.list_namespaced_custom_object(
                "scheduling.volcano.sh", "v1beta1", "default", "podgroups"
            )
        assert refused(error)["message"] == "the server could not find the requested resource"

    async def test_both_versions_of_a_custom_resource_show_the_same_objects(self) -> None:
        with Cluster(installed=["kueue"]) as cluster:
            connection, api = await connect(cluster)
            async with connection:
                body = {
                    "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue",
                    "metadata": {"name": "team"}, "spec": {"clusterQueue": "all"},
                }  # fmt: skip
                await api.custom.create_namespaced_custom_object(
                    "kueue.x-k8s.io", "v1beta1", "default", "localqueues", body
                )
                found = await api.custom.get_namespaced_custom_object(
                    "kueue.x-k8s.io", "v1beta2", "default", "localqueues", "team"
                )
        assert found["apiVersion"] == "kueue.x-k8s.io/v1beta2"
        assert found["spec"] == {"clusterQueue": "all"}


class TestRefusals:
    async def test_missing_object(self, api: Api) -> None:
        with pytest.raises(ApiException) as error:
            await api.core.read_namespaced_pod("none", "default")
        body = refused(error)
        assert body["message"] == 'pods "none" not found'
        assert body["details"] == {"name": "none", "kind": "pods"}

    async def test_missing_namespace(self, api: Api) -> None:
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod("none", pod("a"))
        assert refused(error)["message"] == 'namespaces "none" not found'

    async def test_a_second_object_of_the_same_name(self, api: Api) -> None:
        await api.core.create_namespaced_pod("default", pod("a"))
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod("default", pod("a"))
        body = refused(error)
        assert (body["code"], body["reason"]) == (409, "AlreadyExists")
        assert body["message"] == 'pods "a" already exists'

    @pytest.mark.parametrize(
        ("change", "field", "reason"),
        [
            ({"metadata": {"name": "Upper"}}, "metadata.name", "FieldValueInvalid"),
            ({"metadata": {"labels": {"a": "b c"}}}, "metadata.labels", "FieldValueInvalid"),
            ({"restartPolicy": "Sometimes"}, "spec.restartPolicy", "FieldValueNotSupported"),
            ({"containers": []}, "spec.containers", "FieldValueRequired"),
            ({"container": {"image": ""}}, "spec.containers[0].image", "FieldValueRequired"),
            ({"hostname": "a.b"}, "spec.hostname", "FieldValueInvalid"),
            ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds", "FieldValueInvalid"),
            (
                {"container": {"volumeMounts": [{"name": "x", "mountPath": "/x"}]}},
                "spec.containers[0].volumeMounts[0].name", "FieldValueNotFound",
            ),
            (
                {"container": {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}},
                "spec.containers[0].resources.requests", "FieldValueInvalid",
            ),
        ],
    )  # fmt: skip
    async def test_invalid_pods(
        self, api: Api, change: dict[str, Any], field: str, reason: str
    ) -> None:
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod("default", pod("a", **change))
        body = refused(error)
        assert (body["code"], body["reason"]) == (422, "Invalid")
        assert [(c["field"], c["reason"]) for c in body["details"]["causes"]] == [(field, reason)]
        assert body["details"]["kind"] == "Pod"
        assert body["message"].startswith('Pod "')
        assert field in body["message"]

    async def test_wrong_types_are_bad_requests(self, api: Api) -> None:
        wrong = pod("a", container={"env": [{"name": "A", "value": 1}]})
        code, body, _ = await api.raw("POST", "/api/v1/namespaces/default/pods", wrong)
        assert (code, body["reason"]) == (400, "BadRequest")
        assert "cannot unmarshal number" in body["message"]
        bad = pod("a", container={"resources": {"limits": {"cpu": "many"}}})
        code, body, _ = await api.raw("POST", "/api/v1/namespaces/default/pods", bad)
        assert code == 400
        assert "quantities must match" in body["message"]

    async def test_unknown_fields_are_dropped_with_a_warning_or_refused(self, api: Api) -> None:
        path = "/api/v1/namespaces/default/pods"
        wrong = pod("a", imagePull="x")
        code, body, _ = await api.raw("POST", f"{path}?fieldValidation=Strict", wrong)
        assert code == 400
        assert body["message"] == 'strict decoding error: unknown field "spec.imagePull"'
        code, body, headers = await api.raw("POST", path, wrong)
        assert code == 201
        assert "imagePull" not in body["spec"]
        assert headers["Warning"] == '299 - "unknown field \\"spec.imagePull\\""'

    @pytest.mark.parametrize(
        ("method", "path", "headers", "code", "reason"),
        [
            ("POST", "/api/v1/pods", {}, 405, "MethodNotAllowed"),
            ("POST", "/api/v1/namespaces/default/pods/a", {}, 405, "MethodNotAllowed"),
            ("DELETE", "/api/v1/namespaces", {}, 405, "MethodNotAllowed"),
            ("GET", "/api/v1/namespaces/default/things", {}, 404, "NotFound"),
            (
                "POST", "/api/v1/namespaces/default/pods", {"Content_Type": "text/plain"}, 415,
                "UnsupportedMediaType",
            ),
            (
                "PATCH", "/api/v1/namespaces/default/pods/a", {"Content_Type": "application/json"},
                415, "UnsupportedMediaType",
            ),
            ("GET", "/api/v1/pods", {"Accept": "text/html"}, 406, "NotAcceptable"),
            ("GET", "/api/v1/pods", {"Authorization": "Bearer nobody"}, 401, "Unauthorized"),
            ("GET", "/api/v1/pods?labelSelector=a%20b%20c", {}, 400, "BadRequest"),
            ("GET", "/api/v1/pods?fieldSelector=spec.image%3Dx", {}, 400, "BadRequest"),
            ("GET", "/api/v1/pods?resourceVersion=99999999", {}, 504, "Timeout"),
        ],
    )  # fmt: skip
    async def test_requests_that_make_no_sense(
        self, api: Api, method: str, path: str, headers: dict[str, str], code: int, reason: str
    ) -> None:
        body: Any = {} if method in ("POST", "PATCH") else None
        found, status, _ = await api.raw(method, path, body, **headers)
        assert (found, status["reason"], status["code"]) == (code, reason, code)
        assert status["kind"] == "Status"

    @pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # it is meant
    async def test_too_large_config_maps(self, api: Api) -> None:
        body = client.V1ConfigMap(
            metadata=client.V1ObjectMeta(name="big"), data={"a": "x" * (1024 * 1024 + 1)}
        )
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_config_map("default", body)
        assert "Too long: may not be more than 1048576 bytes" in refused(error)["message"]


class TestObjects:
    async def test_defaults(self, api: Api) -> None:
        made = await api.core.create_namespaced_pod(
            "default", pod("a", container={"image": "x", "resources": {"limits": {"cpu": "1"}}})
        )
        assert made.spec.dns_policy == "ClusterFirst"
        assert made.spec.service_account_name == "default"
        assert made.spec.termination_grace_period_seconds == 30
        assert made.spec.containers[0].image_pull_policy == "Always"
        assert made.spec.containers[0].resources.requests == {"cpu": "1"}
        assert [one.toleration_seconds for one in made.spec.tolerations] == [300, 300]
        assert made.status.phase == "Pending"
        assert (made.metadata.uid, made.metadata.creation_timestamp) != (None, None)

    async def test_generated_names_differ(self, api: Api) -> None:
        body = client.V1ConfigMap(metadata=client.V1ObjectMeta(generate_name="x-"))
        names = {
            (await api.core.create_namespaced_config_map("default", body)).metadata.name
            for _ in range(3)
        }
        assert len(names) == 3

    async def test_versions_rise_and_stale_writes_conflict(self, api: Api) -> None:
        made = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="c"), data={"a": "1"})
        first = await api.core.create_namespaced_config_map("default", made)
        same = await api.core.replace_namespaced_config_map("c", "default", first)
        assert same.metadata.resource_version == first.metadata.resource_version
        first.data = {"a": "2"}
        second = await api.core.replace_namespaced_config_map("c", "default", first)
        assert int(second.metadata.resource_version) > int(first.metadata.resource_version)
        first.data = {"a": "3"}
        with pytest.raises(ApiException) as error:
            await api.core.replace_namespaced_config_map("c", "default", first)
        body = refused(error)
        assert (body["code"], body["reason"]) == (409, "Conflict")
        assert "the object has been modified" in body["message"]

    async def test_pods_hardly_change(self, api: Api) -> None:
        await api.core.create_namespaced_pod("default", pod("a"))
        with pytest.raises(ApiException) as error:
            await api.core.patch_namespaced_pod("a", "default", {"spec": {"nodeName": "other"}})
        assert "pod updates may not change fields other than" in refused(error)["message"]
        patch = {"metadata": {"labels": {"new": "1"}}, "spec": {"activeDeadlineSeconds": 9}}
        changed = await api.core.patch_namespaced_pod("a", "default", patch)
        assert changed.metadata.labels == {"new": "1"}
        with pytest.raises(ApiException) as error:
            await api.core.patch_namespaced_pod(
                "a", "default", {"spec": {"activeDeadlineSeconds": 10}}
            )
        assert error.value.status == 422

    async def test_kinds_of_patch(self, api: Api) -> None:
        path = "/api/v1/namespaces/default/configmaps/c"
        await api.raw(
            "POST", "/api/v1/namespaces/default/configmaps",
            {"metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}},
        )  # fmt: skip
        merged = await api.raw(
            "PATCH", path, {"data": {"a": None, "c": "3"}},
            Content_Type="application/merge-patch+json",
        )  # fmt: skip
        assert merged[1]["data"] == {"b": "2", "c": "3"}
        operations = [
            {"op": "test", "path": "/data/b", "value": "2"},
            {"op": "replace", "path": "/data/b", "value": "x"},
            {"op": "remove", "path": "/data/c"},
        ]
        kind = {"Content_Type": "application/json-patch+json"}
        assert (await api.raw("PATCH", path, operations, **kind))[1]["data"] == {"b": "x"}
        code, body, _ = await api.raw("PATCH", path, operations, **kind)
        assert (code, body["reason"]) == (422, "Invalid")
        strategic = {"metadata": {"finalizers": ["a.b/c"]}}
        kind = {"Content_Type": "application/strategic-merge-patch+json"}
        await api.raw("PATCH", path, strategic, **kind)
        again = {"metadata": {"finalizers": ["a.b/d"]}}
        found = await api.raw("PATCH", path, again, **kind)
        assert found[1]["metadata"]["finalizers"] == ["a.b/c", "a.b/d"]

    async def test_server_side_apply(self, api: Api) -> None:
        path = "/api/v1/namespaces/default/configmaps/c"
        kind = {"Content_Type": "application/apply-patch+yaml"}

        async def apply(manager: str, force: str = "", **data: str) -> tuple[int, Any]:
            body = {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data,
            }  # fmt: skip
            query = f"?fieldManager={manager}{force}"
            code, found, _ = await api.raw("PATCH", path + query, body, **kind)
            return code, found

        assert (await apply("one", a="1", b="2"))[0] == 201
        assert (await apply("one", a="1", b="2"))[0] == 200
        code, body = await apply("two", a="9")
        assert (code, body["reason"]) == (409, "Conflict")
        assert body["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.a'
        assert body["details"]["causes"][0]["reason"] == "FieldManagerConflict"
        code, body = await apply("two", "&force=true", a="9")
        assert body["data"] == {"a": "9", "b": "2"}
        code, body = await apply("one", c="3")
        assert body["data"] == {"a": "9", "c": "3"}  # its own b went, the lost a stayed
        code, _, _ = await api.raw("PATCH", path, {}, **kind)
        assert code == 400  # no field manager

    async def test_status_is_written_apart(self, api: Api) -> None:
        made = await api.core.create_namespaced_pod(
            "default", pod("a", nodeSelector={"no": "where"})
        )
        body = {"status": {"message": "hello"}, "metadata": {"labels": {"x": "y"}}}
        changed = await api.core.patch_namespaced_pod_status("a", "default", body)
        assert (changed.status.message, changed.metadata.labels) == ("hello", None)
        kept = await api.core.patch_namespaced_pod("a", "default", {"status": {"message": "no"}})
        assert kept.status.message == "hello"
        assert made.metadata.uid == kept.metadata.uid

    async def test_dry_run_leaves_nothing(self, api: Api) -> None:
        await api.core.create_namespaced_pod("default", pod("a"), dry_run="All")
        assert (await api.core.list_namespaced_pod("default")).items == []

    async def test_priority_classes(self, api: Api) -> None:
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod("default", pod("a", priorityClassName="high"))
        assert (
            refused(error)["message"]
            == 'pods "a" is forbidden: no PriorityClass with name high was found'
        )
        body = client.V1PriorityClass(metadata=client.V1ObjectMeta(name="high"), value=7)
        await api.scheduling.create_priority_class(body)
        made = await api.core.create_namespaced_pod("default", pod("a", priorityClassName="high"))
        assert made.spec.priority == 7


class TestLists:
    @pytest.fixture
    async def names(self, cluster: Cluster, api: Api) -> Callable[..., Any]:
        for name, labels in (
            ("a", {"tier": "x", "n": "1"}), ("b", {"tier": "y"}), ("c", {}), ("d", {"tier": "x"}),
        ):  # fmt: skip
            await api.core.create_namespaced_pod("default", pod(name, metadata={"labels": labels}))

        async def listed(**options: Any) -> list[str]:
            found = await api.core.list_namespaced_pod("default", **options)
            return [one.metadata.name for one in found.items]

        return listed

    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            ("tier=x", ["a", "d"]),
            ("tier!=x", ["b", "c"]),
            ("tier", ["a", "b", "d"]),
            ("!tier", ["c"]),
            ("tier in (x,y),!n", ["b", "d"]),
            ("tier notin (x)", ["b", "c"]),
            ("tier==y", ["b"]),
        ],
    )
    async def test_label_selectors(
        self, names: Callable[..., Any], selector: str, expected: list[str]
    ) -> None:
        assert await names(label_selector=selector) == expected

    async def test_field_selectors(self, cluster: Cluster, names: Callable[..., Any]) -> None:
        cluster.control.finish("b", exit_code=1)
        assert await names(field_selector="metadata.name=a") == ["a"]
        assert await names(field_selector="status.phase=Failed") == ["b"]
        node = cluster.control.get("pods", "c")["spec"]["nodeName"]
        assert "c" in await names(field_selector=f"spec.nodeName={node}")

    async def test_pages_are_one_snapshot(self, cluster: Cluster, api: Api, names: Any) -> None:
        first = await api.core.list_namespaced_pod("default", limit=2)
        assert (len(first.items), first.metadata.remaining_item_count) == (2, 2)
        await api.core.delete_namespaced_pod("d", "default", grace_period_seconds=0)
        rest = await api.core.list_namespaced_pod(
            "default", limit=2, _continue=first.metadata._continue
        )
        assert [one.metadata.name for one in rest.items] == ["c", "d"]
        assert rest.metadata.resource_version == first.metadata.resource_version
        cluster.control.compact()
        await api.core.create_namespaced_pod("default", pod("e"))
        cluster.control.compact()
        with pytest.raises(ApiException) as error:
            await api.core.list_namespaced_pod("default", _continue=first.metadata._continue)
        assert (error.value.status, refused(error)["reason"]) == (410, "Expired")


class TestWatches:
    async def test_what_happens_is_seen_in_order(self, cluster: Cluster, api: Api) -> None:
        async with Events(api, resource_version="0") as events:
            await api.core.create_namespaced_pod("default", pod("a", ["true"]))
            await eventually(phase_is(cluster, "a", "Succeeded"))
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
                "a", "default", {"metadata": {"labels": {"on": "yes"}}}
            )
            await events.until("ADDED", "a")
            await api.core.patch_namespaced_pod(
                "a", "default", {"metadata": {"labels": {"on": "no"}}}
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


class TestDeletion:
    async def test_a_running_pod_is_terminating_until_its_node_confirms(
        self, cluster: Cluster, api: Api
    ) -> None:
        cluster.control.behave("default/a", stop_seconds=0.3)
        await api.core.create_namespaced_pod("default", pod("a"))
        await eventually(phase_is(cluster, "a", "Running"))
        gone = await api.core.delete_namespaced_pod("a", "default")
        assert gone.metadata.deletion_grace_period_seconds == 30
        assert (await api.core.read_namespaced_pod("a", "default")).metadata.deletion_timestamp
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod("default", pod("a"))
        assert error.value.status == 409
        await eventually(lambda: cluster.control.get("pods", "a") is None)

    async def test_pending_and_ended_pods_go_at_once(self, cluster: Cluster, api: Api) -> None:
        await api.core.create_namespaced_pod("default", pod("p", nodeSelector={"no": "where"}))
        await api.core.create_namespaced_pod("default", pod("e", ["true"]))
        await eventually(phase_is(cluster, "e", "Succeeded"))
        for name in ("p", "e"):
            await api.core.delete_namespaced_pod(name, "default")
        assert (await api.core.list_namespaced_pod("default")).items == []

    async def test_preconditions(self, api: Api) -> None:
        made = await api.core.create_namespaced_pod("default", pod("a"))
        options = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="other"))
        with pytest.raises(ApiException) as error:
            await api.core.delete_namespaced_pod("a", "default", body=options)
        assert (error.value.status, refused(error)["reason"]) == (409, "Conflict")
        options.preconditions = client.V1Preconditions(uid=made.metadata.uid)
        await api.core.delete_namespaced_pod("a", "default", body=options)

    async def test_finalizers_keep_objects(self, api: Api) -> None:
        meta = client.V1ObjectMeta(name="c", finalizers=["a.b/c"])
        await api.core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=meta))
        await api.core.delete_namespaced_config_map("c", "default")
        kept = await api.core.read_namespaced_config_map("c", "default")
        assert kept.metadata.deletion_timestamp is not None
        with pytest.raises(ApiException) as error:
            await api.core.patch_namespaced_config_map(
                "c", "default", {"metadata": {"finalizers": ["a.b/d"]}}
            )
        assert "no new finalizers can be added" in refused(error)["message"]
        await api.core.patch_namespaced_config_map(
            "c", "default", {"metadata": {"finalizers": None}}
        )
        with pytest.raises(ApiException) as error:
            await api.core.read_namespaced_config_map("c", "default")
        assert error.value.status == 404

    async def test_dependents_follow_their_owner_even_late_ones(
        self, cluster: Cluster, api: Api
    ) -> None:
        owner = await api.core.create_namespaced_config_map(
            "default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="o"))
        )
        ref = {
            "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": owner.metadata.uid,
        }  # fmt: skip
        owned: dict[str, Any] = {"metadata": {"ownerReferences": [ref]}}
        await api.core.create_namespaced_pod("default", pod("a", **owned))
        await api.core.delete_namespaced_config_map("o", "default")
        await eventually(lambda: cluster.control.get("pods", "a") is None)
        await api.core.create_namespaced_pod("default", pod("late", **owned))
        await eventually(lambda: cluster.control.get("pods", "late") is None)

    async def test_orphans_stay(self, cluster: Cluster, api: Api) -> None:
        owner = await api.core.create_namespaced_config_map(
            "default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="o"))
        )
        ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": owner.metadata.uid}
        await api.core.create_namespaced_pod(
            "default", pod("a", metadata={"ownerReferences": [ref]})
        )
        await api.core.delete_namespaced_config_map("o", "default", propagation_policy="Orphan")
        await eventually(lambda: cluster.control.get("configmaps", "o") is None)
        left = await api.core.read_namespaced_pod("a", "default")
        assert left.metadata.owner_references is None

    async def test_collections(self, api: Api) -> None:
        for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
            await api.core.create_namespaced_pod(
                "default", pod(name, metadata={"labels": {"k": label}}, nodeSelector={"no": "x"})
            )
        await api.core.delete_collection_namespaced_pod("default", label_selector="k=x")
        left = await api.core.list_namespaced_pod("default")
        assert [one.metadata.name for one in left.items] == ["c"]

    async def test_a_namespace_empties_before_it_goes(self, cluster: Cluster, api: Api) -> None:
        cluster.control.create_namespace("team")
        cluster.control.behave("team/a", stop_seconds=0.3)
        await api.core.create_namespaced_pod("team", pod("a"))
        await eventually(
            lambda: cluster.control.get("pods", "a", namespace="team")["status"].get("podIP")
        )
        await api.core.delete_namespace("team")
        assert (await api.core.read_namespace("team")).status.phase == "Terminating"
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod("team", pod("b"))
        body = refused(error)
        assert body["message"] == (
            'pods "b" is forbidden: unable to create new content in namespace team because it is '
            "being terminated"
        )
        assert body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
        await eventually(lambda: cluster.control.get("namespaces", "team") is None)


class TestQuota:
    async def test_what_exceeds_it_is_refused_in_the_real_words(
        self, cluster: Cluster, api: Api
    ) -> None:
        spec = client.V1ResourceQuotaSpec(hard={"pods": "2", "requests.cpu": "3"})
        body = client.V1ResourceQuota(metadata=client.V1ObjectMeta(name="q"), spec=spec)
        await api.core.create_namespaced_resource_quota("default", body)
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod("default", pod("a"))
        assert refused(error)["message"] == (
            'pods "a" is forbidden: failed quota: q: must specify requests.cpu for: main'
        )
        two = {"resources": {"requests": {"cpu": "2"}}}
        await api.core.create_namespaced_pod("default", pod("a", container=two))
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod("default", pod("b", container=two))
        assert refused(error)["message"] == (
            'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=2, '
            "used: requests.cpu=2, limited: requests.cpu=3"
        )
        used = await eventually(
            lambda: cluster.control.get("resourcequotas", "q")["status"].get("used")
        )
        assert used == {"pods": "1", "requests.cpu": "2"}


ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: trainer, namespace: default}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list, create]}
- {apiGroups: [""], resources: [pods/log], verbs: [get]}
- {apiGroups: [""], resources: [configmaps], verbs: [get], resourceNames: [mine]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: trainer, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: trainer}
subjects:
- {kind: ServiceAccount, name: airflow, namespace: default}
"""


class TestRights:
    @pytest.fixture
    async def limited(self, cluster: Cluster, tmp_path: Path) -> AsyncIterator[Api]:
        (tmp_path / "rbac.yaml").write_text(ROLE)
        cluster.control.bind_file(str(tmp_path / "rbac.yaml"))
        cluster.control.add_user("system:serviceaccount:default:airflow", token="t")
        connection, found = await connect(cluster, "t")
        async with connection:
            yield found

    async def test_only_what_a_role_grants(self, limited: Api) -> None:
        await limited.core.create_namespaced_pod("default", pod("a"))
        who = 'User "system:serviceaccount:default:airflow" cannot'
        with pytest.raises(ApiException) as error:
            await limited.core.delete_namespaced_pod("a", "default")
        assert refused(error)["message"] == (
            f'pods "a" is forbidden: {who} delete resource "pods" in API group "" in the namespace '
            '"default"'
        )
        with pytest.raises(ApiException) as error:
            await limited.core.list_namespaced_pod("kube-system")
        assert refused(error)["message"] == (
            f'pods is forbidden: {who} list resource "pods" in API group "" in the namespace '
            '"kube-system"'
        )
        with pytest.raises(ApiException) as error:
            await limited.core.list_node()
        assert "at the cluster scope" in refused(error)["message"]
        with pytest.raises(ApiException) as error:
            await limited.core.read_namespaced_config_map("other", "default")
        assert error.value.status == 403
        with pytest.raises(ApiException) as error:
            await limited.core.read_namespaced_config_map("mine", "default")
        assert error.value.status == 404

    @pytest.mark.parametrize(
        ("attributes", "allowed"),
        [
            ({"verb": "create", "resource": "pods", "namespace": "default"}, True),
            (
                {"verb": "get", "resource": "pods", "subresource": "log", "namespace": "default"},
                True,
            ),
            ({"verb": "delete", "resource": "pods", "namespace": "default"}, False),
            ({"verb": "create", "resource": "pods", "namespace": "other"}, False),
            (
                {"verb": "create", "resource": "jobs", "group": "batch", "namespace": "default"},
                False,
            ),
        ],
    )
    async def test_reviews_say_the_same(
        self, limited: Api, attributes: dict[str, Any], allowed: bool
    ) -> None:
        spec = client.V1SelfSubjectAccessReviewSpec(
            resource_attributes=client.V1ResourceAttributes(**attributes)
        )
        answer = await limited.auth.create_self_subject_access_review(
            client.V1SelfSubjectAccessReview(spec=spec)
        )
        assert answer.status.allowed is allowed


class TestScheduling:
    async def test_says_which_resource_is_missing_on_how_many_nodes(
        self, api: Api, cluster: Cluster
    ) -> None:
        gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
        await api.core.create_namespaced_pod("default", pod("a", container=gpu))

        def unschedulable() -> Any:
            conditions = cluster.control.get("pods", "a")["status"].get("conditions") or ()
            return next((one for one in conditions if one["reason"] == "Unschedulable"), None)

        found = await eventually(unschedulable)
        assert (found["type"], found["status"]) == ("PodScheduled", "False")
        assert found["message"] == (
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are "
            "available: 3 No preemption victims found for incoming pod."
        )
        cluster.control.add_node("gpu-node", gpus=1)
        assert (await eventually(phase_is(cluster, "a", "Running")))["spec"][
            "nodeName"
        ] == "gpu-node"

    async def test_taints_and_cordons_keep_pods_away(self, api: Api, cluster: Cluster) -> None:
        for name in ("node-1", "node-2", "node-3"):
            cluster.control.cordon(name)
        await api.core.create_namespaced_pod("default", pod("a"))
        await eventually(lambda: cluster.control.get("pods", "a")["status"].get("conditions"))
        assert cluster.control.get("pods", "a")["spec"].get("nodeName") is None
        cluster.control.cordon("node-2", on=False)
        assert (await eventually(phase_is(cluster, "a", "Running")))["spec"]["nodeName"] == "node-2"

    async def test_gated_pods_wait(self, api: Api, cluster: Cluster) -> None:
        await api.core.create_namespaced_pod("default", pod("a", schedulingGates=[{"name": "x/y"}]))
        conditions = await eventually(
            lambda: cluster.control.get("pods", "a")["status"].get("conditions")
        )
        assert conditions[0]["reason"] == "SchedulingGated"
        await api.core.patch_namespaced_pod(
            "a", "default", [{"op": "remove", "path": "/spec/schedulingGates"}]
        )
        await eventually(phase_is(cluster, "a", "Running"))

    @pytest.mark.parametrize("kind", ["volcano", "coscheduling"])
    async def test_a_gang_is_placed_together_or_not_at_all(self, kind: str) -> None:
        group, version = {
            "volcano": ("scheduling.volcano.sh", "v1beta1"),
            "coscheduling": ("scheduling.x-k8s.io", "v1alpha1"),
        }[kind]
        with Cluster(nodes=[Node(name="n", cpu="3")], installed=[kind]) as cluster:
            document = {
                "apiVersion": f"{group}/{version}", "kind": "PodGroup",
                "metadata": {"name": "g"}, "spec": {"minMember": 4},
            }  # fmt: skip
            cluster.control.create(document)
            meta = {
                "annotations": {"scheduling.k8s.io/group-name": "g"},
                "labels": {"scheduling.x-k8s.io/pod-group": "g"},
            }
            one = {"resources": {"requests": {"cpu": "1"}}}
            scheduler = "volcano" if kind == "volcano" else "default-scheduler"
            for n in range(4):
                cluster.control.create(
                    pod(f"p{n}", metadata=meta, container=one, schedulerName=scheduler)
                )

            def unschedulable() -> Any:
                return [
                    c
                    for p in cluster.control.list("pods")
                    for c in p["status"].get("conditions") or ()
                    if c.get("reason") == "Unschedulable" and "Insufficient cpu" in c["message"]
                ]

            await eventually(lambda: len(unschedulable()) == 4)
            assert all(not p["spec"].get("nodeName") for p in cluster.control.list("pods"))
            if kind == "volcano":
                status = cluster.control.get("podgroups", "g")["status"]
                assert status["conditions"][0]["type"] == "Unschedulable"
                assert status["conditions"][0]["reason"] == "NotEnoughResources"
            cluster.control.add_node("m", cpu="1")
            await eventually(
                lambda: all(p["status"]["phase"] == "Running" for p in cluster.control.list("pods"))
            )
            await eventually(
                lambda: cluster.control.get("podgroups", "g")["status"].get("running") == 4
            )


class TestKueue:
    @pytest.fixture
    def kueue(self) -> Any:
        with Cluster(installed=["kueue"]) as cluster:
            flavor = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2"}]}
            cluster.control.create(
                {
                    "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue",
                    "metadata": {"name": "all"},
                    "spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]},
                }
            )  # fmt: skip
            cluster.control.create(
                {
                    "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue",
                    "metadata": {"name": "team"}, "spec": {"clusterQueue": "all"},
                }
            )  # fmt: skip
            yield cluster

    def member(self, group: str, name: str, command: list[str] | None = None) -> dict[str, Any]:
        return pod(
            name, command, container={"resources": {"requests": {"cpu": "1"}}},
            metadata={
                "labels": {
                    "kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/pod-group-name": group,
                },
                "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
            },
        )  # fmt: skip

    def conditions(self, cluster: Cluster, name: str) -> dict[str, Any]:
        found = cluster.control.get("workloads", name)
        listed = ((found or {}).get("status") or {}).get("conditions") or ()
        return {one["type"]: one for one in listed}

    async def test_a_group_is_admitted_when_it_is_whole_and_its_quota_free(
        self, kueue: Cluster
    ) -> None:
        made = kueue.control.create(self.member("g", "a"))
        assert made["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]
        assert made["metadata"]["finalizers"] == ["kueue.x-k8s.io/managed"]
        assert made["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true"
        assert kueue.control.get("workloads", "g") is None
        kueue.control.create(self.member("g", "b"))
        await eventually(phase_is(kueue, "a", "Running"))
        await eventually(phase_is(kueue, "b", "Running"))
        assert self.conditions(kueue, "g")["Admitted"]["status"] == "True"

        kueue.control.create(self.member("h", "c"))
        kueue.control.create(self.member("h", "d"))
        refusal = await eventually(lambda: self.conditions(kueue, "h").get("QuotaReserved"))
        assert refusal["status"] == "False"
        assert "insufficient unused quota for cpu in flavor f, 2 more needed" in refusal["message"]
        for name in ("a", "b"):
            kueue.control.finish(name)
        await eventually(lambda: self.conditions(kueue, "g").get("Finished"))
        assert "finalizers" not in kueue.control.get("pods", "a")["metadata"]
        await eventually(phase_is(kueue, "d", "Running"))

    async def test_a_failed_pod_keeps_its_finalizer_until_it_is_replaced(
        self, kueue: Cluster
    ) -> None:
        for name in ("a", "b"):
            kueue.control.create(self.member("g", name))
        await eventually(phase_is(kueue, "b", "Running"))
        kueue.control.finish("b", exit_code=1)
        await eventually(lambda: self.conditions(kueue, "g").get("WaitingForReplacementPods"))
        kueue.control.delete("pods", "b")
        kept = kueue.control.get("pods", "b")
        assert kept["metadata"]["finalizers"] == ["kueue.x-k8s.io/managed"]
        kueue.control.create(self.member("g", "b-1"))
        await eventually(lambda: kueue.control.get("pods", "b") is None)
        await eventually(phase_is(kueue, "b-1", "Running"))
        assert self.conditions(kueue, "g")["WaitingForReplacementPods"]["status"] == "False"

    async def test_half_named_groups_are_refused(self, kueue: Cluster) -> None:
        connection, api = await connect(kueue)
        half = self.member("g", "a")
        del half["metadata"]["annotations"]
        async with connection:
            with pytest.raises(ApiException) as error:
                await api.core.create_namespaced_pod("default", half)
        assert refused(error)["message"].startswith(
            'admission webhook "vpod.kb.io" denied the request: metadata.annotations'
        )


class TestScriptedPods:
    @pytest.mark.parametrize(
        ("command", "phase", "exit_code"),
        [
            (["true"], "Succeeded", 0),
            (["false"], "Failed", 1),
            (["exit", "3"], "Failed", 3),
            (["sh", "-c", "echo hello; sleep 0.01; exit 4"], "Failed", 4),
        ],
    )
    async def test_commands(
        self, cluster: Cluster, command: list[str], phase: str, exit_code: int
    ) -> None:
        cluster.control.create(pod("a", command))
        found = await eventually(phase_is(cluster, "a", phase))
        ended = found["status"]["containerStatuses"][0]["state"]["terminated"]
        assert ended["exitCode"] == exit_code
        assert ended["reason"] == ("Error" if exit_code else "Completed")

    async def test_running_pods_are_ready_and_have_addresses(self, cluster: Cluster) -> None:
        for name in ("a", "b"):
            cluster.control.create(pod(name))
        found = [await eventually(phase_is(cluster, name, "Running")) for name in ("a", "b")]
        assert len({one["status"]["podIP"] for one in found}) == 2
        conditions = {one["type"]: one["status"] for one in found[0]["status"]["conditions"]}
        assert (conditions["Ready"], conditions["PodScheduled"]) == ("True", "True")

    async def test_fates(self, cluster: Cluster) -> None:
        for name in ("oom", "evicted", "preempted", "pull"):
            cluster.control.unpullable("none:1")
            image = {"image": "none:1"} if name == "pull" else {}
            cluster.control.create(pod(name, container=image))
        await eventually(phase_is(cluster, "preempted", "Running"))
        cluster.control.oom_kill("oom")
        state = cluster.control.get("pods", "oom")["status"]["containerStatuses"][0]["state"]
        assert (state["terminated"]["exitCode"], state["terminated"]["reason"]) == (
            137,
            "OOMKilled",
        )
        cluster.control.evict_by_node("evicted")
        status = cluster.control.get("pods", "evicted")["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
        targets = [one for one in status["conditions"] if one["type"] == "DisruptionTarget"]
        assert targets[0]["reason"] == "TerminationByKubelet"
        cluster.control.preempt("preempted")
        await eventually(lambda: cluster.control.get("pods", "preempted") is None)
        waiting = cluster.control.get("pods", "pull")["status"]["containerStatuses"][0]["state"]
        assert waiting["waiting"]["reason"] == "ErrImagePull"
        cluster.control.image_back_off("pull")
        waiting = cluster.control.get("pods", "pull")["status"]["containerStatuses"][0]["state"]
        assert waiting["waiting"]["reason"] == "ImagePullBackOff"

    async def test_restarts_inside_a_pod(self, cluster: Cluster) -> None:
        cluster.control.create(pod("a", restartPolicy="OnFailure"))
        await eventually(phase_is(cluster, "a", "Running"))
        cluster.control.finish("a", exit_code=9)
        found = cluster.control.get("pods", "a")["status"]
        assert found["phase"] == "Running"
        assert found["containerStatuses"][0]["restartCount"] == 1
        assert found["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 9

    async def test_deadlines(self, cluster: Cluster) -> None:
        cluster.control.create(pod("a", activeDeadlineSeconds=1))
        found = await eventually(phase_is(cluster, "a", "Failed"))
        assert found["status"]["reason"] == "DeadlineExceeded"

    async def test_logs(self, cluster: Cluster, api: Api) -> None:
        cluster.control.create(pod("a"))
        await eventually(phase_is(cluster, "a", "Running"))
        with pytest.raises(ApiException) as error:
            await api.core.read_namespaced_pod_log("a", "default", container="other")
        assert refused(error)["message"] == "container other is not valid for pod a"
        cluster.control.print("a", "one\ntwo\nthree\n")
        assert await api.core.read_namespaced_pod_log("a", "default") == "one\ntwo\nthree\n"
        assert await api.core.read_namespaced_pod_log("a", "default", tail_lines=1) == "three\n"
        assert await api.core.read_namespaced_pod_log("a", "default", limit_bytes=5) == "one\nt"
        stamped = await api.core.read_namespaced_pod_log("a", "default", timestamps=True)
        moment, _, text = stamped.splitlines()[0].partition(" ")
        assert text == "one"
        code, _, _ = await api.raw(
            "GET", f"/api/v1/namespaces/default/pods/a/log?sinceTime={moment}&sinceSeconds=3"
        )
        assert code == 422
        response = await api.core.read_namespaced_pod_log(
            "a", "default", follow=True, _preload_content=False
        )
        async with response:
            assert await response.content.readline() == b"one\n"
            cluster.control.print("a", "four\n")
            cluster.control.finish("a")
            assert (await response.content.read()).endswith(b"four\n")

    async def test_waiting_pods_have_no_log(self, cluster: Cluster, api: Api) -> None:
        cluster.control.behave("default/a", creating=True)
        cluster.control.create(pod("a"))
        await eventually(
            lambda: cluster.control.get("pods", "a")["status"].get("containerStatuses")
        )
        with pytest.raises(ApiException) as error:
            await api.core.read_namespaced_pod_log("a", "default")
        assert refused(error)["message"] == (
            'container "main" in pod "a" is waiting to start: ContainerCreating'
        )

    async def test_a_thousand_pods_take_little(self) -> None:
        with Cluster(nodes=[Node(name="n", pods=2000, cpu="2000")]) as cluster:
            began = time.process_time()
            cluster.control.create_all([pod(f"p{n}") for n in range(1000)])
            await eventually(
                lambda: cluster.control.get("pods", "p999")["status"]["phase"] == "Running"
            )
            assert time.process_time() - began < 3.0  # about half a second; the margin is for CI


class TestNodes:
    async def test_a_lost_node_leaves_its_pods_terminating(
        self, cluster: Cluster, api: Api
    ) -> None:
        cluster.control.create(pod("a"))
        node = (await eventually(phase_is(cluster, "a", "Running")))["spec"]["nodeName"]
        cluster.control.node_lost(node, evict_after=0.05)
        lost = await eventually(
            lambda: (
                cluster.control.get("pods", "a")["status"].get("reason") == "NodeLost"
                and cluster.control.get("pods", "a")
            )
        )
        assert lost["metadata"]["deletionTimestamp"]
        ready = {one["type"]: one for one in lost["status"]["conditions"]}["Ready"]
        assert (ready["status"], ready["reason"]) == ("False", "NodeNotReady")
        found = await api.core.read_node(node)
        assert {one.type: one.status for one in found.status.conditions} == {"Ready": "Unknown"}
        assert "node.kubernetes.io/unreachable" in {one.key for one in found.spec.taints}
        cluster.control.node_back(node)
        await eventually(lambda: cluster.control.get("pods", "a") is None)

    async def test_a_fenced_node_gives_its_pods_up(self, cluster: Cluster) -> None:
        cluster.control.create(pod("a"))
        node = (await eventually(phase_is(cluster, "a", "Running")))["spec"]["nodeName"]
        cluster.control.node_lost(node, evict_after=0)
        await eventually(
            lambda: cluster.control.get("pods", "a")["metadata"].get("deletionTimestamp")
        )
        cluster.control.fence_node(node)
        assert cluster.control.get("pods", "a") is None

    async def test_evictions_ask_the_disruption_budget(self, cluster: Cluster, api: Api) -> None:
        meta = {"labels": {"app": "x"}}
        cluster.control.create(pod("a", metadata=meta))
        await eventually(phase_is(cluster, "a", "Running"))
        spec = client.V1PodDisruptionBudgetSpec(
            min_available=1, selector=client.V1LabelSelector(match_labels={"app": "x"})
        )
        budget = client.V1PodDisruptionBudget(metadata=client.V1ObjectMeta(name="b"), spec=spec)
        await api.policy.create_namespaced_pod_disruption_budget("default", budget)
        eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="a"))
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod_eviction("a", "default", eviction)
        body = refused(error)
        assert (body["code"], body["details"]["causes"][0]["reason"]) == (429, "DisruptionBudget")
        await api.policy.delete_namespaced_pod_disruption_budget("b", "default")
        async with Events(api, resource_version="0") as events:
            await api.core.create_namespaced_pod_eviction("a", "default", eviction)
            await events.until("DELETED", "a")
        reasons = {c["type"]: c.get("reason") for c in events.objects[-1]["status"]["conditions"]}
        assert reasons["DisruptionTarget"] == "EvictionByEvictionAPI"

    async def test_a_drain_empties_a_node(self, cluster: Cluster) -> None:
        cluster.control.create(pod("a"))
        node = (await eventually(phase_is(cluster, "a", "Running")))["spec"]["nodeName"]
        assert cluster.control.drain(node) == []
        await eventually(lambda: cluster.control.get("pods", "a") is None)


class TestJobs:
    def job(self, **spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"template": {"spec": pod("x", spec.pop("command"))["spec"]}, **spec},
        }  # fmt: skip

    def conditions(self, cluster: Cluster) -> dict[str, Any]:
        status = cluster.control.get("jobs", "j")["status"]
        return {one["type"]: one.get("reason") for one in status.get("conditions") or ()}

    async def test_indexed_jobs_complete(self, cluster: Cluster) -> None:
        cluster.control.create(
            self.job(command=["true"], completions=3, parallelism=2, completionMode="Indexed")
        )
        await eventually(lambda: "Complete" in self.conditions(cluster))
        status = cluster.control.get("jobs", "j")["status"]
        assert (status["succeeded"], status["completedIndexes"]) == (3, "0,1,2")
        assert {p["spec"]["hostname"] for p in cluster.control.list("pods")} == {
            "j-0",
            "j-1",
            "j-2",
        }

    async def test_too_many_failures_end_a_job(self, cluster: Cluster) -> None:
        cluster.control.create(self.job(command=["false"], backoffLimit=1))
        await eventually(lambda: "Failed" in self.conditions(cluster))
        assert self.conditions(cluster)["Failed"] == "BackoffLimitExceeded"
        assert len(cluster.control.list("pods")) == 2


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
            await eventually(lambda: cluster.control.open_watches() == 1)
            assert cluster.control.cut_watches() == 1
            await events.ended()
        assert isinstance(events.error, aiohttp.ClientError)

    async def test_duplicated_and_late_events(self, cluster: Cluster, api: Api) -> None:
        cluster.control.duplicate_events()
        cluster.control.delay_events(pattern="default/slow", seconds=0.2)
        async with Events(api, resource_version="0") as events:
            await eventually(lambda: cluster.control.open_watches() == 1)
            cluster.control.create(pod("slow", nodeSelector={"no": "where"}))
            cluster.control.create(pod("fast", nodeSelector={"no": "where"}))
            await events.until("MODIFIED", "slow")
        assert events.seen.index(("ADDED", "fast")) < events.seen.index(("ADDED", "slow"))
        slow = [kind for kind, name in events.seen if name == "slow"]
        assert slow[:4] == ["ADDED", "ADDED", "MODIFIED", "MODIFIED"]

    async def test_a_server_that_is_away(self, cluster: Cluster, api: Api) -> None:
        async with Events(api) as events:
            await eventually(lambda: cluster.control.open_watches() == 1)
            cluster.control.server_away(seconds=0.3)
            await events.ended()
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await api.core.list_namespaced_pod("default")
        await asyncio.sleep(0.5)
        assert (await api.core.list_namespaced_pod("default")).items == []

    async def test_requests_are_counted(self, cluster: Cluster, api: Api) -> None:
        await api.core.create_namespaced_pod("default", pod("a"))
        await api.core.list_namespaced_pod("default")
        await api.core.list_namespaced_pod("default")
        counts = cluster.control.request_counts(agent="OpenAPI-Generator")
        assert counts == {"create pods": 1, "list pods": 2}


def start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


class TestProcess:
    async def test_runs_on_its_own(self, tmp_path: Path) -> None:
        file = tmp_path / "config"
        command = [sys.executable, "-m", "tests.kubernetes.emulator", "--kubeconfig", str(file)]
        process = start([*command, "--install", "volcano"])
        try:
            assert process.stdout is not None
            word, url = process.stdout.readline().split()
            assert word == "ready"
            connection = await config.new_client_from_config(str(file))
            async with connection:
                core: Any = client.CoreV1Api(connection)
                await core.create_namespaced_pod("default", pod("a"))
                control = remote_control(url)
                await eventually(
                    lambda: control.get(plural="pods", name="a")["status"].get("podIP")
                )
                control.finish(name="a", exit_code=5)
                found = await core.read_namespaced_pod("a", "default")
            assert found.status.container_statuses[0].state.terminated.exit_code == 5
            assert control.request_counts(agent="OpenAPI")["create pods"] == 1
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
            process.stdout.close()


@pytest.mark.e2e
class TestProcessPods:
    @pytest.fixture
    def machines(self) -> Any:
        with Cluster(kubelet="processes") as started:
            yield started

    async def log(self, cluster: Cluster, name: str, **options: Any) -> str:
        connection, api = await connect(cluster)
        async with connection:
            text = await api.core.read_namespaced_pod_log(name, "default", **options)
        return str(text)

    async def test_environment_and_expansion(self, machines: Cluster) -> None:
        machines.control.create(
            {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "env"},
                "data": {"KEY": "from-map"},
            }
        )  # fmt: skip
        env = [
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$(A)-$(NONE)-$$(A)"},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "env", "key": "KEY"}}},
        ]
        container = {
            "env": env, "envFrom": [{"prefix": "P_", "configMapRef": {"name": "env"}}],
            "args": ["$(A)"], "workingDir": "/usr", "resources": {"limits": {"cpu": "1500m"}},
        }  # fmt: skip
        script = 'echo "$B|$K|$P_KEY|$CPU|$0|$(pwd)|$(hostname)"; echo $IP'
        machines.control.create(
            pod("env", ["sh", "-c", script.replace("$(", "$$(")], container=container)
        )
        found = await eventually(phase_is(machines, "env", "Succeeded"))
        text = await self.log(machines, "env")
        assert text.splitlines() == [
            "1-$(NONE)-$(A)|from-map|from-map|2|1|/usr|env", found["status"]["podIP"],
        ]  # fmt: skip

    async def test_volumes_appear_where_they_are_mounted(self, machines: Cluster) -> None:
        machines.control.create(
            {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"},
                "data": {"run.sh": "#!/bin/sh\necho ran\n", "other": "x"},
            }
        )  # fmt: skip
        init = [
            {
                "name": "prepare", "image": "x", "command": ["sh", "-c", "echo made > /scratch/here"],
                "volumeMounts": [{"name": "work", "mountPath": "/scratch"}],
            }
        ]  # fmt: skip
        script = (
            "/opt/nowhere/run.sh; cat /scratch/here /sub; touch /opt/nowhere/x 2>/dev/null || echo ro; "
            "cat /info/labels"
        )
        mounts = [
            {"name": "files", "mountPath": "/opt/nowhere"},
            {"name": "work", "mountPath": "/scratch"},
            {"name": "files", "mountPath": "/sub", "subPath": "other"},
            {"name": "info", "mountPath": "/info"},
        ]
        labels = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
        volumes = [
            {"name": "files", "configMap": {"name": "files", "defaultMode": 0o755}},
            {"name": "work", "emptyDir": {}},
            {"name": "info", "downwardAPI": {"items": [labels]}},
        ]
        machines.control.create(
            pod(
                "volumes", ["sh", "-c", script], container={"volumeMounts": mounts}, volumes=volumes,
                initContainers=init, metadata={"labels": {"a": "b"}},
            )
        )  # fmt: skip
        await eventually(phase_is(machines, "volumes", "Succeeded"))
        assert await self.log(machines, "volumes") == 'ran\nmade\nxro\na="b"'
        assert not os.path.lexists("/opt/nowhere")  # noqa: ASYNC240 - quick

    async def test_annotations_reach_a_running_pod(self, machines: Cluster) -> None:
        item = {"path": "go", "fieldRef": {"fieldPath": "metadata.annotations['go']"}}
        machines.control.create(
            pod(
                "held", ["sh", "-c", "until grep -q now /info/go; do sleep 0.02; done; echo released"],
                container={"volumeMounts": [{"name": "info", "mountPath": "/info"}]},
                volumes=[{"name": "info", "downwardAPI": {"items": [item]}}],
            )
        )  # fmt: skip
        await eventually(phase_is(machines, "held", "Running"))
        connection, api = await connect(machines)
        async with connection:
            await api.core.patch_namespaced_pod(
                "held", "default", {"metadata": {"annotations": {"go": "now"}}}
            )
        await eventually(phase_is(machines, "held", "Succeeded"))
        assert await self.log(machines, "held") == "released\n"

    async def test_pods_find_each_other_by_name(self, machines: Cluster) -> None:
        machines.control.create(
            {
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "team"},
                "spec": {
                    "clusterIP": "None", "selector": {"job": "x"}, "publishNotReadyAddresses": True,
                },
            }
        )  # fmt: skip
        server = (
            "import os, socket; s = socket.create_server((os.environ['IP'], 7000)); "
            "c, who = s.accept(); c.sendall(b'hello\\n')"
        )
        asker = (
            "import socket, time\n"
            "for _ in range(500):\n"
            "    try:\n"
            "        s = socket.create_connection(('first.team.default.svc.cluster.local', 7000))\n"
            "        break\n"
            "    except OSError: time.sleep(0.02)\n"
            "print(s.recv(99).decode(), socket.gethostbyname(socket.gethostname()))\n"
        )
        labels = {"metadata": {"labels": {"job": "x"}}, "subdomain": "team"}
        env = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
        machines.control.create(pod("second", ["python", "-c", asker], **labels))
        machines.control.create(
            pod("first", ["python", "-c", server], container={"env": env}, **labels)
        )
        found = await eventually(phase_is(machines, "second", "Succeeded"))
        assert (await self.log(machines, "second")).split() == ["hello", found["status"]["podIP"]]

    @pytest.mark.parametrize(
        ("name", "command", "code", "reason"),
        [
            ("exits", ["sh", "-c", "exit 7"], 7, "Error"),
            ("signal", ["sh", "-c", "sh -c 'kill -9 $$$$'"], 137, "Error"),
            ("missing", ["no-such-program"], 128, "StartError"),
        ],
    )
    async def test_exit_codes(
        self, machines: Cluster, name: str, command: list[str], code: int, reason: str
    ) -> None:
        machines.control.create(pod(name, command))
        found = await eventually(phase_is(machines, name, "Failed"))
        ended = found["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (code, reason)

    async def test_deletion_asks_first_and_kills_then(self, machines: Cluster) -> None:
        polite = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done"
        machines.control.create(pod("polite", ["sh", "-c", polite]))
        # Process 1 of a container ignores TERM where it has no handler, here as there.
        machines.control.create(pod("deaf", ["sleep", "1000"], terminationGracePeriodSeconds=1))
        for name in ("polite", "deaf"):
            await eventually(phase_is(machines, name, "Running"))
        connection, api = await connect(machines)
        async with connection, Events(api, resource_version="0") as events:
            began = time.monotonic()
            for name in ("polite", "deaf"):
                machines.control.delete("pods", name)
            await events.until("DELETED", "polite")
            assert time.monotonic() - began < 1
            await events.until("DELETED", "deaf")
            assert time.monotonic() - began >= 1
        last = {one["metadata"]["name"]: one for one in events.objects}
        codes = {
            name: last[name]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
            for name in ("polite", "deaf")
        }
        assert codes == {"polite": 0, "deaf": 137}

    async def test_restarts_and_previous_logs(self, machines: Cluster) -> None:
        script = "echo $(date +%s%N); test -e /scratch/x && sleep 1000; touch /scratch/x; exit 3"
        machines.control.create(
            pod(
                "again", ["sh", "-c", script.replace("$(", "$$(")], restartPolicy="OnFailure",
                container={"volumeMounts": [{"name": "work", "mountPath": "/scratch"}]},
                volumes=[{"name": "work", "emptyDir": {}}], terminationGracePeriodSeconds=0,
            )
        )  # fmt: skip

        def restarted() -> Any:
            status = machines.control.get("pods", "again")["status"]
            one = (status.get("containerStatuses") or [{}])[0]
            return one if one.get("restartCount") and "running" in one["state"] else None

        found = await eventually(restarted)
        assert found["lastState"]["terminated"]["exitCode"] == 3
        first = await self.log(machines, "again", previous=True)
        assert await eventually(lambda: first)
        assert first != await self.log(machines, "again")

    async def test_readiness_probes(self, machines: Cluster) -> None:
        probe = {"exec": {"command": ["test", "-e", "/scratch/ready"]}, "periodSeconds": 1}
        machines.control.create(
            pod(
                "probed", ["sh", "-c", "sleep 0.3; touch /scratch/ready; sleep 1000"],
                container={
                    "readinessProbe": probe,
                    "volumeMounts": [{"name": "work", "mountPath": "/scratch"}],
                },
                volumes=[{"name": "work", "emptyDir": {}}],
            )
        )  # fmt: skip
        found = await eventually(phase_is(machines, "probed", "Running"))
        assert found["status"]["containerStatuses"][0]["ready"] is False
        await eventually(
            lambda: machines.control.get("pods", "probed")["status"]["containerStatuses"][0][
                "ready"
            ]
        )

    async def test_nothing_outlives_the_cluster(self) -> None:
        with Cluster(kubelet="processes") as cluster:
            script = "sleep 1000 & setsid sleep 1001 & wait"
            cluster.control.create(pod("a", ["sh", "-c", script]))
            await eventually(phase_is(cluster, "a", "Running"))
            run = next(iter(cluster.parts.kubelet.runs.values()))
            parent = cluster.parts.kubelet._pods[run.entry.uid].processes["main"].pid  # type: ignore[attr-defined]

            def tree() -> list[int]:
                first = int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])
                below = Path(f"/proc/{first}/task/{first}/children").read_text().split()
                return [first, *map(int, below)] if len(below) >= 2 else []

            pids = await eventually(tree)
        for pid in (parent, *pids):
            await eventually(functools.partial(_ended, pid))


def _ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize(
    ("security", "refused"),
    [
        pytest.param({}, True, id="nothing-said"),
        pytest.param(
            {
                "runAsNonRoot": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            False,
            id="restricted",
        ),
    ],
)
def test_a_namespace_may_enforce_pod_security(security: dict[str, Any], refused: bool):
    with Cluster() as cluster:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        cluster.control.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": labels}}
        )
        container = {"name": "main", "image": "busybox", "securityContext": security}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {"containers": [container]},
        }
        expected = pytest.raises(Exception, match='violates PodSecurity "restricted:latest"')
        with expected if refused else contextlib.nullcontext():
            cluster.control.create(pod, namespace="n")
