"""What instances use now: cores, memory and devices, from the newest records of their agents. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from airflow_training.control.rollup import timestamp
from airflow_training.state.records import EnvironmentRecord

__all__ = ["InstanceUsage", "instance_usage"]

_SHORTEST_SECONDS = 0.5
"""Between two looks: the kernel counts in hundredths of a second."""


class InstanceUsage(BaseModel):
    """What an instance used when its agent last looked; None: not told."""

    at: str
    cpu_cores: float | None
    """On average since the look before."""
    cpu_limit: float | None
    memory_bytes: int | None
    memory_limit_bytes: int | None
    gpus: int
    gpu_busy_percent: float | None
    """On average over those that tell it."""
    gpu_memory_bytes: int | None
    """Of all of them together."""
    gpu_memory_limit_bytes: int | None
    gpu_errors: list[str]


def instance_usage(records: Sequence[EnvironmentRecord]) -> InstanceUsage | None:
    """Return what an instance uses. `records`: its newest two, oldest first; agents write them."""
    if not records:
        return None
    newest = records[-1].body
    devices = [each for each in newest.get("devices") or () if isinstance(each, Mapping)]
    memory = _part(newest, "memory")
    # a group that others live in tells nothing of this instance: its processes are added up then
    own = newest.get("cgroup") == "own" and _number(memory, "used_bytes") is not None
    return InstanceUsage(
        at=timestamp(_number(newest, "at")) or "",
        cpu_cores=_cores(records),
        cpu_limit=_number(_part(newest, "cpu"), "limit_cores"),
        memory_bytes=_whole(memory, "used_bytes")
        if own
        else _whole(_part(newest, "usage"), "rss_bytes"),
        memory_limit_bytes=_whole(memory, "limit_bytes"),
        gpus=len(devices),
        gpu_busy_percent=_mean([*_numbers(devices, "busy_percent")]),
        gpu_memory_bytes=_sum([*_numbers(devices, "used_bytes")]),
        gpu_memory_limit_bytes=_sum([*_numbers(devices, "bytes")]),
        gpu_errors=[str(each["error"]) for each in devices if each.get("error")],
    )


def _cores(records: Sequence[EnvironmentRecord]) -> float | None:
    """Return the processor time between the newest two looks, by the time between them."""
    if len(records) < 2:
        return None
    before, after = records[-2].body, records[-1].body
    if _number(after, "number") != (_number(before, "number") or 0) + 1:
        return None  # another attempt's, or one in between is missing
    seconds = (_number(after, "at") or 0) - (_number(before, "at") or 0)
    used = _processor_seconds(before, after)
    if used is None or seconds < _SHORTEST_SECONDS:
        return None
    return round(max(0.0, used) / seconds, 3)


def _processor_seconds(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Return what was used in between: by the group where it is the instance's own, else by its processes."""
    places = [("cpu", "used_seconds")] if after.get("cgroup") == "own" else []
    for part, name in (*places, ("usage", "cpu_seconds")):
        first, last = (_number(_part(each, part), name) for each in (before, after))
        if first is not None and last is not None:
            return last - first
    return None


def _part(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = record.get(name)
    return found if isinstance(found, Mapping) else {}


def _number(values: Mapping[str, Any], name: str) -> float | None:
    found = values.get(name)
    told = isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)
    return found if told else None


def _whole(values: Mapping[str, Any], name: str) -> int | None:
    found = _number(values, name)
    return None if found is None else int(found)


def _numbers(devices: Sequence[Mapping[str, Any]], name: str) -> Iterator[float]:
    return (found for each in devices if (found := _number(each, name)) is not None)


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 1) if values else None


def _sum(values: Sequence[float]) -> int | None:
    return int(sum(values)) if values else None
