"""Series that no script tells as metrics: what an instance had read, and what its agent saw it use. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = [
    "CPU_CORES",
    "GPU_BUSY_PERCENT",
    "GPU_MEMORY_BYTES",
    "MEMORY_BYTES",
    "SAMPLES",
    "SYSTEM_METRICS",
    "is_system_metric",
    "record_number",
    "record_part",
    "system_metrics",
]

SAMPLES = "system/samples"
"""How many samples had been read: an axis of other series. Agents tell it among their points."""
CPU_CORES = "system/cpu_cores"
MEMORY_BYTES = "system/memory_bytes"
GPU_BUSY_PERCENT = "system/gpu_busy_percent"
GPU_MEMORY_BYTES = "system/gpu_memory_bytes"
SYSTEM_METRICS = frozenset({SAMPLES, CPU_CORES, MEMORY_BYTES, GPU_BUSY_PERCENT, GPU_MEMORY_BYTES})

_MOST = 2.0**63
"""What is larger, or no number, was never measured."""
_SHORTEST_SECONDS = 0.5
"""Between two looks: the kernel counts in hundredths of a second."""


def is_system_metric(name: str) -> bool:
    """Return whether a series is none that a script or its log has told."""
    return name in SYSTEM_METRICS


def system_metrics(records: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
    """Use of CPU, memory and GPUs by name. `records`: the newest two of an instance, oldest first, by its agent."""
    if not records:
        return {}
    newest = records[-1]
    told = newest.get("devices")
    devices = [
        each for each in (told if isinstance(told, list) else ()) if isinstance(each, Mapping)
    ]
    busy = [*_numbers(devices, "busy_percent")]
    used = [*_numbers(devices, "used_bytes")]
    found = {
        CPU_CORES: _cores(records),
        MEMORY_BYTES: _memory(newest),
        GPU_BUSY_PERCENT: round(sum(busy) / len(busy), 1) if busy else None,
        GPU_MEMORY_BYTES: sum(used) if used else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def record_part(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object that stands in a record; empty where there is none."""
    found = record.get(name)
    return found if isinstance(found, Mapping) else {}


def record_number(values: Mapping[str, Any], name: str) -> float | None:
    """Return a number that stands there, None for anything else."""
    found = values.get(name)
    if not isinstance(found, int | float) or isinstance(found, bool):
        return None
    return found if abs(found) < _MOST else None


def _memory(record: Mapping[str, Any]) -> float | None:
    memory = record_number(record_part(record, "memory"), "used_bytes")
    # a group that others live in tells nothing of this instance: its processes are added up then
    if record.get("cgroup") == "own" and memory is not None:
        return memory
    return record_number(record_part(record, "usage"), "rss_bytes")


def _cores(records: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the processor time between the newest two looks, by the time between them."""
    if len(records) < 2:
        return None
    before, after = records[-2], records[-1]
    if record_number(after, "number") != (record_number(before, "number") or 0) + 1:
        return None  # another attempt's, or one in between is missing
    seconds = (record_number(after, "at") or 0) - (record_number(before, "at") or 0)
    used = _processor_seconds(before, after)
    if used is None or seconds < _SHORTEST_SECONDS:
        return None
    return round(max(0.0, used) / seconds, 3)


def _processor_seconds(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Return what was used in between: by the group where it is the instance's own, else by its processes."""
    places = [("cpu", "used_seconds")] if after.get("cgroup") == "own" else []
    for part, name in (*places, ("usage", "cpu_seconds")):
        first, last = (record_number(record_part(each, part), name) for each in (before, after))
        if first is not None and last is not None:
            return last - first
    return None


def _numbers(devices: Sequence[Mapping[str, Any]], name: str) -> Iterator[float]:
    return (found for each in devices if (found := record_number(each, name)) is not None)
