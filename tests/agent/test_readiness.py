"""What an instance lacks before its start, told from records alone: each row one thing that is wrong, or nothing."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from airflow_training.agent.readiness import find_shortcomings, measured_figures, performed_checks

GIB, MIB = 2**30, 2**20
WANTED = {
    "timeout_seconds": 60, "devices": None,
    "memory_share": 0.97, "memory_pressure": 10.0, "free_bytes": 64 * MIB,
}  # fmt: skip
H100 = {"id": "0", "name": "H100"}


def a_place(**parts: Any) -> dict[str, Any]:
    """Return a look at a place where nothing is missing, but for what is given."""
    return {
        "at": 1000.0,
        "boot_id": "this boot",
        "pids": {"current": 3, "limit": 100},
        "memory": {"used_bytes": 1 * GIB, "limit_bytes": 8 * GIB},
        "pressure": {"memory": {"full10": 0.0}},
        "available_bytes": 100 * GIB,
        "disk": {"folder": "/run", "free_bytes": 9 * GIB, "free_files": 1000},
        "store": {"error": ""},
        **parts,
    }


def before(**parts: Any) -> dict[str, Any]:
    return {"before": {"boot_id": "this boot", "at": 900.0, **parts}}


def words(found: dict[str, Any], **wanted: Any) -> list[str]:
    return [f"{each.check}: {each.text}" for each in find_shortcomings(found, {**WANTED, **wanted})]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        pytest.param({}, {}, id="all-is-well"),
        pytest.param({"memory": {}, "pids": {}, "pressure": {}}, {}, id="the-kernel-tells-nothing"),
        pytest.param({"devices": [H100, H100]}, {"devices": 2}, id="as-many-as-the-limit"),
        pytest.param({"devices": [H100, H100]}, {"devices": 1}, id="more-than-the-limit"),
        pytest.param({"devices": None}, {"devices": 2}, id="nothing-that-could-be-asked"),
        pytest.param(
            {"devices": [{**H100, "divided": 1}]}, {"devices": 3}, id="three-parts-of-one-gpu"
        ),
        pytest.param({"devices": [H100]}, before(devices=["H100"]), id="the-same-device"),
        pytest.param(
            {"devices": [H100]},
            {"before": {"boot_id": "another boot", "devices": ["A100", "A100"]}},
            id="other-devices-on-another-node",
        ),
        pytest.param(
            {"devices": [H100]},
            {"devices": 1, **before(devices=["A100"] * 8)},
            id="fewer-are-asked-for-now",
        ),
        pytest.param({}, before(memory_bytes=7 * GIB), id="as-much-memory-as-before"),
        pytest.param(
            {"memory": {"used_bytes": 7 * GIB, "limit_bytes": 8 * GIB, "cache_bytes": 6 * GIB}},
            before(memory_bytes=7 * GIB),
            id="memory-that-the-kernel-gives-back",
        ),
        pytest.param({"store": {"unchecked": "no driver"}}, {}, id="a-store-nobody-can-look-at"),
        pytest.param({"disk": {"folder": "/run", "free_bytes": GIB}}, {}, id="files-without-end"),
        pytest.param({}, before(at=1299.0), id="a-clock-that-is-a-little-behind"),
    ],
)
def test_nothing_is_missing(found, wanted):
    assert words(a_place(**found), **wanted) == []


@pytest.mark.parametrize(
    ("found", "wanted", "text"),
    [
        pytest.param(
            {"failed": {"node": "Resource temporarily unavailable"}},
            {},
            "node: no process can be started: Resource temporarily unavailable",
            id="no-process",
        ),
        pytest.param(
            {"pids": {"current": 100, "limit": 100}},
            {},
            "node: 100 of 100 processes live already",
            id="no-more-processes",
        ),
        pytest.param(
            {},
            before(at=1400.0),
            "node: its clock is 400 s behind the last record of the attempt before",
            id="clock",
        ),
        pytest.param(
            {"devices": [H100]}, {"devices": 2}, "devices: 1 of 2 are there", id="too-few-devices"
        ),
        pytest.param(
            {"devices": [H100]},
            before(devices=["A100", "H100"]),
            "devices: 1 of 2 are there, missing 1 x A100",
            id="one-less-than-before",
        ),
        pytest.param(
            {"devices": [H100, H100]},
            before(devices=["A100", "H100"]),
            "devices: not there any more: 1 x A100; found 2 x H100",
            id="another-one-than-before",
        ),
        pytest.param(
            {"devices": None},
            before(devices=["H100", "H100"]),
            "devices: 0 of 2 are there, missing 2 x H100",
            id="the-driver-is-gone",
        ),
        pytest.param(
            {"devices": [H100, {"id": "1", "name": "H100", "error": "Xid 79"}]},
            {"devices": 2},
            "devices: device 1: Xid 79",
            id="a-device-with-an-error",
        ),
        pytest.param(
            {"devices": [{"id": "all", "error": "NVML: Driver Not Loaded"}]},
            {"devices": 2},
            "devices: device all: NVML: Driver Not Loaded",
            id="a-driver-with-an-error",
        ),
        pytest.param(
            {"unanswered": {"devices": 15.2}},
            before(devices=["H100"]),
            "devices: no answer in 15 s",
            id="a-driver-that-hangs",
        ),
        pytest.param(
            {"memory": {"used_bytes": 98, "limit_bytes": 100}},
            {},
            "memory: 0 MiB of 0 MiB are in use, at most 97% may be",
            id="memory-is-full",
        ),
        pytest.param(
            {"pressure": {"memory": {"full10": 30.0}}},
            {},
            "memory: everything waited for it in 30 % of the last 10 s, at most 10 % are fine",
            id="memory-pressure",
        ),
        pytest.param(
            {},
            before(memory_bytes=8 * GIB),
            "memory: 7.0 GiB are free, 8.0 GiB were needed before",
            id="less-memory-in-the-limit-than-before",
        ),
        pytest.param(
            {"memory": {}, "available_bytes": 512 * MIB},
            before(memory_bytes=GIB),
            "memory: 512 MiB are free, 1.0 GiB were needed before",
            id="less-memory-on-the-machine-than-before",
        ),
        pytest.param(
            {"disk": {"folder": "/run", "free_bytes": 63 * MIB}},
            {},
            "disk: 63 MiB are free at /run, 64 MiB are needed",
            id="disk-full",
        ),
        pytest.param(
            {"disk": {"folder": "/run", "free_bytes": GIB, "free_files": 0}},
            {},
            "disk: /run takes no file more",
            id="no-inodes",
        ),
        pytest.param(
            {"disk": {"folder": "/run", "error": "Input/output error", "errno": errno.EIO}},
            {},
            "disk: cannot write to /run: Input/output error",
            id="disk-broken",
        ),
        pytest.param(
            {"store": {"error": "s3://b: refused"}}, {}, "store: s3://b: refused", id="store"
        ),
    ],
)
def test_what_is_missing_is_told_with_its_figures(found, wanted, text):
    assert words(a_place(**found), **wanted) == [text]


def test_everything_that_is_missing_is_told_in_one_order():
    found = a_place(
        store={"error": "away"}, unanswered={"disk": 3.0}, disk={},
        devices=[], pressure={"memory": {"full10": 99.0}}, failed={"node": "EAGAIN"},
    )  # fmt: skip
    checks = [each.check for each in find_shortcomings(found, {**WANTED, "devices": 1})]
    assert checks == ["node", "devices", "memory", "disk", "store"]


@pytest.mark.parametrize(
    ("code", "may_pass"),
    [(errno.EROFS, False), (errno.EACCES, False), (errno.ENOSPC, True), (errno.ESTALE, True)],
)
def test_only_a_disk_that_will_never_take_anything_is_not_waited_for(code, may_pass):
    found = a_place(disk={"folder": "/run", "error": "no", "errno": code})
    assert [each.may_pass for each in find_shortcomings(found, WANTED)] == [may_pass]


def test_what_was_looked_at_is_told():
    assert performed_checks(a_place(devices=[])) == ["node", "devices", "memory", "disk", "store"]
    assert performed_checks(a_place(store={"unchecked": "no driver"})) == ["node", "memory", "disk"]


FREE = {"bytes": 80 * GIB, "used_bytes": 20 * GIB}
SLOW, FAST = {"latency": 0.004, "bandwidth": 90 * MIB}, {"latency": 0.0002, "bandwidth": 9 * GIB}
LIMITS = {"latency": 0.001, "bandwidth": 1 * GIB}


def ways(*figures: dict[str, float]) -> dict[str, Any]:
    return {"network": {"peers": [{"name": f"w-{i}", **each} for i, each in enumerate(figures)]}}


@pytest.mark.parametrize(
    ("found", "wanted", "told"),
    [
        pytest.param({"devices": None}, {"needs_devices": True}, ["devices: nothing here tells of GPUs"], id="no-driver"),
        pytest.param(
            {"devices": [{**H100, **FREE}]}, {"device_free_bytes": 70 * GIB},
            ["devices: device 0: 60.0 GiB are free, 70.0 GiB are needed"], id="gpu-memory-in-use",
        ),
        pytest.param({"devices": [{**H100, **FREE}]}, {"device_free_bytes": 50 * GIB}, [], id="gpu-memory"),
        pytest.param(
            {"disk": {"folder": "/run", "free_bytes": 9 * GIB, "bandwidth": 90.0 * MIB}}, {"disk_bandwidth": 200 * MIB},
            ["disk: 90 MiB/s are written at /run, 200 MiB/s are needed"], id="a-slow-disk",
        ),
        pytest.param(
            ways(SLOW, SLOW), {"network": LIMITS},
            [
                "network: to w-0 4.00 ms, 90 MiB/s; to w-1 4.00 ms, 90 MiB/s, at most 1 ms are fine",
                "network: to w-0 4.00 ms, 90 MiB/s; to w-1 4.00 ms, 90 MiB/s, 1.0 GiB/s are needed",
            ],
            id="a-slow-network",
        ),
        pytest.param(ways(SLOW, FAST), {"network": LIMITS}, [], id="the-other-end-is-slow"),
        pytest.param(ways({}, {}), {"network": LIMITS}, [], id="nobody-was-there"),
        pytest.param(ways(SLOW), {"network": {}}, [], id="only-measured"),
        pytest.param({"network": {"error": "in use"}}, {"network": LIMITS}, ["network: in use"], id="no-port"),
    ],
)  # fmt: skip
def test_what_a_job_asks_for_besides_is_told_with_its_figures(found, wanted, told):
    assert words(a_place(**found), **wanted) == told


def test_figures_are_told_in_words():
    found = a_place(
        devices=[{**H100, **FREE}, H100],
        disk={"folder": "/run", "free_bytes": 9 * GIB, "bandwidth": 400.0 * MIB},
        **ways(FAST, {}),
    )
    assert measured_figures(found, {**WANTED, "needs_devices": True}) == {
        "devices": "2 x H100, 60.0 GiB free",
        "disk": "400 MiB/s, 9.0 GiB free",
        "network": "to w-0 0.20 ms, 9.0 GiB/s; w-1 did not answer",
    }
    assert measured_figures(a_place(), WANTED) == {}
    assert "network" in performed_checks(found)
