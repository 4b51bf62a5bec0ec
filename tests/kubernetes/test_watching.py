"""The shared watch, against a server that says things at the worst moment."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from airflow_training.control.reports import ProgressReport
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes import watching
from airflow_training.runtimes.kubernetes.api_errors import ResourceVersionExpired
from airflow_training.runtimes.kubernetes.progress import stored_report
from airflow_training.runtimes.kubernetes.watching import NamespaceWatch
from airflow_training.runtimes.port import InstanceUpdate, Snapshot
from tests.kubernetes.samples import a_job, a_pod
from tests.waiting import PATIENCE, until


def a_running_pod(uid: str = "u-1", version: int = 5) -> dict[str, Any]:
    made = a_pod(a_job())
    made["metadata"] |= {"uid": uid, "resourceVersion": str(version)}
    made["spec"]["nodeName"] = "node-1"
    started = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    made["status"] = {
        "phase": "Running",
        "containerStatuses": [{"name": "main", "state": started, "started": True}],
    }
    return made


def ready(pod: dict[str, Any]) -> dict[str, Any]:
    pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return pod


POD = a_running_pod()
LABELS = POD["metadata"]["labels"]
RUN = RunRef(
    uid=LABELS["airflow-training/run"],
    job=LABELS["app.kubernetes.io/name"],
    namespace="team",
    controller=LABELS["airflow-training/controller"],
    generation=1,
)


class Server:
    """Lists what it is told to, when it is told to, and says what it is told to."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = list(pods)
        self.version = 10
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked = asyncio.Event()
        self.events: asyncio.Queue[tuple[str, dict[str, Any]] | Exception] = asyncio.Queue()

    async def list(self, *_: Any, **__: Any) -> tuple[list[dict[str, Any]], str]:
        found = list(self.pods)
        version = str(self.version)
        self.asked.set()
        await self.may_answer.wait()
        return found, version

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        while True:
            told = await self.events.get()
            if isinstance(told, Exception):
                raise told
            yield told


def a_watch(server: Server) -> NamespaceWatch:
    return NamespaceWatch(server, "team", RUN.controller, silent_seconds=30.0)  # type: ignore[arg-type]  # only what it asks for


async def test_a_pod_that_goes_while_it_is_listed_does_not_come_back():
    server = Server(POD)
    watch = a_watch(server)
    with anyio.fail_after(PATIENCE):
        async with contextlib.aclosing(watch.follow(RUN)) as first:
            assert len((await anext(first)).instances) == 1
            server.may_answer.clear()
            server.asked.clear()
            async with contextlib.aclosing(watch.follow(RUN)) as second:
                snapshot = asyncio.create_task(anext(second))
                await server.asked.wait()
                server.events.put_nowait(("DELETED", a_running_pod(version=11)))
                await anext(first)  # gone
                server.may_answer.set()
                assert await snapshot == Snapshot(instances=())


@pytest.mark.parametrize("error", [KeyError("metadata"), ValueError("odd")])
async def test_a_watch_that_breaks_tells_its_followers_and_starts_again(error):
    server = Server(POD)
    watch = a_watch(server)
    with anyio.fail_after(PATIENCE):
        async with contextlib.aclosing(watch.follow(RUN)) as changes:
            await anext(changes)
            server.events.put_nowait(error)
            with pytest.raises(RuntimeUnavailable, match="the watch broke"):
                await anext(changes)
        async with contextlib.aclosing(watch.follow(RUN)) as changes:
            assert len((await anext(changes)).instances) == 1
            server.events.put_nowait(("ADDED", a_running_pod("u-2", 12)))
            while not isinstance(change := await anext(changes), InstanceUpdate):
                pass
            assert change.instance.uid == "u-2"


async def test_a_pod_that_nobody_can_read_hides_no_others():
    odd = copy.deepcopy(a_running_pod("u-2"))
    odd["metadata"] |= {"name": "odd", "annotations": ["not", "a", "mapping"]}
    watch = a_watch(Server(odd, POD))
    with anyio.fail_after(PATIENCE):
        async with contextlib.aclosing(watch.follow(RUN)) as changes:
            assert [each.uid for each in (await anext(changes)).instances] == [
                POD["metadata"]["uid"]
            ]


def a_stuck_pod() -> dict[str, Any]:
    """Return one that has had a node for long, and no container for as long."""
    made = a_running_pod()
    placed = {"type": "PodScheduled", "status": "True"}
    held_up = {"waiting": {"reason": "ErrImagePull", "message": "timed out"}}
    made["status"] = {
        "phase": "Pending",
        "conditions": [placed | {"lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "containerStatuses": [{"name": "main", "state": held_up}],
    }
    return made


@pytest.mark.parametrize("was_away", [False, True])
async def test_what_was_stuck_before_an_outage_is_given_up_only_if_it_still_is(was_away):
    watch = NamespaceWatch(
        Server(a_stuck_pod()),  # type: ignore[arg-type]  # only what it asks for
        "team",
        RUN.controller,
        silent_seconds=30.0,
        was_away=was_away,
    )
    with anyio.fail_after(PATIENCE):
        async with contextlib.aclosing(watch.follow(RUN)) as changes:
            snapshot = await anext(changes)
    assert [each.state for each in snapshot.instances] == ["pending" if was_away else "failed"]


@pytest.mark.e2e
async def test_an_old_list_takes_nothing_away_that_is_newer():
    server = Server()
    watch = a_watch(server)
    with anyio.fail_after(PATIENCE):
        async with contextlib.aclosing(watch.follow(RUN)) as first:
            assert await anext(first) == Snapshot(instances=())
            slow = server.may_answer = asyncio.Event()
            server.asked.clear()
            server.events.put_nowait(ResourceVersionExpired(410, "Expired", "too old"))
            await server.asked.wait()  # the whole list is made, and on its way
            server.pods, server.version = [a_running_pod(version=15)], 15
            server.may_answer = asyncio.Event()
            server.may_answer.set()
            async with contextlib.aclosing(watch.follow(RUN)) as second:
                assert len((await anext(second)).instances) == 1
                slow.set()
                server.events.put_nowait(("MODIFIED", ready(a_running_pod(version=16))))
                change = await anext(second)
                assert isinstance(change, InstanceUpdate)
                assert change.instance.ready


async def test_progress_in_object_storage_reaches_followers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    looks: list[object] = []

    def look(uri: str) -> Any:
        looks.append(found := stored_report(uri))
        return found

    monkeypatch.setattr(watching, "stored_report", look)
    pod = a_running_pod()
    line = tmp_path / "master-0.json"
    pod["metadata"]["annotations"]["airflow-training/progress"] = f"file://{line}"
    watch = NamespaceWatch(
        Server(pod),  # type: ignore[arg-type]  # only what it asks for
        "team",
        RUN.controller,
        silent_seconds=30.0,
        progress_seconds=0.01,
    )
    with anyio.fail_after(PATIENCE):
        async with contextlib.aclosing(watch.follow(RUN)) as changes:
            assert isinstance(first := await anext(changes), Snapshot)
            assert first.instances[0].progress is None
            line.write_text("not yet whole")
            seen = len(looks)
            await until(lambda: len(looks) > seen + 1)
            assert not any(looks)
            said = {"step": 3, "total_steps": 9, "metrics": {"loss": 0.5}}
            line.write_text(json.dumps({"role": "master", "progress": said, "environment": "{}"}))
            change = await anext(changes)
            assert isinstance(change, InstanceUpdate)
            assert change.instance.progress == ProgressReport(
                step=3, total_steps=9, metrics={"loss": 0.5}
            )
            assert change.instance.environment == ("{}",)
