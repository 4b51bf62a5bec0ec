"""The pieces of the agent that stand by themselves."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_training.agent import control, limits, proc
from airflow_training.agent.attempt import Attempt
from airflow_training.agent.files import AttemptFolder, read_json, write_json
from airflow_training.agent.limits import MemoryLimit, read_counter
from airflow_training.agent.notify import notify
from airflow_training.agent.package import agent_program, remote_shell_script
from airflow_training.agent.process_tree import ProcessTree
from airflow_training.agent.progress import report
from airflow_training.agent.remote_shell import parse
from airflow_training.agent.upload import describe, local_target, upload
from airflow_training.runtimes.folders.paths import RunFolder
from tests.waiting import wait_until


# processes ---------------------------------------------------------------------------------------
@pytest.mark.e2e
def test_only_the_very_process_is_killed() -> None:
    innocent = subprocess.Popen(["sleep", "600"])
    try:
        start = proc.start_time(innocent.pid)
        assert start is not None
        assert not proc.kill_exactly(innocent.pid, start + 1, signal.SIGKILL)
        assert not proc.kill_exactly(innocent.pid, None, signal.SIGKILL)
        assert innocent.poll() is None
        assert proc.kill_exactly(innocent.pid, start, signal.SIGKILL)
        assert innocent.wait() == -signal.SIGKILL
        assert not proc.kill_exactly(innocent.pid, start, signal.SIGKILL)
    finally:
        innocent.kill()
        innocent.wait()


@pytest.mark.e2e
def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["true"])
    wait_until(lambda: proc.start_time(child.pid) is None)
    assert child.pid not in proc.descendants(os.getpid())
    child.wait()


@pytest.mark.e2e
def test_marked_processes_are_found() -> None:
    child = subprocess.Popen(["sleep", "600"], env={**os.environ, "MARK": "a-b"})
    try:
        wait_until(lambda: child.pid in proc.marked_processes(["MARK=a-b"]))
        assert proc.marked_processes(["MARK=a-b"]) == {child.pid: proc.start_time(child.pid)}
        assert proc.marked_processes(["MARK=a"]) == {}
        assert child.pid in proc.descendants(os.getpid())
    finally:
        child.kill()
        child.wait()


@pytest.mark.e2e
def test_a_command_name_with_brackets_is_read_right(tmp_path: Path) -> None:
    odd = tmp_path / "a) R (b"
    odd.symlink_to("/bin/sleep")
    child = subprocess.Popen([str(odd), "600"])
    try:
        assert proc.start_time(child.pid) is not None
        assert child.pid in proc.descendants(os.getpid())
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["/bin/sh", "-c", "TOKEN=hush train"], "sh"),
        (["sh", "/opt/run.sh", "hush"], "sh run.sh"),
        (["/opt/bin/python3.11", "src/train.py", "hush"], "python3.11 train.py"),
        (["curl", "https://ada:hush@host"], "curl"),
        (["login", "hush"], "login"),
        (["trainer: key=hush/1"], "trainer"),
        (["a\nb"], "a?b"),
    ],
)
def test_the_name_of_a_process_shows_no_argument_that_may_be_a_secret(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], shown: str
) -> None:
    monkeypatch.setattr(
        proc, "arguments_of", lambda *_: [*(each.encode() for each in arguments), b""]
    )
    assert proc.command_of(1) == shown


@pytest.mark.parametrize(
    ("first", "told"),
    [
        ("#!/usr/bin/pyton3\n", "its interpreter /usr/bin/pyton3 was not found"),
        ("#! /usr/bin/pyton3 -u\n", "its interpreter /usr/bin/pyton3 was not found"),
        ("#!/bin/sh\r\ntrue\r\n", r"its interpreter '/bin/sh\r' was not found"),
        ("\x7fELF", "its interpreter was not found"),
        (None, "No such file or directory"),
    ],
)
def test_a_script_whose_interpreter_is_missing_names_it(
    tmp_path: Path, first: str | None, told: str
) -> None:
    script = tmp_path / "run"
    if first is not None:
        script.write_text(first, newline="")
    error = FileNotFoundError(2, "No such file or directory")
    assert proc.cannot_run(str(script), error) == f"{script}: {told}"


@pytest.mark.e2e
def test_helpers_of_python_are_not_taken_for_a_training_that_goes_on() -> None:
    helper = "from multiprocessing.resource_tracker import main;main(0)"
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
        for program in (helper, "input()")
    ]
    try:
        wait_until(lambda: all(proc.arguments_of(each.pid, "cmdline")[1:] for each in processes))
        ends = [proc.ends_with_its_parent(each.pid) for each in processes]
        assert ends == [True, False]
    finally:
        for each in processes:
            each.communicate()


# files -------------------------------------------------------------------------------------------
def test_a_json_file_is_never_seen_half(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.json"
    write_json(path, {"a": 1}, durable=True)
    write_json(path, {"a": 2})
    assert read_json(path) == {"a": 2}
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", ["", "{", "[1]", "\xff"])
def test_what_is_no_object_is_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content.encode("latin-1"))
    assert read_json(path) is None
    assert read_json(tmp_path / "none") is None


# notify ------------------------------------------------------------------------------------------
@pytest.mark.e2e
def test_everybody_is_told_and_dead_sockets_are_removed(tmp_path: Path) -> None:
    living, dead = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
    living.bind(str(tmp_path / "living"))
    dead.bind(str(tmp_path / "dead"))
    dead.close()
    with living:
        notify(tmp_path, "worker-0")
        assert living.recv(100) == b"worker-0"
    assert not (tmp_path / "dead").exists()
    notify(tmp_path / "nobody", "x")


# progress ------------------------------------------------------------------------------------------
def test_progress_is_one_line_per_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "progress"
    monkeypatch.setenv("TRAINING_PROGRESS_FILE", str(path))
    report(step=1)
    report(step=2, epoch=1.5, metrics={"loss": 1})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [set(line) - {"time"} for line in lines] == [{"step"}, {"step", "epoch", "metrics"}]
    assert lines[1]["metrics"] == {"loss": 1.0}


def test_progress_outside_a_job_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINING_PROGRESS_FILE", raising=False)
    report(step=1)


@pytest.mark.e2e
def test_the_progress_helper_is_light() -> None:
    script = "import sys, airflow_training.agent.progress; print('airflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


# the remote shell ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["host", "a", "b c"], ("host", "a b c")),
        (["-x", "host", "cmd"], ("host", "cmd")),
        (["-o", "A=b", "-p", "22", "host", "cmd"], ("host", "cmd")),
        (["-oA=b", "-p22", "host", "cmd"], ("host", "cmd")),
        (["-xqp", "22", "host", "cmd"], ("host", "cmd")),
        (["-l", "me", "you@host", "cmd", "-n"], ("host", "cmd -n")),
        (["--", "host", "cmd"], ("host", "cmd")),
    ],
)
def test_the_command_line_of_ssh(arguments: list[str], expected: tuple[str, str]) -> None:
    assert parse(arguments) == expected


@pytest.mark.parametrize("arguments", [[], ["host"], ["-p", "22", "host"]])
def test_a_remote_shell_needs_host_and_command(arguments: list[str]) -> None:
    with pytest.raises(ValueError, match="usage"):
        parse(arguments)


# output --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("/a/b", Path("/a/b")),
        ("file:///a/b%20c", Path("/a/b c")),
        ("s3://a/b", None),
    ],
)
def test_which_addresses_are_folders(uri: str, expected: Path | None) -> None:
    assert local_target(uri) == expected


def test_a_digest_depends_on_names_and_content_only(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "f").write_text("x")
    same = describe(tmp_path / "one")["digest"]
    assert describe(tmp_path / "two")["digest"] == same
    (tmp_path / "two" / "sub" / "f").rename(tmp_path / "two" / "f")
    assert describe(tmp_path / "two")["digest"] != same
    assert describe(tmp_path / "one") == {"bytes": 1, "digest": same, "files": 1}


@pytest.mark.parametrize("target", ["plain", "fsspec"])
def test_no_link_brings_out_what_lies_elsewhere(tmp_path: Path, target: str) -> None:
    secret, output, copied = tmp_path / "secret", tmp_path / "output", tmp_path / "copied"
    secret.mkdir()
    (secret / "key").write_text("secret")
    output.mkdir()
    (output / "step-10.pt").write_text("weights")
    (output / "best.pt").symlink_to("step-10.pt")
    (output / "key").symlink_to(secret / "key")
    (output / "up").symlink_to("../secret/key")
    (output / "all").symlink_to(secret)
    uri = str(copied) if target == "plain" else f"local://{copied}"
    said: list[str] = []
    answer = upload(output, uri, say=said.append)
    found = {path.name: path.read_text() for path in copied.rglob("*")}
    assert found == {"step-10.pt": "weights", "best.pt": "weights"}
    assert answer["files"] == 2
    assert answer["bytes"] == 14
    assert said == ["not uploaded, as links lead out of the output folder: 'key', 'up'"]
    linked = tmp_path / "linked"
    linked.symlink_to(secret)
    assert upload(linked, str(tmp_path / "none"), say=said.append)["files"] == 0


def test_an_end_is_as_late_as_it_took_whatever_the_clock_was_set_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began = SimpleNamespace(_started_at=1000.0, _started_steady=time.monotonic() - 5.0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 1005.0 <= Attempt._finished_at(cast("Attempt", began)) < 2000.0


# limits ----------------------------------------------------------------------------------------------
def fake_cgroup(folder: Path, *, controllers: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text("")
    return folder


def test_a_cgroup_is_made_where_memory_can_be_limited(tmp_path: Path) -> None:
    parent = fake_cgroup(tmp_path / "cg", controllers="cpu memory")
    limit = MemoryLimit(1 << 20, name="x", parent=parent)
    assert limit.folder == parent / "training-x"
    assert not limit.warning
    assert (parent / "cgroup.subtree_control").read_text() == "+memory"
    assert (limit.folder / "memory.max").read_text() == str(1 << 20)
    (limit.folder / "memory.events").write_text("low 0\noom_kill 0\n")
    assert not limit.oom_killed
    (limit.folder / "memory.events").write_text("low 0\noom_kill 1\n")
    assert limit.oom_killed


@pytest.mark.parametrize("controllers", [None, "cpu"])
def test_without_a_cgroup_there_is_a_warning(tmp_path: Path, controllers: str | None) -> None:
    parent = None
    if controllers is not None:
        fake_cgroup(tmp_path / "top", controllers=controllers)
        parent = fake_cgroup(tmp_path / "top" / "cg", controllers=controllers)
    limit = MemoryLimit(1 << 20, name="x", parent=parent)
    assert limit.folder is None
    assert "RLIMIT_DATA" in limit.warning


@pytest.mark.parametrize(
    ("exit_code", "alone", "log", "killed"),
    [
        pytest.param(137, False, b"", True, id="its-own-kill"),
        pytest.param(
            1,
            False,
            b"RuntimeError: DataLoader worker (pid 22048) is killed by signal: Killed.\n",
            True,
            id="of-a-loader",
        ),
        pytest.param(1, False, b"Signal 9 (SIGKILL) received by PID 7\n", True, id="of-a-rank"),
        pytest.param(1, False, b"ValueError: no such column\n", False, id="of-somebody-beside-us"),
        pytest.param(1, True, b"", True, id="nobody-beside-us"),
        pytest.param(0, True, b"Killed\n", False, id="it-did-without"),
    ],
)
def test_a_child_killed_for_memory_explains_any_exit_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    exit_code: int,
    alone: bool,
    log: bytes,
    killed: bool,
) -> None:
    events = tmp_path / "memory.events"
    events.write_text("oom_kill 3\n")
    monkeypatch.setattr(limits, "_surrounding_events", lambda: events)
    limit = MemoryLimit(None, name="x", parent=None, alone=alone)
    with (tmp_path / "log").open("wb", buffering=0) as file:
        file.write(log)
        assert not limit.killed_it(exit_code, log=file.fileno()), "nothing was killed yet"
        events.write_text("oom_kill 4\n")
        assert limit.killed_it(exit_code, log=file.fileno()) == killed


def test_a_kill_in_a_cgroup_of_our_own_is_ours(tmp_path: Path) -> None:
    limit = MemoryLimit(1, name="x", parent=fake_cgroup(tmp_path / "cg", controllers="memory"))
    assert limit.folder is not None
    (limit.folder / "memory.events").write_text("oom_kill 1\n")
    assert limit.killed_it(1, log=-1)


def test_no_limit_needs_no_warning() -> None:
    assert not MemoryLimit(None, name="x", parent=None).warning


def test_counters(tmp_path: Path) -> None:
    path = tmp_path / "memory.events"
    path.write_text("oom 2\noom_kill 1\n")
    assert read_counter(path, "oom_kill") == 1
    assert read_counter(path, "other") == 0
    assert read_counter(tmp_path / "none", "oom") == 0


# the package -----------------------------------------------------------------------------------------
def test_the_program_is_packed_once_and_named_by_its_content(tmp_path: Path) -> None:
    first = agent_program(tmp_path)
    made = first.stat().st_mtime_ns
    assert agent_program(tmp_path) == first
    assert first.stat().st_mtime_ns == made
    assert [p.name for p in tmp_path.iterdir()] == [first.name]


@pytest.mark.e2e
def test_the_program_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    program = agent_program(tmp_path)
    command = [sys.executable, "-I", "-S", "-X", "importtime", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "usage: agent" in done.stderr
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    heavy = {"asyncio", "typing", "subprocess", "threading", "logging", "inspect", "http.client"}
    assert not imported & heavy
    assert "airflow_training.agent.instance" in imported


@pytest.mark.e2e
def test_the_remote_shell_is_executable(tmp_path: Path) -> None:
    script = remote_shell_script(tmp_path, python=sys.executable)
    done = subprocess.run([str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "HOST COMMAND" in done.stderr


def test_another_users_process_in_the_session_of_a_command_disturbs_nobody(monkeypatch) -> None:
    def refuse(*_: object) -> bool:
        raise PermissionError

    monkeypatch.setattr(os, "killpg", refuse)
    monkeypatch.setattr(proc, "kill_exactly", refuse)
    monkeypatch.setattr(proc, "session_members", lambda _: {7: 70})
    control._hang_up(7)


def test_what_is_another_users_is_named_and_not_waited_for(monkeypatch) -> None:
    def refuse(*_: object) -> bool:
        raise PermissionError

    monkeypatch.setattr(proc, "has_children", lambda: True)
    monkeypatch.setattr(proc, "descendants", lambda _: {7: 70})
    monkeypatch.setattr(proc, "kill_exactly", refuse)
    alone: Any = SimpleNamespace(members=list, data=None, abandoned={}, companion=None)
    tree = ProcessTree(limit=alone, loop=alone, preparation=alone)
    tree.kill()
    assert tree.denied == {7: 70}
    assert not tree.processes()


def test_who_takes_a_run_over_takes_over_what_was_ordered_and_has_not_begun(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, "run")
    run.make()

    def order(index: int, generation: int) -> AttemptFolder:
        folder = run.attempt("worker", index, (0, 0, 0))
        folder.control.mkdir(parents=True)
        write_json(folder.spec, {"uid": f"uid-{index}", "generation": generation})
        return folder

    def refusals() -> list[str]:
        return [
            each.refusal(generation, f"uid-{index}")
            for index, (each, generation) in enumerate(orders)
        ]

    assert not run.refuse_or_own(2)
    orders = [(order(index, 2), 2) for index in range(2)]
    write_json(orders[1][0].state, {})  # it has begun
    assert not run.refuse_or_own(3)
    orders += [(order(2, 2), 2), (order(3, 3), 3)]  # the first by somebody who has lost the run
    lost = "generation 3 owns the run"
    assert refusals() == ["", lost, lost, ""]
    assert run.refuse_or_own(2) == lost
    assert not run.refuse_or_own(4)
    lost = "generation 4 owns the run"
    assert refusals() == ["", lost, lost, ""]
    run.bury(4)
    assert not run.refuse_or_own(5), "it is opened again"
    assert all(refusals()), "what was removed begins no more"
