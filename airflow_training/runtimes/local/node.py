"""What this machine has: processors, memory, GPUs, within the limits set around us."""

from __future__ import annotations

import math
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from airflow_training.agent.limits import own_cgroup
from airflow_training.runtimes.port import NodeView

__all__ = ["this_node"]

_NVIDIA_SECONDS = 10.0


def this_node(
    *, asked_cpus: float = 0.0, asked_memory_bytes: int = 0, asked_gpus: int = 0
) -> NodeView:
    """Return this machine; `asked_…`: what living instances were promised."""
    cpus, memory, gpus = _cpus(), _memory_bytes(), _gpus()
    available = _meminfo("MemAvailable") or memory
    return NodeView(
        name=socket.gethostname(),
        cpus=cpus,
        memory_bytes=memory,
        gpus=gpus,
        free_gpus=max(0, gpus - asked_gpus),
        free_cpus=max(0.0, cpus - asked_cpus),
        free_memory_bytes=max(0, min(memory - asked_memory_bytes, available)),
    )


def _groups() -> Iterator[Path]:
    """Yield our cgroup and everything above it: each may set a limit."""
    group = own_cgroup()
    while group is not None and (group / "cgroup.controllers").exists():
        yield group
        group = group.parent


def _cpus() -> float:
    try:
        count = float(len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):
        count = float(os.cpu_count() or 1)
    for group in _groups():
        try:
            quota, period = (group / "cpu.max").read_text().split()
        except (OSError, ValueError):
            continue
        if quota != "max":
            count = min(count, int(quota) / int(period))
    return count


def _meminfo(name: str) -> int:
    """Return a number of `/proc/meminfo` in bytes; 0 where it is not there."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)


def _memory_bytes() -> int:
    total: float = _meminfo("MemTotal") or math.inf
    limits = [group / "memory.max" for group in _groups()]
    limits.append(Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))  # cgroup v1
    for file in limits:
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return 0 if total == math.inf else int(total)


@lru_cache(maxsize=1)
def _gpus() -> int:
    """Return how many NVIDIA GPUs there are; asked once, they do not come and go."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return 0
    try:
        listed = subprocess.run(
            [tool, "--list-gpus"],
            capture_output=True,
            text=True,
            timeout=_NVIDIA_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
