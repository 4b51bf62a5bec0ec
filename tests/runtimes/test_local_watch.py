"""What a watch tells of instances that run: progress, open ports, readiness."""

from __future__ import annotations

import json
import socket
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_training.agent.files import read_json, write_json
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.runtimes.folders.attempt_state import AgentLiveness
from airflow_training.runtimes.folders.observation import observe
from airflow_training.runtimes.local import watch
from airflow_training.runtimes.local.liveness import read_attempt_state
from airflow_training.runtimes.local.scan import Scanner
from tests.contracts.runtime import JOB, Harness, watching
from tests.runtimes.local_runs import attempt_folder, python_script
from tests.waiting import until

pytestmark = pytest.mark.e2e


async def test_progress_reaches_the_watcher(harness: Harness) -> None:
    reporter = """
import time
from airflow_training.agent.progress import report
report(step=1, total_steps=9)
report(step=2, total_steps=9, epoch=0.5, samples=128, metrics={"loss": 0.25})
time.sleep(3600)
"""
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("sleeper", command=python_script(reporter))])
        await seen.until(lambda now: any(i.progress and i.progress.step == 2 for i in now.values()))
        found = seen.now["sleeper", 0].progress
        assert found is not None
        assert (found.total_steps, found.epoch, found.samples) == (9, 0.5, 128)
        assert found.metrics == {"loss": 0.25}
        assert found.time is not None


async def test_the_last_progress_is_told_with_the_end(harness: Harness) -> None:
    script = """echo '{"step": 7}' >> $TRAINING_PROGRESS_FILE"""
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("quick", command=("sh", "-c", script))])
        found = await seen.state("quick", 0, "succeeded")
        assert found.progress is not None
        assert found.progress.step == 7


SERVE = """
import socket, sys, time
time.sleep(0.3)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(3600)
"""


async def test_a_command_starts_once_its_port_can_be_bound(
    harness: Harness, tmp_path: Path
) -> None:
    """Without SO_REUSEADDR, as most frameworks bind."""
    binds = python_script("import os, socket; socket.socket().bind(('', int(os.environ['PORT'])))")
    with socket.create_server(("", 0)) as before:
        port = before.getsockname()[1]
        spec = harness.spec("quick", command=binds, env={"PORT": str(port)}, ports={"main": port})
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([spec])
            waits = await seen.state("quick", 0, "pending", reason="CheckingEnvironment")
            assert waits.message == f"waits until port {port} is free: it is still in use"
            before.close()
            await seen.state("quick", 0, "succeeded")


async def test_nobody_takes_the_port_of_an_instance_that_waits(
    harness: Harness, tmp_path: Path
) -> None:
    port = (await harness.runtime.prepare(harness.run, JOB))["broken"][0].ports["main"]
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create(
            [harness.spec("broken", ports={"main": port}, in_place_seconds=60)]
        )
        found = await seen.state("broken", 0, "failed", in_place=True)
        stranger = socket.socket()
        with stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("", port))
        binds = python_script(f"import socket; socket.socket().bind(('', {port}))")
        again = harness.spec("broken", attempt=1, command=binds, ports={"main": port})
        await harness.runtime.restart_process(harness.ref("broken", uid=found.uid), again)
        await seen.state("broken", 0, "succeeded")


async def test_an_agent_from_before_an_upgrade_is_understood_and_never_handed_a_new_order(
    harness: Harness, tmp_path: Path
) -> None:
    """What it was started with had no version, and fields that are not read any more."""
    folder = attempt_folder(tmp_path, harness, "broken")
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("broken", in_place_seconds=60)])
        await seen.state("broken", 0, "failed", in_place=True)
        written = read_json(folder.spec) or {}
        del written["version"]
        write_json(folder.spec, {**written, "run": "r", "controller": "c", "gpus": []})
        standing = read_attempt_state(folder)
        assert standing is not None
        assert standing.life is AgentLiveness.WAITING
        before = observe(standing)
        assert before is not None
        assert (before.state, before.exit_code, before.uid) == ("failed", 3, written["uid"])
        again = harness.spec("broken", attempt=1, in_place_seconds=60)
        refused = await harness.runtime.restart_process(
            harness.ref("broken", uid=before.uid), again
        )
        assert refused.result == "refused"
        assert "another version" in refused.message
        await harness.runtime.dismiss([harness.ref("broken", uid=before.uid)])
        await seen.state("broken", 0, "failed", in_place=False)
        assert (await harness.runtime.create([again]))[0].result == "created"


