"""Records of agents become what an instance uses now."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.state.records import EnvironmentRecord
from airflow_training.web.instance_usage import InstanceUsage, instance_usage


def a_record(number: int, **more: Any) -> EnvironmentRecord:
    return EnvironmentRecord(number=number, digest="", body={"number": number, **more})


def usage(*bodies: dict[str, Any]) -> InstanceUsage:
    found = instance_usage([a_record(number, **body) for number, body in enumerate(bodies)])
    assert found is not None
    return found


def own(at: float, seconds: float, **more: Any) -> dict[str, Any]:
    return {"at": at, "cgroup": "own", "cpu": {"used_seconds": seconds, "limit_cores": 4.0}, **more}


def shared(at: float, seconds: float, **more: Any) -> dict[str, Any]:
    processes = {"cpu_seconds": seconds, "rss_bytes": 3 << 20}
    return {
        "at": at,
        "cgroup": "shared",
        "cpu": {"used_seconds": 7 * at},
        "usage": processes,
        **more,
    }


def test_without_a_record_nothing_is_told():
    assert instance_usage([]) is None


@pytest.mark.parametrize(
    ("bodies", "cores"),
    [
        pytest.param([own(10, 2), own(20, 17)], 1.5, id="its-own-group"),
        pytest.param([shared(10, 2), shared(20, 27)], 2.5, id="its-processes-among-others"),
        pytest.param(
            [own(10, 0) | {"cpu": {}, "usage": {"cpu_seconds": n}} | {"at": n} for n in (10, 20)],
            1.0,
            id="a-group-that-counts-no-time",
        ),
        pytest.param([own(10, 2)], None, id="one-look"),
        pytest.param([own(10, 2), own(10.1, 3)], None, id="too-close"),
        pytest.param([own(20, 2), own(10, 3)], None, id="a-clock-set-back"),
        pytest.param([shared(10, 9), shared(20, 2)], 0.0, id="what-nobody-waited-for-is-lost"),
        pytest.param([{"at": "x"}, {"at": None, "usage": []}], None, id="no-numbers"),
    ],
)
def test_cores_are_processor_time_by_time(bodies, cores):
    assert usage(*bodies).cpu_cores == cores


def test_looks_of_two_attempts_are_not_compared():
    first, second = a_record(7, **own(10, 50)), a_record(0, **own(20, 60))
    assert instance_usage([first, second]).cpu_cores is None


def test_memory_is_that_of_the_own_group_else_of_the_processes():
    memory = {"used_bytes": 5 << 20, "limit_bytes": 8 << 20}
    assert usage(own(1, 1, memory=memory)).memory_bytes == 5 << 20
    found = usage(shared(1, 1, memory=memory))
    assert (found.memory_bytes, found.memory_limit_bytes) == (3 << 20, 8 << 20)


def test_devices_are_taken_together():
    devices = [
        {"id": "a", "busy_percent": 90, "used_bytes": 10, "bytes": 80},
        {"id": "b", "busy_percent": 80, "used_bytes": 20, "bytes": 80, "error": "fell off the bus"},
        {"id": "c"},
        "no device",
    ]
    found = usage(own(1, 1, devices=devices))
    assert (found.gpus, found.gpu_busy_percent) == (3, 85.0)
    assert (found.gpu_memory_bytes, found.gpu_memory_limit_bytes) == (30, 160)
    assert found.gpu_errors == ["fell off the bus"]
