"""GPUs are handed out: living instances never share one, whoever was killed at whatever moment."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent.files import AttemptFolder, read_json, write_json
from airflow_training.runtimes.clock import steady_now
from airflow_training.runtimes.folders.paths import locked
from airflow_training.runtimes.local import node
from airflow_training.runtimes.local.gpus import GpuBook
from airflow_training.runtimes.local.node import visible_gpus
from tests.contracts.runtime import Harness, watching
from tests.runtimes.creators import Creator, let_go
from tests.runtimes.local_runs import agent_pid, alive, attempt_folder, local_harness, python_script
from tests.waiting import wait_until

ONE, TWO = {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "2"}
UUIDS = ("GPU-aa10", "GPU-aa11", "GPU-bb12", "GPU-cc13")


def ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine's GPUs be listed anew, as some seconds later."""
    monkeypatch.setattr(node, "_listing", node._GpuInventory())


@pytest.fixture(autouse=True)
def four_gpus(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let `nvidia-smi` list four GPUs, for us and for the processes we start."""
    tools = tmp_path_factory.mktemp("tools")
    listed = "".join(
        f"GPU {i}: NVIDIA H100 80GB HBM3 (UUID: {uuid})\n  MIG 1g.10gb Device 0: (UUID: MIG-{i})\n"
        for i, uuid in enumerate(UUIDS)
    )
    (tools / "list").write_text(listed)
    tool = tools / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n[ \"$1\" = --list-gpus ] && exec cat '{tools}/list'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    ask_again(monkeypatch)
    return tools


def assigned(folder: AttemptFolder) -> str | None:
    """Return `CUDA_VISIBLE_DEVICES` of the command."""
    spec = read_json(folder.spec)
    assert spec is not None
    devices: str | None = spec["env"].get("CUDA_VISIBLE_DEVICES")
    return devices


def of(local_dir: Path, harness: Harness, index: int, attempt: int = 0) -> AttemptFolder:
    name = f"attempt-0.0.{attempt}"
    return AttemptFolder(local_dir / harness.run.uid / f"sleeper-{index}" / name)


async def create(harness: Harness, *indexes: int, **changes: Any) -> list[str]:
    specs = [harness.spec("sleeper", index, **changes) for index in indexes]
    return [outcome.result for outcome in await harness.runtime.create(specs)]


async def free(harness: Harness) -> int | None:
    return (await harness.runtime.cluster_view()).nodes[0].free_gpus


# which there are ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        pytest.param(None, ("0", "1", "2", "3"), id="all"),
        pytest.param("", (), id="none"),
        pytest.param("-1", (), id="none-as-people-write-it"),
        pytest.param("2, 1", ("2", "1"), id="numbers-in-their-order"),
        pytest.param("GPU-bb12,GPU-cc", ("2", "3"), id="uuids-and-their-beginnings"),
        pytest.param("GPU-aa", (), id="a-beginning-of-two"),
        pytest.param("1,7,2", ("1",), id="cuda-stops-at-what-is-not-there"),
        pytest.param("1,GPU-aa11,2", ("1",), id="cuda-stops-at-one-that-was-named"),
        pytest.param("MIG-0", ("MIG-0",), id="a-slice"),
    ],
)
def test_the_creators_own_devices_bound_them(
    monkeypatch: pytest.MonkeyPatch, bound: str | None, expected: tuple[str, ...]
) -> None:
    if bound is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", bound)
    assert visible_gpus() == expected
    assert node.this_node().gpus == len(expected)


async def test_a_machine_without_gpus_has_none(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    ask_again(monkeypatch)
    assert visible_gpus() == ()
    assert await free(harness) == 0
    assert await create(harness, 0) == ["created"]
    assert not (tmp_path / ".gpus").exists()


def test_a_gpu_that_is_lost_is_noticed_and_a_tool_that_hangs_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, four_gpus: Path
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    tool, listed = four_gpus / "nvidia-smi", four_gpus / "list"
    assert visible_gpus() == ("0", "1", "2", "3")
    left = [line for line in listed.read_text().splitlines() if "GPU 2" not in line]
    listed.write_text("\n".join(left))
    tool.write_text(tool.read_text().replace("exec cat", "cat") + "exit 15\n")
    assert visible_gpus() == ("0", "1", "2", "3"), "asked a moment ago"
    now += 20.0
    assert visible_gpus() == ("0", "1", "3")
    assert node.this_node().gpus == 3
    tool.write_text("#!/bin/sh\nexit 9\n")
    now += 20.0
    assert visible_gpus() == ("0", "1", "3")


# who gets which ----------------------------------------------------------------------------------
@pytest.mark.e2e
async def test_instances_of_one_job_get_devices_of_their_own(
    harness: Harness, tmp_path: Path
) -> None:
    assert await free(harness) == 4
    assert await create(harness, 0, 1, resources=TWO) == ["created", "created"]
    assert [assigned(of(tmp_path, harness, i)) for i in (0, 1)] == ["0,1", "2,3"]
    assert await free(harness) == 0


@pytest.mark.e2e
async def test_the_command_sees_them(harness: Harness, tmp_path: Path) -> None:
    tell = python_script(
        "import json, os; print(json.dumps([os.environ.get(n) for n in"
        " ('CUDA_VISIBLE_DEVICES', 'CUDA_DEVICE_ORDER', 'NVIDIA_VISIBLE_DEVICES')]))"
    )
    folder = attempt_folder(tmp_path, harness, "quick")
    await harness.runtime.create([harness.spec("quick", command=tell, resources=ONE)])
    wait_until(folder.exit.exists)
    assert json.loads(folder.log.read_text()) == ["0", "PCI_BUS_ID", None]


@pytest.mark.e2e
async def test_who_asks_for_none_sees_what_the_creator_sees(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    await create(harness, 0)
    await create(harness, 1, resources=ONE)
    assert [assigned(of(tmp_path, harness, i)) for i in (0, 1)] == ["3,1", "3"]


@pytest.mark.e2e
async def test_the_jobs_own_environment_goes_first(harness: Harness, tmp_path: Path) -> None:
    await create(harness, 0, resources=ONE, env={"CUDA_VISIBLE_DEVICES": "1"})
    assert assigned(of(tmp_path, harness, 0)) == "1"


@pytest.mark.e2e
async def test_where_none_is_free_an_instance_waits_for_one_that_is(
    harness: Harness, tmp_path: Path
) -> None:
    async with local_harness(tmp_path) as other:
        assert await create(other, 0, 1, resources=TWO) == ["created", "created"]
        assert await create(harness, 0, resources=ONE) == ["refused"]
        async with watching(other.runtime, other.run) as seen:
            await other.runtime.delete([other.ref("sleeper", 1)], grace_seconds=0)
            await seen.gone("sleeper", 1)
        assert await free(harness) == 2
        assert await create(harness, 0, resources=ONE) == ["created"]
        assert assigned(of(tmp_path, harness, 0)) == "2"


@pytest.mark.e2e
async def test_a_restarted_instance_gets_the_same_again(harness: Harness, tmp_path: Path) -> None:
    await create(harness, 0, 1, resources=ONE)
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.delete(
            [harness.ref("sleeper", 0), harness.ref("sleeper", 1)], grace_seconds=0
        )
        await seen.gone("sleeper", 0)
        await seen.gone("sleeper", 1)
    assert await create(harness, 1, attempt=1, resources=ONE) == ["created"]
    assert await create(harness, 0, attempt=1, resources=TWO) == ["created"]
    assert assigned(of(tmp_path, harness, 1, 1)) == "1"
    assert assigned(of(tmp_path, harness, 0, 1)) == "0,2"


@pytest.mark.e2e
async def test_what_cannot_be_started_keeps_none(harness: Harness) -> None:
    assert await create(harness, 0, resources=TWO, command=()) == ["impossible"]
    assert await free(harness) == 4


# crashes and races -------------------------------------------------------------------------------
@pytest.mark.e2e
async def test_two_runs_at_once_share_none_and_their_killed_creators_hold_none(
    harness: Harness, tmp_path: Path
) -> None:
    async with local_harness(tmp_path) as other:
        instances = [{"resources": ONE}] * 2
        creators = [Creator(tmp_path, each.run, *instances) for each in (harness, other)]
        try:
            let_go(*creators)
            results = [result for creator in creators for result, _ in creator.answer()]
        finally:
            for creator in creators:
                creator.end()
        assert results == ["created"] * 4
        folders = [of(tmp_path, each, i) for each in (harness, other) for i in (0, 1)]
        # their creators are gone, and every instance keeps what it has
        assert sorted(str(assigned(folder)) for folder in folders) == ["0", "1", "2", "3"]
        assert await free(harness) == 0
        pids = [agent_pid(of(tmp_path, other, i)) for i in (0, 1)]
        await other.runtime.remove(other.run)
        assert not any(alive(pid) for pid in pids)
        assert await free(harness) == 2


def a_claim(tmp_path: Path, *, age: float) -> AttemptFolder:
    """Claim device 0 for an attempt that nobody has started."""
    folder = AttemptFolder(tmp_path / "run" / "worker-0" / "attempt-0.0.0")
    folder.control.mkdir(parents=True)
    book = GpuBook(tmp_path)
    assert book.claim(folder, uid="u", count=1) == ["0"]
    claim = read_json(tmp_path / ".gpus" / "0.json")
    write_json(tmp_path / ".gpus" / "0.json", {**(claim or {}), "at": steady_now() - age})
    return folder


@pytest.mark.parametrize("written", [False, True], ids=["before-the-order", "after-the-order"])
@pytest.mark.parametrize(
    ("age", "being_created", "free_ones"),
    [
        pytest.param(1.0, False, 3, id="its-agent-may-be-on-its-way"),
        pytest.param(3600.0, True, 3, id="its-creator-lives"),
        pytest.param(3600.0, False, 4, id="its-creator-was-killed"),
        pytest.param(-3600.0, False, 4, id="the-machine-was-restarted"),
    ],
)
def test_a_claim_whose_instance_never_came_is_void_in_the_end(
    tmp_path: Path, written: bool, age: float, being_created: bool, free_ones: int
) -> None:
    folder = a_claim(tmp_path, age=age)
    if written:
        write_json(folder.spec, {"uid": "u"})
    lock = folder.create_lock if being_created else tmp_path / "another.lock"
    with locked(lock):
        assert GpuBook(tmp_path).free() == free_ones


def test_a_claim_ends_with_its_folder(tmp_path: Path) -> None:
    folder = a_claim(tmp_path, age=0)
    folder.run.rename(tmp_path / "elsewhere")
    assert GpuBook(tmp_path).free() == 4


@pytest.mark.e2e
async def test_a_device_is_free_once_its_killed_agents_leftovers_are_gone(
    harness: Harness, tmp_path: Path
) -> None:
    await create(harness, 0, resources=TWO)
    pid = agent_pid(of(tmp_path, harness, 0))
    os.kill(pid, 9)
    wait_until(lambda: not alive(pid))
    assert await free(harness) == 4
    end_record = read_json(of(tmp_path, harness, 0).exit)
    assert end_record is not None
    assert end_record["reason"] == "AgentLost"
