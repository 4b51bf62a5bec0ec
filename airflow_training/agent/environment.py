"""What an instance uses and has around it: cgroup, pressure, disk, processes, devices, node. Linux only.

A `Recorder` keeps the last ten records in a file beside the progress file, one JSON line of at most
8 KiB each, behind the one of the `SoftwareWatch`. Python 3.8 and newer: it runs inside pods too. What the kernel does not tell is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from pathlib import Path

from airflow_training.agent import proc
from airflow_training.agent.files import write_text
from airflow_training.agent.parameters import ParametersFile
from airflow_training.agent.software import SoftwareWatch

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypedDict

    from typing_extensions import Unpack  # of `typing` from 3.11 on

    from airflow_training.agent.devices import DeviceWatch
    from airflow_training.agent.plan_use import PlanUse

    class RecordDetails(TypedDict, total=False):
        """What only the agent knows of a moment."""

        phase: str
        ready: Mapping[str, Any]
        exit: Mapping[str, Any]
        turn: Mapping[str, Any]


__all__ = ["MOST_BYTES", "Cgroup", "Recorder", "free_space"]

MOST_BYTES = 8192
_KEPT = 10
_EXIT_SECONDS = 2.0
"""How long the devices may take to answer at the exit."""
_MOST_PROCESSES = 40
"""In one record, the largest first."""
_LONGEST_NAME = 64
_MOUNT = Path("/sys/fs/cgroup")
_PRESSURE = Path("/proc/pressure")
_UNLIMITED = 1 << 60
_TAIL_BYTES = 1 << 16
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


class Recorder:
    """Writes the records of one instance. Looks at the processes below `root`, this one by default."""

    def __init__(
        self,
        file: Path,
        *,
        progress: Path,
        cgroup: Path | None = None,
        own_cgroup: bool,
        root: int | None = None,
        devices: DeviceWatch | None = None,
        plan: PlanUse | None = None,
    ) -> None:
        """`file`: where the records are; its disk is looked at. `cgroup`: v2, not this process's.

        `own_cgroup`: whether nothing but the instance lives in it. `plan`: whether its command carries one out.
        """
        self._file = file
        self._progress = progress
        self._cgroup = Cgroup(cgroup)
        self._own_cgroup = own_cgroup
        self._root = os.getpid() if root is None else root
        self._devices = devices
        self._plan = plan
        self._software = SoftwareWatch()
        self._parameters = ParametersFile(progress)
        self._number = 0
        self._lines: list[str] = []
        self._node = {"host": socket.gethostname(), "boot_id": proc.boot_id()}

    @property
    def software(self) -> str:
        """The record of the Python that the instance runs, and what its training was set to; "" where nothing was told."""
        return self._software.record(self._parameters)

    def record(self, on: str, **more: Unpack[RecordDetails]) -> str:
        """Write a record and return its line; `on`: `start`, `interval`, `change` or `exit`.

        A disk that takes nothing ends no training: the next record is written with this one.
        """
        processes = _living(self._root)
        if on == "exit":
            self._software.finish()
        else:
            self._software.poll(each["pid"] for each in processes)
        record = {
            "number": self._number,
            "at": round(time.time(), 3),
            "on": on,
            "node": self._node,
            "step": _newest_step(self._progress),
            "usage": _usage(processes, root=self._root),
            "cgroup": "own" if self._own_cgroup else "shared",
            "cpu": self._cgroup.cpu(),
            "memory": self._cgroup.memory(),
            "pids": self._cgroup.pids(),
            "pressure": self._cgroup.pressure(),
            "disk": free_space(self._file.parent),
            "processes": {"count": len(processes), "tree": processes[:_MOST_PROCESSES]},
            "devices": self._ask_devices(on),
            **more,
        }
        plan = None if self._plan is None else self._plan.document()
        if plan is not None:
            record["plan"] = plan
        line = _bounded(record)
        self._number += 1
        self._lines = [*self._lines, line][-_KEPT:]
        with contextlib.suppress(OSError):
            # whoever runs the command may read it: a checkpoint names it
            lines = [self.software, *self._lines] if self.software else self._lines
            write_text(self._file, "".join(f"{each}\n" for each in lines), mode=0o644)
        return line

    def _ask_devices(self, on: str) -> list[dict[str, Any]]:
        """Return what is known of the devices; at the exit, where it counts, what they say now."""
        if self._devices is None:
            return []
        if on == "exit":
            return self._devices.finish(_EXIT_SECONDS)
        known = self._devices.newest()
        self._devices.ask()  # for the record after this one
        return known


def _bounded(record: dict[str, Any]) -> str:
    """Return the record as a line of at most `MOST_BYTES`, without its smallest processes."""
    while True:
        line = json.dumps(record, separators=(",", ":"))
        tree = record["processes"]["tree"]
        if len(line) <= MOST_BYTES:
            return line
        if tree:
            del tree[len(tree) // 2 :]
        elif record["devices"]:
            record["devices"] = record["devices"][: len(record["devices"]) // 2]
        else:
            kept = ("number", "at", "on", "node", "usage", "processes", "turn")
            record = {name: record[name] for name in kept if name in record}
            record["devices"] = []


# cgroups -----------------------------------------------------------------------------------------
class Cgroup:
    """The counters of one control group, by version 2 names, from version 1 where that is mounted."""

    def __init__(self, unified: Path | None = None, *, mount: Path = _MOUNT) -> None:
        """`unified`: a version 2 folder; None: the one that this process lives in."""
        self._mount = mount
        self._paths: dict[str, str] = {}
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/cgroup").read_text().splitlines():
                _, controllers, path = line.split(":", 2)
                for name in controllers.split(","):
                    self._paths[name] = path
        if unified is None and (mount / "cgroup.controllers").exists():
            unified = self._inside(mount, self._paths.get("", "/"))
        self._unified = unified

    def _inside(self, mount: Path, path: str) -> Path:
        # in a container the path may be the host's: its own group is the root of the mount then
        folder = mount / path.lstrip("/")
        return folder if folder.is_dir() else mount

    def _old(self, controller: str) -> Path:
        return self._inside(self._mount / controller, self._paths.get(controller, "/"))

    def cpu(self) -> dict[str, Any]:
        """Return `used_seconds`, `limit_cores`, and how often and long it was throttled."""
        if self._unified is not None:
            stat = _table(self._unified / "cpu.stat")
            quota, _, period = _text(self._unified / "cpu.max").partition(" ")
            limit = _ratio(quota, period)
            used = stat.get("usage_usec")
            return _known(
                used_seconds=None if used is None else used / 1e6,
                limit_cores=limit,
                throttled_periods=stat.get("nr_throttled"),
                throttled_seconds=_scaled(stat.get("throttled_usec"), 1e-6),
            )
        folder = self._old("cpu")
        stat = _table(folder / "cpu.stat")
        return _known(
            used_seconds=_scaled(_whole(self._old("cpuacct") / "cpuacct.usage"), 1e-9),
            limit_cores=_ratio(
                _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
            ),
            throttled_periods=stat.get("nr_throttled"),
            throttled_seconds=_scaled(stat.get("throttled_time"), 1e-9),
        )

    def memory(self) -> dict[str, Any]:
        """Return `used_bytes` without what the kernel drops first, limit, peak and `oom_kills`.

        `cache_bytes`: what of the used ones it could drop as well.
        """
        if self._unified is not None:
            folder = self._unified
            current, limit, peak = (
                _whole(folder / name) for name in ("memory.current", "memory.max", "memory.peak")
            )
            stat = _table(folder / "memory.stat")
            idle, cache = stat.get("inactive_file", 0), stat.get("active_file")
            kills = _table(folder / "memory.events").get("oom_kill")
        else:
            folder = self._old("memory")
            current, limit, peak = (
                _whole(folder / f"memory.{name}_in_bytes")
                for name in ("usage", "limit", "max_usage")
            )
            stat = _table(folder / "memory.stat")
            idle, cache = stat.get("total_inactive_file", 0), stat.get("total_active_file")
            kills = _table(folder / "memory.oom_control").get("oom_kill")
        return _known(
            used_bytes=None if current is None else max(0, current - idle),
            limit_bytes=limit if limit is not None and limit < _UNLIMITED else None,
            peak_bytes=peak,
            cache_bytes=cache,
            oom_kills=kills,
        )

    def pids(self) -> dict[str, Any]:
        """Return how many processes and threads there are, and may be."""
        folder = self._unified if self._unified is not None else self._old("pids")
        return _known(current=_whole(folder / "pids.current"), limit=_whole(folder / "pids.max"))

    def pressure(self) -> dict[str, Any]:
        """Return resource -> percent of the last ten seconds that some, and that all had to wait.

        Of the group where the kernel counts it there, else of the whole machine.
        """
        found = {}
        for name in ("cpu", "memory", "io"):
            text = ""
            if self._unified is not None:
                text = _text(self._unified / f"{name}.pressure")
            stalls = _stalls(text or _text(_PRESSURE / name))
            if stalls:
                found[name] = stalls
        return found


def _stalls(text: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        for pair in rest.split():
            name, _, value = pair.partition("=")
            if name == "avg10":
                with contextlib.suppress(ValueError):
                    found[f"{kind}10"] = float(value)
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""


def _whole(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None


def _table(path: Path) -> dict[str, int]:
    found = {}
    for line in _text(path).splitlines():
        name, _, value = line.partition(" ")
        if value.isdigit():
            found[name] = int(value)
    return found


def _ratio(quota: str, period: str) -> float | None:
    """Return a quota in cores; None for `max` and -1, which are none."""
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _scaled(value: int | None, factor: float) -> float | None:
    return None if value is None else round(value * factor, 3)


def _known(**values: float | None) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


# disk, processes, step -----------------------------------------------------------------------------
def free_space(folder: Path) -> dict[str, Any]:
    """Return `free_bytes`, `bytes` and, where their number is fixed, `free_files` of a folder's disk."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return {}
    room = {"free_bytes": found.f_bavail * found.f_frsize, "bytes": found.f_blocks * found.f_frsize}
    if found.f_files:  # some file systems have no fixed number
        room["free_files"] = found.f_favail
    return room


