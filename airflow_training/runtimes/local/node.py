"""What this machine has: processors, memory, GPUs, within the limits set around us."""

from __future__ import annotations

import math
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from airflow_training.agent.limits import own_cgroup
from airflow_training.runtimes.port import NodeView

__all__ = ["this_node", "visible_gpus"]

_NVIDIA_SECONDS = 10.0
_LISTED_SECONDS = 15.0
"""How long a listing counts as fresh."""
_GPU = re.compile(r"^GPU (\d+): *(.*?) *\(UUID: ([^)]*)\)", re.MULTILINE)


def this_node(
    *, asked_cpus: float = 0.0, asked_memory_bytes: int = 0, free_gpus: int | None = None
) -> NodeView:
    """Return this machine; `asked_…`: what living instances were promised."""
    cpus, memory, gpus = _cpus(), _memory_bytes(), len(visible_gpus())
    available = _meminfo("MemAvailable") or memory
    return NodeView(
        name=socket.gethostname(),
        cpus=cpus,
        memory_bytes=memory,
        gpus=gpus,
        labels=_labels(),
        free_gpus=gpus if free_gpus is None else free_gpus,
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


def visible_gpus() -> tuple[str, ...]:
    """Return the NVIDIA GPUs we may use, as `CUDA_VISIBLE_DEVICES` names them.

    Ours bounds them, read as CUDA does: what follows a name that means no device counts no more.
    """
    gpus = _gpus()
    bound = os.environ.get("CUDA_VISIBLE_DEVICES")
    if bound is None or not gpus:
        return tuple(gpus)
    found: list[str] = []
    for name in map(str.strip, bound.split(",")):
        # a part of a GPU is listed nowhere: whoever names it knows
        device = name if name in gpus or name.startswith("MIG-") else _by_uuid(name, gpus)
        if device is None or device in found:
            break
        found.append(device)
    return tuple(found)


def _by_uuid(name: str, gpus: Mapping[str, str]) -> str | None:
    """Return the number of the one GPU whose UUID begins with `name`."""
    same = [number for number, uuid in gpus.items() if name and uuid.startswith(name)]
    return same[0] if len(same) == 1 else None


class _GpuInventory:
    """What `nvidia-smi` lists. Asked again after a while: a GPU that breaks is listed no more."""

    def __init__(self) -> None:
        self._text = ""
        self._fresh_until = 0.0

    def text(self) -> str:
        """Return the lines as they were a moment ago; empty where there is no such tool."""
        now = time.monotonic()
        if now >= self._fresh_until:
            self._text = self._ask()
            self._fresh_until = now + _LISTED_SECONDS
        return self._text

    def _ask(self) -> str:
        tool = shutil.which("nvidia-smi")
        if tool is None:
            return ""
        try:
            listed = subprocess.run(
                [tool, "--list-gpus"],
                capture_output=True,
                text=True,
                timeout=_NVIDIA_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return self._text
        # it also fails where one of several GPUs is lost: those it names are there
        answered = listed.returncode == 0 or _GPU.search(listed.stdout)
        return listed.stdout if answered else self._text


_listing = _GpuInventory()


def _gpus() -> Mapping[str, str]:
    """Return number -> UUID of the NVIDIA GPUs."""
    return {number: uuid for number, _, uuid in _GPU.findall(_listing.text())}


def _labels() -> Mapping[str, str]:
    """Return what the GPUs we may use are; the first one speaks for all."""
    names = {number: name for number, name, _ in _GPU.findall(_listing.text())}
    first = next(iter(visible_gpus()), "")
    return {"nvidia.com/gpu.product": names[first]} if first in names else {}
