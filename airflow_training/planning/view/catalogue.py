"""Devices and links by name, from their data sheets."""

from __future__ import annotations

import functools
import importlib.resources
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem
from airflow_training.planning.view.cluster import Device, Link

__all__ = ["cpu", "device", "device_names", "link", "link_names", "network", "usual_link"]

_VENDORS = ("nvidia", "tesla", "amd", "instinct", "google", "huawei", "intel")
_CORES = re.compile(r"^cpu-?([1-9][0-9]*)$")
_FABRIC = re.compile(r"^(?P<fabric>[a-z-]+?)-?(?P<gbit>[0-9]+(?:\.[0-9]+)?)(?:g|gbit)?$")
_RDMA_GBIT = 100.0
"""A NIC of this rate or above is taken for InfiniBand where nobody says what it is."""


def device(name: str, *, field: str = "device") -> Device:
    """Return the device of that name or alias; vendor, case and punctuation do not matter.

    `CPU` is one core, `CPU-8` eight of them that work as one device.

    Raises:
        InputError: no such device; `field` is where the name was written.
    """
    found = _devices().get(_plain(name))
    cores = _CORES.match(name.lower().strip())
    if found is None and cores:
        return cpu(float(cores[1]))
    if found is None:
        raise InputError(problems=[_unknown("device", name, device_names(), field)])
    return found


def cpu(cores: float, *, memory_bytes: float | None = None) -> Device:
    """Return a device of so many cores; without a memory of its own it has the cores' share."""
    core = _devices()["cpu"]
    return replace(
        core,
        name=f"{core.name}-{cores:g}",
        memory_bytes=core.memory_bytes * cores if memory_bytes is None else memory_bytes,
        memory_bandwidth=core.memory_bandwidth * cores,
        peak_flops={precision: rate * cores for precision, rate in core.peak_flops.items()},
        units=max(1, round(cores)),
    )


def device_names() -> tuple[str, ...]:
    """Return the names of all devices, without aliases."""
    return _names(_devices().values())


def link(name: str, *, field: str = "link") -> Link:
    """Return the link of that name or alias; fabrics carry their rate: `infiniband-200` (Gbit/s).

    Raises:
        InputError: no such link; `field` is where the name was written.
    """
    found = _links().get(_plain(name))
    if found is not None:
        return found
    rated = _FABRIC.match(name.lower().strip())
    if rated and _plain(rated["fabric"]) in _fabrics() and float(rated["gbit"]) > 0:
        return _rated(_fabrics()[_plain(rated["fabric"])], float(rated["gbit"]))
    raise InputError(problems=[_unknown("link", name, link_names(), field)])


def link_names() -> tuple[str, ...]:
    """Return the names of all links, fabrics with `GBIT` where their rate stands."""
    fabrics = dict.fromkeys(str(each["name"]) for each in _fabrics().values())
    return (*_names(_links().values()), *(f"{fabric}-GBIT" for fabric in fabrics))


def network(gbit_s: float) -> Link:
    """Return the link of a NIC of which only the rate is known."""
    return link(f"{'infiniband' if gbit_s >= _RDMA_GBIT else 'ethernet'}-{gbit_s:g}")


def usual_link(device_name: str) -> Link | None:
    """The usual link between devices of that name inside a node; None for unknown devices."""
    found = _devices().get(_plain(device_name))
    name = found.name if found else "CPU" if device_name.startswith("CPU-") else ""
    return link(_usual_links()[name]) if name else None


def _rated(fabric: Mapping[str, Any], gbit_s: float) -> Link:
    return _link({**fabric, "name": f"{fabric['name']}-{gbit_s:g}", "bandwidth": gbit_s * 1e9 / 8})


def _unknown(what: str, name: str, known: Iterable[str], field: str) -> Problem:
    names = tuple(known)
    return Problem(
        code="not_allowed",
        field=field,
        value=name,
        message=f"no {what} is called '{name}'",
        allowed=names,
        hint=did_you_mean(name, names) or f"or describe the {what} as a mapping",
    )


def _plain(name: str) -> str:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "".join(word for word in words if word not in _VENDORS)


def _names(entries: Iterable[Device | Link]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(entry.name for entry in entries))


@functools.cache
def _data(file: str) -> Mapping[str, Any]:
    text = (
        importlib.resources.files("airflow_training.planning")
        .joinpath("data", file)
        .read_text("utf-8")
    )
    loaded: Mapping[str, Any] = json.loads(text)
    return loaded


@functools.cache
def _devices() -> Mapping[str, Device]:
    return {
        _plain(name): Device(
            **{key: entry[key] for key in entry if key not in ("aliases", "usual_link")}
        )
        for entry in _data("devices.json")["devices"]
        for name in (entry["name"], *entry["aliases"])
    }


@functools.cache
def _usual_links() -> Mapping[str, str]:
    return {entry["name"]: entry["usual_link"] for entry in _data("devices.json")["devices"]}


@functools.cache
def _links() -> Mapping[str, Link]:
    return {
        _plain(name): _link(entry)
        for entry in _data("links.json")["links"]
        for name in (entry["name"], *entry["aliases"])
    }


@functools.cache
def _fabrics() -> Mapping[str, Mapping[str, Any]]:
    return {
        _plain(name): entry
        for entry in _data("links.json")["fabrics"]
        for name in (entry["name"], *entry["aliases"])
    }


def _link(entry: Mapping[str, Any]) -> Link:
    wired = tuple((int(size), float(share)) for size, share in entry.get("wired", {}).items())
    plain = {key: entry[key] for key in entry if key not in ("aliases", "wired")}
    return Link(**plain, wired=wired)
