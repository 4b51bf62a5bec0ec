"""What instances use now: cores, memory and devices, from the newest records of their agents. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from airflow_training.control.rollup import timestamp
from airflow_training.control.system_metrics import (
    CPU_CORES,
    GPU_BUSY_PERCENT,
    GPU_MEMORY_BYTES,
    MEMORY_BYTES,
    record_number,
    record_part,
    system_metrics,
)
from airflow_training.state.records import EnvironmentRecord

__all__ = ["InstanceUsage", "instance_usage"]


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
    """Use of CPU, memory and GPUs by an instance. `records`: its newest two, oldest first, by its agent."""
    if not records:
        return None
    newest = records[-1].body
    devices = [each for each in newest.get("devices") or () if isinstance(each, Mapping)]
    limits = [record_number(each, "bytes") for each in devices]
    used = system_metrics([each.body for each in records])
    return InstanceUsage(
        at=timestamp(record_number(newest, "at")) or "",
        cpu_cores=used.get(CPU_CORES),
        cpu_limit=record_number(record_part(newest, "cpu"), "limit_cores"),
        memory_bytes=_whole(used.get(MEMORY_BYTES)),
        memory_limit_bytes=_whole(record_number(record_part(newest, "memory"), "limit_bytes")),
        gpus=len(devices),
        gpu_busy_percent=used.get(GPU_BUSY_PERCENT),
        gpu_memory_bytes=_whole(used.get(GPU_MEMORY_BYTES)),
        gpu_memory_limit_bytes=_whole(_sum([each for each in limits if each is not None])),
        gpu_errors=[str(each["error"]) for each in devices if each.get("error")],
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _sum(values: Sequence[float]) -> float | None:
    return sum(values) if values else None
