"""What an attempt has to find around it before its command starts, and what the one before had. Pure.

The agent looks (`agent.preflight`) and judges (`agent.readiness`); the figures come from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.control.environment import (
    FULL_BYTES,
    STRAINED_PRESSURE,
    STRAINED_SHARE,
    read_records,
)
from airflow_training.control.hardware import ObservedHardware, RequiredHardware
from airflow_training.documents.quantities import parse_quantity
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.shapes import mapping

__all__ = ["observed_hardware", "required_hardware"]

_GPU = "nvidia.com/gpu"


def required_hardware(job: ResolvedJob, resources: Mapping[str, str]) -> RequiredHardware | None:
    """Requirement that an instance with these resources is checked for; None: this job checks nothing."""
    if job.checkpoint is None:
        return None
    return RequiredHardware(
        timeout_seconds=job.restart.ready_timeout_seconds,
        devices=int(parse_quantity(resources[_GPU])) if _GPU in resources else None,
        memory_share=STRAINED_SHARE,
        memory_pressure=STRAINED_PRESSURE,
        free_bytes=FULL_BYTES,
    )


def observed_hardware(lines: Sequence[str]) -> ObservedHardware | None:
    """Hardware of an attempt that ran, by its agent's records; None where no record has any."""
    records = read_records(lines)
    if not any(record.get("on") in ("start", "interval") for record in records):
        return None
    return ObservedHardware(
        boot_id=str(mapping(records[-1].get("node")).get("boot_id") or ""),
        devices=max((_devices(record) for record in records), key=len),
        memory_bytes=max(_own_memory(record) for record in records),
        at=float(records[-1].get("at") or 0.0),
    )


def _devices(record: Mapping[str, Any]) -> tuple[str, ...]:
    devices = record.get("devices")
    names = [
        str(each.get("name") or "")
        for each in (devices if isinstance(devices, list) else ())
        if isinstance(each, Mapping) and not each.get("error")
    ]
    return tuple(sorted(names))


def _own_memory(record: Mapping[str, Any]) -> int:
    """Return what the instance surely held itself: neither the pages it shared nor what others had."""
    tree = mapping(record.get("processes")).get("tree")
    largest = max((each["rss_bytes"] for each in tree), default=0) if tree else 0
    used = mapping(record.get("memory")).get("used_bytes")
    return int(largest if used is None else min(largest, used))
