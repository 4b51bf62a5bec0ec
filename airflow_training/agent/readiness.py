"""What an instance lacks around it before its command may start: records in, words out. Pure.

`found` is what was looked at just now: `at`, `boot_id`, `pids`, `memory` and `pressure` as in a record of
the environment, `available_bytes` of the machine, `disk`, `devices`, `store`, and `unanswered` (check ->
seconds) and `failed` (check -> error). What nobody could look at is not there, and not missed.
`wanted` comes from the controller (`control.hardware`). Python 3.8 and newer.
"""

from __future__ import annotations

import errno
from collections import Counter, namedtuple

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    Record = Mapping[str, Any]

__all__ = ["CHECKS", "Shortcoming", "find_shortcomings", "measured_figures", "performed_checks"]

CHECKS = ("node", "devices", "memory", "disk", "network", "store")
_CLOCK_SECONDS = 300.0
"""How far a clock may be behind: object stores refuse requests that are a quarter of an hour off."""
_HOPELESS = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
"""Errors of a disk that no waiting ends."""

Shortcoming = namedtuple("Shortcoming", "check text may_pass")  # see `typing` above


def performed_checks(found: Record) -> list[str]:
    """Return the checks that were made."""
    asked = {"node", "memory", "disk"}
    asked.update(name for name in ("devices", "network", "store") if found.get(name) is not None)
    if "unchecked" in _part(found, "store"):
        asked.discard("store")
    return [name for name in CHECKS if name in asked]


def find_shortcomings(found: Record, wanted: Record) -> list[Shortcoming]:
    """Return everything that is not as it has to be, in the order of `CHECKS`."""
    lacks = [
        *_node(found, wanted),
        *_devices(found, wanted),
        *_memory(found, wanted),
        *_disk(found, wanted),
        *_network(found, wanted),
        *_store(found),
    ]
    for check, seconds in _part(found, "unanswered").items():
        lacks.append(Shortcoming(check, f"no answer in {seconds:.0f} s", may_pass=True))
    return sorted(lacks, key=lambda each: CHECKS.index(each.check))


def _node(found: Record, wanted: Record) -> Iterator[Shortcoming]:
    error = _part(found, "failed").get("node")
    if error:
        yield Shortcoming("node", f"no process can be started: {error}", may_pass=True)
    pids = _part(found, "pids")
    if "limit" in pids and pids.get("current", 0) >= pids["limit"]:
        yield Shortcoming(
            "node", f"{pids['current']} of {pids['limit']} processes live already", may_pass=True
        )
    behind = _part(wanted, "before").get("at", 0.0) - found.get("at", 0.0)
    if behind > _CLOCK_SECONDS:
        yield Shortcoming(
            "node",
            f"its clock is {behind:.0f} s behind the last record of the attempt before",
            may_pass=True,
        )


# devices -----------------------------------------------------------------------------------------
def _devices(found: Record, wanted: Record) -> Iterator[Shortcoming]:
    """Compare with the limits and, on the same machine since its boot, with what was there before."""
    if "devices" in _part(found, "unanswered"):
        return
    before = _part(wanted, "before")
    same_machine = before.get("boot_id") and before["boot_id"] == found.get("boot_id")
    names_before = list(before.get("devices") or ()) if same_machine else []
    devices = found.get("devices")
    if devices is None:
        if names_before:
            yield _missing(0, len(names_before), names_before)
        elif wanted.get("needs_devices"):
            yield Shortcoming("devices", "nothing here tells of GPUs", may_pass=True)
        return
    for each in devices:
        if each.get("error"):
            text = f"device {each.get('id')}: {each['error']}"
            yield Shortcoming("devices", text, may_pass=True)
    if any(each.get("id") == "all" and each.get("error") for each in devices):
        return  # how many there are is not known
    least = wanted.get("device_free_bytes", 0)
    for each in devices:
        free = each.get("bytes", 0) - each.get("used_bytes", 0)
        if least and "bytes" in each and free < least:
            text = f"device {each.get('id')}: {_size(free)} are free, {_size(least)} are needed"
            yield Shortcoming("devices", text, may_pass=True)
    names = [str(each.get("name") or "") for each in devices]
    limit = None if any(each.get("divided") for each in devices) else wanted.get("devices")
    needed = len(names_before) if limit is None else limit
    gone = list((Counter(names_before) - Counter(names)).elements())
    if len(names) < needed:
        yield _missing(len(names), needed, gone)
    elif len(names_before) == needed and gone:
        yield Shortcoming(
            "devices", f"not there any more: {_listed(gone)}; found {_listed(names)}", may_pass=True
        )


