"""The official asyncio client of one user of an emulated cluster, and what its tests wait for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from kubernetes_asyncio import client, config
from kubernetes_asyncio.client import ApiException

from tests.kubernetes.emulator import ADMIN_TOKEN, Cluster
from tests.waiting import PATIENCE, until

POD_FOREVER = ["sleep", "inf"]
MERGE = "application/merge-patch+json"
"""Of the forms of a patch the emulator knows this one; the client would send another."""


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


async def connect(cluster: Cluster, token: str = ADMIN_TOKEN) -> tuple[client.ApiClient, Api]:
    connection = await config.new_client_from_config_dict(cluster.kubeconfig(token=token))
    return connection, Api(cluster, connection, token)


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
        await asyncio.wait_for(self._open.wait(), PATIENCE)
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
        await until(lambda: event in self.seen)

    async def ended(self) -> None:
        await asyncio.wait_for(self._task, PATIENCE)
