"""Agents by themselves: started twice or late, on a full disk, beside a clock that jumps."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent.files import AttemptFolder, read_json, write_json
from airflow_training.agent.proc import descendants
from airflow_training.runtimes.local.runtime import LocalRuntime
from airflow_training.runtimes.port import Cursor, ReleaseAnswer
from tests.contracts.runtime import Harness, watching
from tests.runtimes.local_runs import agent_pid, alive, attempt_folder, local_harness, python_script
from tests.runtimes.local_trees import run_hydra
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e


def start_agent_by_hand(local_dir: Path, folder: Path) -> str:
    """Return what an agent answers that nobody's lock has announced."""
    program = next((local_dir / ".agent").glob("*.pyz"))
    command = [sys.executable, "-I", "-S", str(program), "start", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout)["result"])


async def test_an_agent_needs_its_archive_no_more_once_it_runs(
    harness: Harness, tmp_path: Path
) -> None:
    pids = await run_hydra(harness, tmp_path)
    held = attempt_folder(tmp_path, harness, "quick")
    await harness.runtime.create([harness.spec("quick", held=True)])
    shutil.rmtree(tmp_path / ".agent")
    async with watching(harness.runtime, harness.run) as seen:
        found = await seen.state("sleeper", 0, "running")
        wait_until(attempt_folder(tmp_path, harness, "sleeper").environment.exists)
        await harness.runtime.delete([harness.ref("sleeper")], grace_seconds=0.2, dump_stacks=True)
        await seen.gone("sleeper", 0)
        await harness.runtime.release([harness.ref("quick")], ReleaseAnswer(kind="Confirmation"))
        await seen.state("quick", 0, "succeeded")
    assert not any(alive(pid) for pid in pids)
    ended = read_json(attempt_folder(tmp_path, harness, "sleeper").exit)
    assert ended is not None
    assert (ended["uid"], ended["reason"]) == (found.uid, "Deleted"), "written by its agent"
    assert not (held.control / "agent-error.txt").exists()


async def test_a_release_is_found_without_being_told(harness: Harness, tmp_path: Path) -> None:
    made = await harness.runtime.create([harness.spec("quick", held=True)])
    async with watching(harness.runtime, harness.run) as seen:
        answer = {"uid": made[0].ref.uid, "kind": "Confirmation", "addresses": {}}
        write_json(attempt_folder(tmp_path, harness, "quick").release, answer)
        await seen.state("quick", 0, "succeeded")


async def test_only_one_agent_can_live_per_instance(harness: Harness, tmp_path: Path) -> None:
    """Whoever starts it, and whatever the creators' lock says."""
    await harness.runtime.create([harness.spec("sleeper")])
    folder = attempt_folder(tmp_path, harness, "sleeper")
    assert start_agent_by_hand(tmp_path, folder.path) == "busy"


async def test_an_attempt_that_has_ended_is_not_run_again(harness: Harness, tmp_path: Path) -> None:
    """Its creator was stopped between the check and the start, and another was faster."""
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("quick")])
        await seen.state("quick", 0, "succeeded")
    folder = attempt_folder(tmp_path, harness, "quick")
    assert start_agent_by_hand(tmp_path, folder.path) == "busy"
    assert folder.log.read_bytes() == b"quick\n"


@pytest.mark.parametrize("fence", ["tombstone", "fence"])
async def test_an_agent_that_starts_late_sees_that_it_must_not(
    harness: Harness, tmp_path: Path, fence: str
) -> None:
    """Its creator was stopped between the check and the start."""
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("quick")])
        await seen.state("quick", 0, "succeeded")
    folder = attempt_folder(tmp_path, harness, "quick")
    folder.exit.unlink()
    folder.state.unlink()
    write_json(getattr(folder, fence), {"generation": 4})
    assert start_agent_by_hand(tmp_path, folder.path) == "refused"
    assert not folder.state.exists()


async def test_a_create_that_broke_down_is_continued(tmp_path: Path) -> None:
    async with local_harness(tmp_path) as harness:
        broken = LocalRuntime(local_dir=tmp_path, python="/nonexistent/python")
        failed = (await broken.create([harness.spec("quick")]))[0]
        assert failed.result == "error"
        assert "/nonexistent/python" in failed.message
        async with watching(harness.runtime, harness.run) as seen:
            assert seen.now == {}
            made = (await harness.runtime.create([harness.spec("quick")]))[0]
            assert made.result == "created"
            await seen.state("quick", 0, "succeeded")


