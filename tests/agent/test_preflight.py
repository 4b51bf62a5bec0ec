"""The checks before a start, as they are made: repeated, bounded, and never waited for."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent import child_calls
from airflow_training.agent import preflight as module
from airflow_training.agent.devices import COMMAND
from airflow_training.agent.preflight import PreflightCheck, Verdict
from airflow_training.control.readiness import required_hardware
from tests.builders import job, role
from tests.waiting import wait_until

TIMEOUT_SECONDS = 30.0
BEGUN_AT = 1000.0
ONE = '[{"id": "npu0", "name": "NPU"}]'


@pytest.fixture(autouse=True)
def _no_real_devices(monkeypatch):
    monkeypatch.setattr("airflow_training.agent.devices._NVIDIA", Path("/nowhere"))


class Clock:
    """What the checks take for `time`; it moves when told to."""

    def __init__(self) -> None:
        self.now = BEGUN_AT
        self.time = self.monotonic = lambda: self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(child_calls, "time", clock)
    return clock


def checks(
    tmp_path: Path, *, said: list[str] | None = None, env: dict[str, str] | None = None, **more: Any
) -> PreflightCheck:
    """Return the checks of an instance of a job with a checkpoint, as the controller asks for them."""
    asked = required_hardware(job(role("worker", 1), checkpoint={"uri": "c"}), {})
    assert asked is not None
    folder = tmp_path / "instance"
    folder.mkdir(exist_ok=True)
    return PreflightCheck(
        {**asked.to_document(), "timeout_seconds": TIMEOUT_SECONDS, **more},
        folder=folder,
        cgroup=None,
        environment={"PATH": os.environ["PATH"], **(env or {})},
        say=(said if said is not None else []).append,
    )


def verdict_of(preflight: PreflightCheck) -> Verdict:
    return wait_until(preflight.poll)


def store_at(root: object, *, incarnation: str = "0.0.0", initial: object = None) -> dict[str, str]:
    told = {"root": str(root), "incarnation": incarnation, "initial": initial}
    return {"TRAINING_CHECKPOINT": json.dumps(told)}


def test_a_healthy_place_is_ready_at_once_and_left_as_it_was(tmp_path):
    root = tmp_path / "runs" / "0"
    found = verdict_of(checks(tmp_path, env=store_at(root)))
    assert (found.ready, found.checks) == (True, ["node", "memory", "disk", "store"])
    assert "checked: node, memory, disk, store" in found.message
    assert [*(tmp_path / "instance").iterdir()] == []
    assert [path for path in root.rglob("*") if path.is_file()] == []


def test_a_device_that_comes_back_is_waited_for(tmp_path):
    """The first look misses one, the second finds it."""
    asked = tmp_path / "asked"
    command = f"if [ -e {asked} ]; then echo '{ONE}'; else touch {asked}; echo '[]'; fi"
    said: list[str] = []
    found = verdict_of(checks(tmp_path, said=said, env={COMMAND: command}, devices=1))
    assert found.ready
    assert found.checks == ["node", "devices", "memory", "disk"]
    [told] = said
    assert told == "not ready, checked again for up to 30 s: devices: 0 of 1 are there"


def test_a_device_that_stays_away_ends_the_wait_in_time(tmp_path, clock):
    asked = tmp_path / "asked"
    said: list[str] = []
    command = f"echo x >> {asked}; echo '[]'"
    preflight = checks(tmp_path, said=said, env={COMMAND: command}, devices=1, timeout_seconds=4.0)

    def first_answer() -> list[str]:
        assert preflight.poll() is None
        return said

    wait_until(first_answer)
    clock.now = BEGUN_AT + 0.1
    assert preflight.poll() is None, "too early to ask again"
    clock.now = BEGUN_AT + 4.0
    found = preflight.poll()
    assert found is not None
    assert asked.read_text() == "x\n"
    assert (found.ready, found.reason) == (False, "EnvironmentNotReady")
    assert found.checks == ["devices"]
    assert "devices: 0 of 1 are there" in found.message


def test_a_driver_that_hangs_is_ended_and_asked_again(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.5)
    pid = tmp_path / "pid"
    command = f"if [ -s {pid} ]; then echo '{ONE}'; else echo $$ > {pid}; exec sleep 600; fi"
    said: list[str] = []
    found = verdict_of(checks(tmp_path, said=said, env={COMMAND: command}, devices=1))
    assert found.ready
    assert "devices: no answer in" in said[0]
    hung = Path("/proc", pid.read_text().strip())
    assert not hung.exists() or "\nState:\tZ" in (hung / "status").read_text()


def test_a_driver_that_hangs_for_ever_ends_the_wait_in_time(tmp_path, clock):
    preflight = checks(tmp_path, env={COMMAND: "sleep 600"}, devices=1, timeout_seconds=1.0)
    for seconds in (0.0, 0.9):
        clock.now = BEGUN_AT + seconds
        assert preflight.poll() is None
    clock.now = BEGUN_AT + 1.0
    found = preflight.poll()
    assert found is not None
    assert found.reason == "EnvironmentNotReady"
    assert "devices: no answer in 1 s" in found.message


def test_a_folder_that_is_gone_is_no_disk(tmp_path):
    preflight = checks(tmp_path, timeout_seconds=5.0)
    (tmp_path / "instance").rmdir()
    found = verdict_of(preflight)
    assert (found.reason, found.checks) == ("EnvironmentNotReady", ["disk"])
    assert "No such file or directory" in found.message


def test_a_disk_that_will_never_take_anything_is_told_without_waiting(tmp_path, monkeypatch, clock):
    """Whatever else is missing may come back; this does not. The clock stands still."""

    def read_only(folder: Path, **_: Any) -> dict[str, Any]:
        return {"folder": str(folder), "error": "Read-only file system", "errno": errno.EROFS}

    monkeypatch.setattr(module, "_try_disk", read_only)
    found = verdict_of(checks(tmp_path, env={COMMAND: "echo '[]'"}, devices=1))
    assert found.checks == ["devices", "disk"]
    assert "Read-only file system" in found.message


def test_no_process_can_be_started(tmp_path, monkeypatch):
    def refuse() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    found = verdict_of(checks(tmp_path, timeout_seconds=3.0))
    assert found.message.endswith(
        "node: no process can be started: Resource temporarily unavailable"
    )


# the store -----------------------------------------------------------------------------------------
def test_a_store_that_is_away_is_another_reason_than_the_place(tmp_path):
    (tmp_path / "runs").write_text("a file where a folder should be")
    found = verdict_of(checks(tmp_path, env=store_at(tmp_path / "runs" / "0"), timeout_seconds=4.0))
    assert (found.reason, found.checks) == ("StoreNotReady", ["store"])
    assert "Not a directory" in found.message


def test_a_store_and_a_device_that_are_away_are_the_place(tmp_path):
    (tmp_path / "runs").write_text("a file where a folder should be")
    env = {**store_at(tmp_path / "runs" / "0"), COMMAND: "echo '[]'"}
    found = verdict_of(checks(tmp_path, env=env, devices=1, timeout_seconds=4.0))
    assert (found.reason, found.checks) == ("EnvironmentNotReady", ["devices", "store"])


def test_the_training_that_this_one_starts_from_must_be_readable(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifests").mkdir()
    newest = tmp_path / "other" / "manifests" / f"{7:012d}-{1:08d}.json"
    newest.mkdir()  # nothing that could be read
    env = store_at(tmp_path / "runs", initial={"uri": str(tmp_path / "other")})
    assert verdict_of(checks(tmp_path, env=env)).ready, "folders are no manifests"
    newest.rmdir()
    newest.symlink_to(newest)
    found = verdict_of(checks(tmp_path, env=env, timeout_seconds=4.0))
    assert found.reason == "StoreNotReady"


def test_a_first_start_does_not_pay_for_the_driver_of_a_store(tmp_path):
    found = verdict_of(checks(tmp_path, env=store_at("nowhere://bucket/runs")))
    assert (found.ready, found.checks) == (True, ["node", "memory", "disk"])


def test_a_store_that_this_python_has_no_driver_for_is_left_to_the_script(tmp_path):
    env = store_at("nowhere://bucket/runs", incarnation="0.0.1")
    found = verdict_of(checks(tmp_path, env={**os.environ, **env}))
    assert found.ready
    assert "not the store: nowhere://bucket/runs: no driver" in found.message


def test_a_check_that_nobody_waits_for_any_more_leaves_nothing(tmp_path):
    pid = tmp_path / "pid"
    preflight = checks(tmp_path, env={COMMAND: f"echo $$ > {pid}; exec sleep 600"}, devices=1)
    wait_until(
        lambda: pid.exists() and pid.read_text().strip(), alive=lambda: preflight.poll() is None
    )
    preflight.give_up()
    assert int(pid.read_text()) in preflight.abandoned, "inside a driver it might live on"
    hung = Path("/proc", pid.read_text().strip())
    wait_until(lambda: not hung.exists() or "\nState:\tZ" in (hung / "status").read_text())


def test_a_disk_is_measured_where_the_job_says(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    wanted: dict[str, Any] = {"disk_path": str(scratch), "disk_bandwidth": 1.0}
    found = verdict_of(checks(tmp_path, **wanted))
    assert found.ready
    assert "/s, " in found.measured["disk"]
    assert f"; disk: {found.measured['disk']}" in found.message
    assert [*scratch.iterdir()] == []
    slow = verdict_of(checks(tmp_path, **{**wanted, "disk_bandwidth": 1e15}, timeout_seconds=4.0))
    assert (slow.ready, slow.reason, slow.checks) == (False, "EnvironmentNotReady", ["disk"])
    assert f"/s are written at {scratch}" in slow.message


def test_a_network_that_is_too_slow_is_not_measured_again(tmp_path, monkeypatch):
    """Whoever was asked has gone on to train."""
    asked = tmp_path / "asked"

    def measure(_: Any) -> Any:
        asked.open("a").write("x")
        return {"peers": [{"name": "w-1", "latency": 0.01, "bandwidth": 1.0}]}

    monkeypatch.setattr("airflow_training.agent.network_trial.measure_network", measure)
    limits = {
        "port": 0,
        "peers": [],
        "asked_by": 0,
        "wait_seconds": 1.0,
        "latency": 0.001,
        "bandwidth": 0,
    }
    found = verdict_of(checks(tmp_path, network=limits))
    assert (found.ready, found.checks, asked.read_text()) == (False, ["network"], "x")
    assert "network: to w-1 10.00 ms, 0 MiB/s, at most 1 ms are fine" in found.message
