"""What the saved records of an instance's environment say about the place it ran in. Pure.

The agent writes the records (`agent.environment`): every ten seconds, on change, and at exit.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from airflow_training.control import reasons
from airflow_training.documents.shapes import mapping

__all__ = [
    "FULL_BYTES",
    "STRAINED_PRESSURE",
    "STRAINED_SHARE",
    "Condition",
    "EnvironmentState",
    "environment_state",
    "read_records",
]

Condition = Literal["healthy", "strained", "outOfMemory", "diskFull", "deviceLost", "unknown"]
"""Of the records' a later one wins over an earlier one."""

_STALE_SECONDS = 30.0
STRAINED_SHARE = 0.97
"""Of its limit, that memory may use."""
STRAINED_PRESSURE = 10.0
"""Percent of ten seconds in which everything waited for memory."""
FULL_BYTES = 64 << 20
"""Less left on a disk is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentState:
    """The environment of an instance when it failed, in one word and one sentence."""

    condition: Condition
    why: str = ""


def read_records(lines: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    """Records of agents, without lines that are no record of a moment."""
    found = []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            if isinstance(record, dict) and record.get("on") != "software":
                found.append(record)
    return found


def environment_state(records: Sequence[Mapping[str, Any]], *, at: float) -> EnvironmentState:
    """Return how the environment was at the time `at` (epoch seconds). `records`: oldest first.

    What a record does not say is taken for healthy: not every kernel tells everything.
    """
    if not records:
        return EnvironmentState(condition="unknown", why="no record of it")
    newest = records[-1]
    age = at - _number(newest, "at")
    for judge in (_device_lost, _disk_full, _out_of_memory):  # these stay true for a while
        found = judge(records)
        if found is not None:
            return found
    if age > _STALE_SECONDS and newest.get("on") != "exit":
        return EnvironmentState(condition="unknown", why=f"the last record is {age:.0f} s older")
    return _strained(newest) or EnvironmentState(condition="healthy")


def _device_lost(records: Sequence[Mapping[str, Any]]) -> EnvironmentState | None:
    newest = _devices(records[-1])
    for name, device in newest.items():
        error = device.get("error")
        if error:
            return EnvironmentState(condition="deviceLost", why=f"device {name}: {error}")
    for record in records[:-1]:
        gone = sorted(_devices(record).keys() - newest.keys())
        if gone:
            return EnvironmentState(condition="deviceLost", why=f"device {gone[0]} is not there")
    return None


def _disk_full(records: Sequence[Mapping[str, Any]]) -> EnvironmentState | None:
    disk = mapping(records[-1].get("disk"))
    if "free_bytes" in disk and _number(disk, "free_bytes") < FULL_BYTES:
        return EnvironmentState(
            condition="diskFull", why=f"{_number(disk, 'free_bytes') / 2**20:.0f} MiB left on disk"
        )
    if "free_files" in disk and _number(disk, "free_files") < 1:
        return EnvironmentState(condition="diskFull", why="the disk takes no file more")
    return None


def _out_of_memory(records: Sequence[Mapping[str, Any]]) -> EnvironmentState | None:
    newest = records[-1]
    kills = _number(mapping(newest.get("memory")), "oom_kills")
    if kills > _number(mapping(records[0].get("memory")), "oom_kills") or (
        mapping(newest.get("exit")).get("reason") == reasons.OUT_OF_MEMORY
    ):
        return EnvironmentState(
            condition="outOfMemory", why="the kernel ended something for want of memory"
        )
    return None


def _strained(record: Mapping[str, Any]) -> EnvironmentState | None:
    memory = mapping(record.get("memory"))
    limit, used = _number(memory, "limit_bytes"), _number(memory, "used_bytes")
    if limit and used / limit > STRAINED_SHARE:
        return EnvironmentState(
            condition="strained", why=f"memory at {used / limit:.0%} of its limit"
        )
    waited = _number(mapping(mapping(record.get("pressure")).get("memory")), "full10")
    if waited > STRAINED_PRESSURE:
        return EnvironmentState(
            condition="strained", why=f"everything waited for memory in {waited:.0f} % of the time"
        )
    return None


def _devices(record: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    devices = record.get("devices")
    if not isinstance(devices, list):
        return {}
    return {str(each.get("id")): each for each in devices if isinstance(each, Mapping)}


def _number(record: Mapping[str, Any], name: str) -> float:
    found = record.get(name)
    return float(found) if isinstance(found, int | float) else 0.0