async def test_one_program_starts_four_instances(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start of Python would cost as much as all the rest."""
    specs = [harness.spec(kind, i) for kind in ("quick", "broken") for i in range(2)]
    started = []

    class Counted(subprocess.Popen[Any]):
        def __init__(self, command: Any, **options: Any) -> None:
            started.append(command)
            super().__init__(command, **options)

    monkeypatch.setattr(subprocess, "Popen", Counted)
    outcomes = await harness.runtime.create(specs)
    assert [o.result for o in outcomes] == ["created"] * 4
    assert len(started) == 1


async def test_the_log_holds_exactly_what_the_command_wrote(harness: Harness) -> None:
    text = "ä" * 1000
    script = f"import sys; print({text!r}); sys.stderr.write('err\\n')"
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("quick", command=python_script(script))])
        await seen.state("quick", 0, "succeeded")
    chunk = await harness.runtime.read_log(harness.ref("quick"), Cursor(offset=1990), limit=100)
    assert chunk.data == b"\xc3\xa4" * 5 + b"\nerr\n"
    assert chunk.end


async def test_an_end_that_cannot_be_written_now_is_written_later(
    harness: Harness, tmp_path: Path
) -> None:
    """As on a full disk: a training that succeeded must not be told as a lost agent."""
    go = tmp_path / "go"
    command = ("sh", "-c", f"while [ ! -e {go} ]; do sleep 0.01; done")
    await harness.runtime.create([harness.spec("quick", command=command)])
    folder = attempt_folder(tmp_path, harness, "quick")
    pid = agent_pid(folder)
    folder.exit.mkdir()  # nothing can be put in its place
    go.touch()
    wait_until(lambda: not descendants(pid))

    def was_touched(since: int) -> bool:
        return folder.control.stat().st_mtime_ns != since

    for _ in range(3):  # each try leaves its mark on the folder
        wait_until(partial(was_touched, folder.control.stat().st_mtime_ns))
    assert alive(pid)
    wait_until(lambda: not [*folder.control.glob("*.tmp")])  # it may be trying again right now
    folder.exit.rmdir()
    wait_until(lambda: not alive(pid))
    assert (read_json(folder.exit) or {})["reason"] == "Completed"


async def test_a_record_that_cannot_be_written_does_not_end_the_training(
    harness: Harness, tmp_path: Path
) -> None:
    go, output = tmp_path / "go", tmp_path / "models"
    command = ("sh", "-c", f"while [ ! -e {go} ]; do sleep 0.01; done")
    await harness.runtime.create([harness.spec("quick", command=command, output_uri=str(output))])
    folder = attempt_folder(tmp_path, harness, "quick")
    pid = agent_pid(folder)
    wait_until(lambda: (read_json(folder.state) or {}).get("phase") == "running")
    folder.state.rename(folder.control / "state.before")
    folder.state.mkdir()
    go.touch()  # from here on it wants to record that it uploads
    wait_until(lambda: not alive(pid))
    assert (read_json(folder.exit) or {})["reason"] == "Completed"
    folder.state.rmdir()
    (folder.control / "state.before").rename(folder.state)


async def test_a_clock_that_jumps_shortens_no_grace(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tmp_path / "ready"
    command = (
        "sh",
        "-c",
        f"trap 'sleep 1; exit 0' TERM; touch {ready}; while :; do sleep 0.05; done",
    )
    await harness.runtime.create([harness.spec("sleeper", command=command)])
    folder = attempt_folder(tmp_path, harness, "sleeper")
    wait_until(ready.exists)
    await harness.runtime.delete([harness.ref("sleeper")], grace_seconds=20)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    async with watching(harness.runtime, harness.run) as seen:
        await seen.gone("sleeper", 0)
    assert (read_json(folder.exit) or {})["exit_code"] == 0


def open_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def test_an_agent_keeps_no_descriptors_of_those_started_before_it(
    harness: Harness, tmp_path: Path
) -> None:
    await harness.runtime.create([harness.spec("sleeper", i) for i in range(4)])
    run = tmp_path / harness.run.uid
    pids = [agent_pid(AttemptFolder(run / f"sleeper-{i}" / "attempt-0.0.0")) for i in range(4)]
    # one that is just reading a file has one more for a moment; a leak stays
    wait_until(lambda: len({open_descriptors(pid) for pid in pids}) == 1)
