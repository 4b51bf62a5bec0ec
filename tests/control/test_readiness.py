"""What a next attempt has to find: the limits of the job, and what the attempt before had."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from airflow_training.control import measured, reasons
from airflow_training.control.environment import environment_state
from airflow_training.control.hardware import ObservedHardware
from airflow_training.control.model import Event
from airflow_training.control.readiness import (
    network_peers,
    observed_hardware,
    preflight_result,
    required_hardware,
)
from airflow_training.control.replanning import replan_ledger
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedPreflight
from tests.builders import Bench, job, role

NODE = {"host": "pod", "boot_id": "this boot"}


def a_record(on: str = "interval", at: float = 1000.0, **parts: Any) -> str:
    return json.dumps({"on": on, "at": at, "node": NODE, **parts})


def processes(*rss: int) -> dict[str, Any]:
    return {"count": len(rss), "tree": [{"rss_bytes": each} for each in rss]}


def test_only_jobs_with_a_checkpoint_are_checked():
    assert required_hardware(job(role("worker", 1)), {}) is None


@pytest.mark.parametrize(
    ("resources", "devices"), [({}, None), ({"cpu": "2"}, None), ({"nvidia.com/gpu": "8"}, 8)]
)
def test_as_many_devices_as_the_limit_says(resources, devices):
    spec = job(role("worker", 1), checkpoint={"uri": "c"})
    found = required_hardware(spec, resources)
    assert found is not None
    assert (found.devices, found.timeout_seconds) == (devices, 60.0)


def test_a_place_that_is_fit_counts_as_healthy_afterwards():
    """One set of limits: what may start is not called broken by the first record."""
    found = required_hardware(job(role("worker", 1), checkpoint={"uri": "c"}), {})
    assert found is not None
    record = {
        "at": 1.0, "disk": {"free_bytes": found.free_bytes},
        "memory": {"used_bytes": 97, "limit_bytes": 100},
        "pressure": {"memory": {"full10": found.memory_pressure}},
    }  # fmt: skip
    assert found.memory_share == 0.97
    assert environment_state([record], at=1.0).condition == "healthy"


def test_an_order_has_what_agents_of_every_version_read():
    """Also the one of before the last update, which waits in a pod that stays."""
    before = ObservedHardware(boot_id="b", devices=("H100",), memory_bytes=7, at=9.0)
    found = required_hardware(job(role("worker", 1), checkpoint={"uri": "c"}), {})
    assert found is not None
    limits = {
        "timeout_seconds": 60.0, "devices": None, "memory_share": 0.97, "memory_pressure": 10.0,
        "free_bytes": 64 << 20,
    }  # fmt: skip
    assert found.to_document() == limits
    assert replace(found, before=before).to_document() == {
        **limits,
        "before": {"boot_id": "b", "devices": ["H100"], "memory_bytes": 7, "at": 9.0},
    }


# what the attempt before had -------------------------------------------------------------------------
def test_the_devices_are_those_it_had_when_it_had_most():
    whole = [{"id": "0", "name": "H100"}, {"id": "1", "name": "A100"}]
    lines = (
        a_record("start", devices=whole),
        a_record(devices=whole[:1]),
        a_record("exit", at=1020.0, devices=[{"id": "all", "error": "gone"}]),
    )
    assert observed_hardware(lines) == ObservedHardware(
        boot_id="this boot", devices=("A100", "H100"), memory_bytes=0, at=1020.0
    )


@pytest.mark.parametrize(
    ("parts", "needed"),
    [
        pytest.param({"processes": processes(5, 70)}, 70, id="its-largest-process"),
        pytest.param(
            {"processes": processes(70), "memory": {"used_bytes": 50}},
            50,
            id="without-what-it-maps",
        ),
        pytest.param(
            {"processes": processes(70), "memory": {"used_bytes": 900}}, 70, id="without-others"
        ),
        pytest.param({"memory": {"used_bytes": 900}}, 0, id="without-processes"),
    ],
)
def test_the_memory_is_what_it_surely_held_itself(parts, needed):
    found = observed_hardware((a_record("start", **parts), a_record("exit")))
    assert found is not None
    assert found.memory_bytes == needed


@pytest.mark.parametrize(
    "lines", [(), ("{", "7"), (a_record("exit", devices=[]),)], ids=["none", "broken", "never-ran"]
)
def test_an_attempt_that_never_ran_had_nothing(lines):
    assert observed_hardware(lines) is None


def devices_before(bench: Bench) -> tuple[str, ...]:
    found = bench.of("worker", 0).observed_hardware
    assert found is not None
    return found.devices


def test_the_next_attempt_is_told_and_one_that_never_started_changes_nothing():
    bench = Bench(job=job(role("worker", 1, backoff_limit=20))).settle()
    lines = (a_record("start", devices=[{"id": "0", "name": "H100"}]),)
    bench.end("worker", exit_code=1, environment=lines)
    bench.settle()
    assert devices_before(bench) == ("H100",)
    never = (a_record("exit"),)
    bench.end("worker", exit_code=None, reason=reasons.ENVIRONMENT_NOT_READY, environment=never)
    bench.settle()
    assert devices_before(bench) == ("H100",)


def test_another_split_does_not_need_what_the_old_one_had():
    bench = Bench(job=job(role("worker", 1, chief=True, backoff_limit=20))).settle()
    bench.end("worker", exit_code=1, environment=(a_record("start"),))
    bench.settle()
    assert bench.of("worker", 0).observed_hardware is not None
    event = Event(at=bench.now, reason=reasons.REPLANNED, message="a node is gone")
    ledger, _ = replan_ledger(bench.job, bench.ledger, event, generation=bench.generation)
    assert ledger.instances[InstanceKey("worker", 0)].observed_hardware is None


@pytest.mark.parametrize(
    ("reason", "level", "avoided"),
    [
        (reasons.ENVIRONMENT_NOT_READY, "node", ("a",)),
        (reasons.STORE_NOT_READY, "container", ()),
    ],
)
def test_an_unfit_place_is_left_but_not_for_a_store_that_is_away(reason, level, avoided):
    bench = Bench(job=job(role("worker", 1, backoff_limit=20))).settle()
    healthy = (a_record("exit", at=bench.now),)
    bench.end("worker", exit_code=None, reason=reason, environment=healthy, node="a")
    bench.step()
    [told] = [each for each in bench.events if each.reason == "InstanceRestarted"]
    assert (told.data["recovery"], told.data["failure_class"]) == (level, "infrastructure")
    assert bench.of("worker", 0).avoid_nodes == avoided
    assert bench.ledger.job.restarts[-1].counted


# what the job asks for besides -----------------------------------------------------------------------
WANTED = ResolvedPreflight(
    timeout_seconds=5.0, gpus=2, gpu_free_bytes=7, disk_path="/scratch", disk_free_bytes=1 << 40,
    disk_bandwidth=3.0, network=True, network_bandwidth=2.0, network_latency=0.1, network_wait_seconds=30.0,
)  # fmt: skip


def test_a_job_without_a_checkpoint_is_checked_for_what_it_asks():
    found = required_hardware(job(role("worker", 1), preflight=WANTED), {"nvidia.com/gpu": "8"})
    assert found is not None
    assert found.to_document() == {
        "timeout_seconds": 35.0, "devices": 2, "memory_share": 0.97, "memory_pressure": 10.0,
        "free_bytes": 1 << 40, "device_free_bytes": 7, "needs_devices": True, "disk_path": "/scratch",
        "disk_bandwidth": 3.0,
    }  # fmt: skip
    only_disk = ResolvedPreflight(timeout_seconds=5.0, disk_bandwidth=3.0)
    found = required_hardware(job(role("worker", 1), preflight=only_disk), {"nvidia.com/gpu": "8"})
    assert found is not None
    assert (found.devices, found.needs_devices, found.timeout_seconds) == (8, False, 5.0)


@pytest.mark.parametrize(
    ("size", "index", "attempt", "asked"),
    [
        pytest.param(4, 3, 0, ["w-0", "w-1"], id="the-next-two"),
        pytest.param(2, 1, 0, ["w-0"], id="the-only-other"),
        pytest.param(1, 0, 0, None, id="nobody-else"),
        pytest.param(4, 0, 1, None, id="others-train-already"),
        pytest.param(2, 2, 0, None, id="one-that-joins"),
    ],
)
def test_an_instance_asks_the_next_ones_of_its_role(size, index, attempt, asked):
    team = [(f"w-{i}", f"host{i}", 9) for i in range(size)]
    found = network_peers(
        job(preflight=WANTED), team.__getitem__, size=size, index=index, attempt=attempt
    )
    assert (None if found is None else [each[0] for each in found.peers]) == asked
    if found is not None:
        assert (found.port, found.asked_by, found.bandwidth, found.latency) == (
            9,
            len(found.peers),
            2.0,
            0.1,
        )


def test_what_was_measured_is_told_once_of_each_attempt():
    bench = Bench(job(role("worker", 1), preflight=WANTED)).settle()
    assert not bench.said(reasons.PREFLIGHT_PASSED)
    ready = {
        "seconds": 1.0,
        "checks": ["disk"],
        "measured": {"disk": "9 MiB/s", "network": "to w-1"},
    }
    bench.set("worker", 0, environment=(a_record("start", ready=ready),))
    for _ in range(2):
        bench.step(seconds=1)
    (told,) = bench.said(reasons.PREFLIGHT_PASSED)
    assert (told.message, told.index) == ("disk: 9 MiB/s; network: to w-1", 0)
    bench.end("worker", 0, 1).step()
    bench.settle()
    bench.set("worker", 0, environment=(a_record("start", ready=ready),)).step(seconds=1)
    assert len(bench.said(reasons.PREFLIGHT_PASSED)) == 2


def test_what_has_measured_nothing_is_looked_at_once(monkeypatch):
    """Of so many instances that each look at all of their records counts."""
    looks: list[Sequence[str]] = []

    def look(lines: Sequence[str]) -> Mapping[str, Any] | None:
        looks.append(lines)
        return preflight_result(lines)

    monkeypatch.setattr(measured, "preflight_result", look)
    bench = Bench(job(role("worker", 1), preflight=WANTED)).settle()
    ready = {"seconds": 1.0, "checks": ["disk"]}
    bench.set("worker", 0, environment=(a_record("start", ready=ready),)).step(seconds=1)
    looks.clear()
    for _ in range(3):
        bench.step(seconds=1)
    assert looks == []
    assert not bench.said(reasons.PREFLIGHT_PASSED)