def _missing(there: int, needed: int, names: Sequence[str]) -> Shortcoming:
    which = f", missing {_listed(names)}" if any(names) else ""
    return Shortcoming("devices", f"{there} of {needed} are there{which}", may_pass=True)


def _listed(names: Sequence[str]) -> str:
    counts = Counter(name or "a device without a name" for name in names)
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items()))


# memory, disk, store -----------------------------------------------------------------------------
def _memory(found: Record, wanted: Record) -> Iterator[Shortcoming]:
    memory = _part(found, "memory")
    limit, used = memory.get("limit_bytes"), memory.get("used_bytes", 0)
    if limit and used / limit > wanted["memory_share"]:
        yield Shortcoming(
            "memory",
            f"{_size(used)} of {_size(limit)} are in use, at most {wanted['memory_share']:.0%} may be",
            may_pass=True,
        )
    waited = _part(_part(found, "pressure"), "memory").get("full10", 0.0)
    if waited > wanted["memory_pressure"]:
        yield Shortcoming(
            "memory",
            f"everything waited for it in {waited:.0f} % of the last 10 s,"
            f" at most {wanted['memory_pressure']:g} % are fine",
            may_pass=True,
        )
    free = [found["available_bytes"]] if "available_bytes" in found else []
    if limit:
        free.append(max(0, limit - used + memory.get("cache_bytes", 0)))
    needed = _part(wanted, "before").get("memory_bytes", 0)
    if free and min(free) < needed:
        yield Shortcoming(
            "memory",
            f"{_size(min(free))} are free, {_size(needed)} were needed before",
            may_pass=True,
        )


def _disk(found: Record, wanted: Record) -> Iterator[Shortcoming]:
    disk = _part(found, "disk")
    if disk.get("error"):
        may_pass = disk.get("errno") not in _HOPELESS
        yield Shortcoming("disk", f"cannot write to {disk['folder']}: {disk['error']}", may_pass)
    free = disk.get("free_bytes")
    if free is not None and free < wanted["free_bytes"]:
        yield Shortcoming(
            "disk",
            f"{_size(free)} are free at {disk['folder']}, {_size(wanted['free_bytes'])} are needed",
            may_pass=True,
        )
    if disk.get("free_files", 1) < 1:
        yield Shortcoming("disk", f"{disk['folder']} takes no file more", may_pass=True)
    least, measured = wanted.get("disk_bandwidth", 0), disk.get("bandwidth")
    if least and measured is not None and measured < least:
        text = f"{_size(measured)}/s are written at {disk['folder']}, {_size(least)}/s are needed"
        yield Shortcoming("disk", text, may_pass=True)


def _network(found: Record, wanted: Record) -> Iterator[Shortcoming]:
    """Take the better of two ways: where both are bad, it is hardly the other ends. Nobody is there for another look."""
    network = _part(found, "network")
    if network.get("error"):
        yield Shortcoming("network", network["error"], may_pass=False)
    there = [each for each in network.get("peers") or () if "latency" in each]
    limits = wanted.get("network") or {}
    most, least = limits.get("latency", 0), limits.get("bandwidth", 0)
    if there and most and min(each["latency"] for each in there) > most:
        text = f"{_ways(there)}, at most {most * 1000:g} ms are fine"
        yield Shortcoming("network", text, may_pass=False)
    if there and least and max(each["bandwidth"] for each in there) < least:
        text = f"{_ways(there)}, {_size(least)}/s are needed"
        yield Shortcoming("network", text, may_pass=False)


def measured_figures(found: Record, wanted: Record) -> dict[str, str]:
    """Figures of what was measured, in words, by check."""
    told = {}
    devices = found.get("devices")
    if devices is not None and (wanted.get("needs_devices") or wanted.get("device_free_bytes")):
        names = _listed([str(each.get("name") or "") for each in devices])
        free = [each["bytes"] - each.get("used_bytes", 0) for each in devices if "bytes" in each]
        told["devices"] = names + (f", {_size(min(free))} free" if free else "")
    disk = _part(found, "disk")
    if "bandwidth" in disk:
        told["disk"] = f"{_size(disk['bandwidth'])}/s, {_size(disk.get('free_bytes', 0))} free"
    if found.get("network") is not None:
        told["network"] = _ways(_part(found, "network").get("peers") or ())
    return told


def _ways(peers: Sequence[Record]) -> str:
    return "; ".join(
        f"to {each['name']} {each['latency'] * 1000:.2f} ms, {_size(each['bandwidth'])}/s"
        if "latency" in each
        else f"{each['name']} did not answer"
        for each in peers
    )


def _store(found: Record) -> Iterator[Shortcoming]:
    error = _part(found, "store").get("error")
    if error:
        yield Shortcoming("store", error, may_pass=True)


def _part(record: Record, name: str) -> Record:
    return record.get(name) or {}


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