async def test_an_open_port_is_seen(harness: Harness) -> None:
    role = ResolvedRole(name="sleeper", replicas=1, ports={"main": 1})
    addresses = await harness.runtime.prepare(harness.run, ResolvedJob(name="c", roles=(role,)))
    ports = addresses["sleeper"][0].ports
    command = (*python_script(SERVE), str(ports["main"]))
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("sleeper", command=command, ports=ports)])
        first = await seen.state("sleeper", 0, "running")
        assert not first.port_open
        found = await seen.state("sleeper", 0, "running", port_open=True)
        assert found.address == f"127.0.0.1:{ports['main']}"


def ready_template(probe: dict[str, object]) -> dict[str, object]:
    timing = {"periodSeconds": 0.1, "initialDelaySeconds": 0.1}
    container = {"name": "main", "readinessProbe": {**timing, **probe}}
    return {"spec": {"containers": [container]}}


@pytest.mark.parametrize(
    "probe",
    [
        pytest.param({"exec": {"command": ["test", "-e", "$FLAG"]}}, id="exec"),
        pytest.param({"tcpSocket": {"port": "main"}}, id="tcp"),
        pytest.param({"httpGet": {"port": "main", "path": "/ok"}}, id="http"),
    ],
)
async def test_readiness_is_probed(
    harness: Harness, tmp_path: Path, probe: dict[str, object]
) -> None:
    role = ResolvedRole(name="sleeper", replicas=1, ports={"main": 1})
    addresses = await harness.runtime.prepare(harness.run, ResolvedJob(name="c", roles=(role,)))
    ports = addresses["sleeper"][0].ports
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "ok").touch()
    go = tmp_path / "go"
    serve = f"""
import http.server, os, time
while not os.path.exists({str(go)!r}):
    time.sleep(0.02)
os.chdir({str(tmp_path / "www")!r})
http.server.ThreadingHTTPServer(("127.0.0.1", {ports["main"]}),
    http.server.SimpleHTTPRequestHandler).serve_forever()
"""
    text = json.dumps(ready_template(probe)).replace("$FLAG", str(go))
    async with watching(harness.runtime, harness.run) as seen:
        spec = harness.spec(
            "sleeper",
            command=python_script(serve),
            ports=ports,
            resolved=ResolvedRole(name="sleeper", replicas=2, template=json.loads(text)),
        )
        await harness.runtime.create([spec])
        running = await seen.state("sleeper", 0, "running")
        assert not running.ready
        assert running.address_live
        go.touch()
        await seen.state("sleeper", 0, "running", ready=True)


async def test_an_instance_without_a_probe_is_ready_when_it_runs(harness: Harness) -> None:
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("sleeper")])
        assert (await seen.state("sleeper", 0, "running")).ready


async def test_a_watch_looks_at_progress_only_while_nothing_happens(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def note(name: str) -> None:
        look = getattr(Scanner, name)

        def noted(*arguments: Any) -> Any:
            looks.append(name)
            return look(*arguments)

        monkeypatch.setattr(Scanner, name, noted)

    for name in ("poll", "poll_progress", "poll_ports"):
        note(name)
    monkeypatch.setattr(watch, "_LOOK_SECONDS", 3600.0)
    monkeypatch.setattr(watch, "_PROGRESS_SECONDS", 0.05)
    await harness.runtime.create([harness.spec("sleeper", i) for i in range(2)])
    async with watching(harness.runtime, harness.run) as seen:
        await seen.until(lambda now: all(i.state == "running" for i in now.values()))
        await until(lambda: looks[-10:] == ["poll_progress"] * 10)


def test_a_watch_looks_at_progress_each_second_and_at_everything_each_five() -> None:
    now = 0.0
    rhythm = watch._PollSchedule(lambda: now)
    scanner: Any = SimpleNamespace(
        poll=lambda _: "all", poll_progress=lambda: "progress", poll_ports=lambda: "ports"
    )
    looks: Counter[Any] = Counter()
    while now < 60:
        now += rhythm.pause(ports=False)
        looks[rhythm.due(scanner)()] += 1
    assert looks == {"all": 12, "progress": 59}  # one more is due now