def _living(root: int) -> list[dict[str, Any]]:
    """Return the processes that live below `root`, the largest first."""
    tree = []
    for pid in proc.descendants(root):
        found = _process(pid)
        if found is not None:
            tree.append(found)
    return sorted(tree, key=lambda each: (-each["rss_bytes"], each["pid"]))


def _process(pid: int) -> dict[str, Any] | None:
    found = _stat(pid)
    if found is None:
        return None
    name, rest = found
    return {
        "pid": pid,
        "parent": int(rest[1]),
        "name": name[:_LONGEST_NAME],
        "state": rest[0].decode(),
        "threads": int(rest[17]),
        "rss_bytes": int(rest[21]) * _PAGE,
        "cpu_seconds": sum(int(each) for each in rest[11:15]) / _TICKS,
    }


def _usage(processes: list[dict[str, Any]], *, root: int) -> dict[str, Any]:
    """Return what these use by themselves, whoever else is in their group or on their machine.

    `rss_bytes`: a page that several of them share is counted in each. `cpu_seconds`: with those
    that have ended, as their parents know.
    """
    found = _stat(root)
    ended = sum(int(each) for each in found[1][13:15]) / _TICKS if found is not None else 0.0
    return {
        "cpu_seconds": round(ended + sum(each["cpu_seconds"] for each in processes), 3),
        "rss_bytes": sum(each["rss_bytes"] for each in processes),
        "processes": len(processes),
        "threads": sum(each["threads"] for each in processes),
    }


def _stat(pid: int) -> tuple[str, list[bytes]] | None:
    """Return the name of a process and the fields of its `stat` from the third on, the state."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # the command's name stands in brackets and may hold anything, brackets too
    opened, closed = text.index(b"("), text.rindex(b")")
    return text[opened + 1 : closed].decode("utf-8", "replace"), text[closed + 2 :].split()


def _newest_step(progress: Path) -> int | None:
    """Return the step of the newest whole line that has one."""
    try:
        with progress.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return None
    for line in reversed(lines):
        if b'"step"' in line:
            with contextlib.suppress(ValueError, RecursionError):
                values = json.loads(line)
                step = values.get("step") if isinstance(values, dict) else None
                if isinstance(step, int):
                    return step
    return None
