"""Nothing starts in a place that is not fit for it: what the agent of this machine does and says."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent.devices import COMMAND
from airflow_training.agent.files import read_json
from airflow_training.control.hardware import RequiredHardware
from airflow_training.control.readiness import required_hardware
from tests.builders import job, role
from tests.contracts.runtime import Harness, watching
from tests.runtimes.local_runs import alive, attempt_folder
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e
ONE = '[{"id": "npu0", "name": "NPU"}]'


def asked_for(**more: Any) -> RequiredHardware:
    found = required_hardware(job(role("worker", 1), checkpoint={"uri": "c"}), {})
    assert found is not None
    return replace(found, **{"timeout_seconds": 30.0} | more)


def a_device_once(there: Path) -> dict[str, str]:
    """Return the environment of an instance whose only device is there once a file is."""
    return {COMMAND: f"if [ -e {there} ]; then echo '{ONE}'; else echo '[]'; fi"}


async def test_the_command_starts_once_all_is_there(harness: Harness, tmp_path: Path) -> None:
    there = tmp_path / "there"
    started = tmp_path / "started"
    async with watching(harness.runtime, harness.run) as seen:
        spec = harness.spec(
            "quick",
            command=("touch", str(started)),
            env=a_device_once(there),
            readiness=asked_for(devices=1),
        )
        await harness.runtime.create([spec])
        held = await seen.state("quick", 0, "pending", reason="CheckingEnvironment")
        await seen.until(lambda now: bool(now["quick", 0].message))
        assert not started.exists()
        assert not held.address_live
        there.touch()
        ended = await seen.state("quick", 0, "succeeded")
    assert ended.message == ""
    folder = attempt_folder(tmp_path, harness, "quick")
    first, second = folder.log.read_text().splitlines()
    assert "not ready, checked again for up to 30 s: devices: 0 of 1 are there" in first
    assert "checked: node, devices, memory, disk" in second
    told = (read_json(folder.exit) or {})["readiness"]
    assert told["checks"] == ["node", "devices", "memory", "disk"]
    assert told["seconds"] > 0


async def test_a_place_that_never_gets_fit_fails_the_instance(
    harness: Harness, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    async with watching(harness.runtime, harness.run) as seen:
        spec = harness.spec(
            "quick",
            command=("touch", str(started)),
            env=a_device_once(tmp_path / "never"),
            readiness=asked_for(devices=1, timeout_seconds=0.5),
        )
        await harness.runtime.create([spec])
        failed = await seen.state("quick", 0, "failed")
    assert failed.reason == "EnvironmentNotReady"
    assert "devices: 0 of 1 are there" in failed.message
    assert failed.exit_code is None
    assert not started.exists()
    exit_record = json.loads(failed.environment[-1])
    assert exit_record["exit"]["reason"] == "EnvironmentNotReady"


async def test_an_instance_that_is_deleted_while_it_is_checked_leaves_nothing(
    harness: Harness, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    async with watching(harness.runtime, harness.run) as seen:
        spec = harness.spec(
            "quick",
            command=("true",),
            env={COMMAND: f"echo $$$$ > {pid}; exec sleep 600"},  # $$ is $
            readiness=asked_for(devices=1),
        )
        (outcome,) = await harness.runtime.create([spec])
        await seen.state("quick", 0, "pending", reason="CheckingEnvironment")
        wait_until(lambda: pid.exists() and pid.read_text().strip())
        await harness.runtime.delete([outcome.ref], grace_seconds=0)
        await seen.gone("quick", 0)
    wait_until(lambda: not alive(int(pid.read_text())))


async def test_records_say_what_was_checked(harness: Harness, tmp_path: Path) -> None:
    async with watching(harness.runtime, harness.run) as seen:
        env = {COMMAND: f"echo '{ONE}'", "PATH": os.environ["PATH"]}
        spec = harness.spec(
            "sleeper", command=("sleep", "600"), env=env, readiness=asked_for(devices=1)
        )
        await harness.runtime.create([spec])
        await seen.until(lambda now: ("sleeper", 0) in now and bool(now["sleeper", 0].environment))
        first = json.loads(seen.now["sleeper", 0].environment[0])
    assert first["on"] == "start"
    assert [each["name"] for each in first["devices"]] == ["NPU"]
    assert first["ready"]["checks"] == ["node", "devices", "memory", "disk"]
