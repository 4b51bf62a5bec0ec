"""What an attempt has to find around it before its command starts, and what the one before had. Pure.

The agent looks (`agent.preflight`) and judges (`agent.readiness`); the figures come from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow_training.control.environment import (
    FULL_BYTES,
    STRAINED_PRESSURE,
    STRAINED_SHARE,
    read_records,
)
from airflow_training.control.hardware import NetworkPeers, ObservedHardware, RequiredHardware
from airflow_training.documents.quantities import parse_quantity
from airflow_training.documents.resolved import ResolvedJob, ResolvedPreflight
from airflow_training.documents.shapes import mapping

__all__ = ["network_peers", "observed_hardware", "preflight_result", "required_hardware"]

_GPU = "nvidia.com/gpu"


def required_hardware(job: ResolvedJob, resources: Mapping[str, str]) -> RequiredHardware | None:
    """Requirement that an instance with these resources is checked for; None: this job checks nothing."""
    devices = int(parse_quantity(resources[_GPU])) if _GPU in resources else None
    wanted = job.preflight
    if wanted is None:
        if job.checkpoint is None:
            return None
        wanted = ResolvedPreflight(timeout_seconds=job.restart.ready_timeout_seconds)
    devices = devices if wanted.gpus is None else wanted.gpus
    return RequiredHardware(
        # who measures the network waits for others, which is no lack of its own
        timeout_seconds=wanted.timeout_seconds + wanted.network_wait_seconds * wanted.network,
        devices=devices,
        memory_share=STRAINED_SHARE,
        memory_pressure=STRAINED_PRESSURE,
        free_bytes=max(FULL_BYTES, wanted.disk_free_bytes),
        device_free_bytes=wanted.gpu_free_bytes,
        needs_devices=bool(wanted.gpus or (wanted.gpu_free_bytes and devices)),
        disk_path=wanted.disk_path,
        disk_bandwidth=wanted.disk_bandwidth,
    )


def network_peers(
    job: ResolvedJob,
    where: Callable[[int], tuple[str, str, int]],
    *,
    size: int,
    index: int,
    attempt: int,
) -> NetworkPeers | None:
    """Return whom an instance measures the network with: the next two of its role. None: with nobody.

    `where` gives name, host and port of an instance of the role, which has `size` of them. Only first attempts begin
    together: beside a later one the others train.
    """
    wanted = job.preflight
    if wanted is None or not wanted.network or attempt or index >= size:
        return None
    others = tuple(where((index + step) % size) for step in (1, 2)[: size - 1])
    if not others:
        return None
    return NetworkPeers(
        port=where(index)[2],
        peers=others,
        asked_by=len(others),
        wait_seconds=wanted.network_wait_seconds,
        bandwidth=wanted.network_bandwidth,
        latency=wanted.network_latency,
    )


def preflight_result(lines: Sequence[str]) -> Mapping[str, Any] | None:
    """Figures of the checks before an attempt's command started, by its agent's records; None: it has not, as yet."""
    for record in read_records(lines):
        if record.get("on") == "start":
            return mapping(mapping(record.get("ready")).get("measured"))
    return None


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
