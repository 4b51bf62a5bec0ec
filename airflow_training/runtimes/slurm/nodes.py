"""Nodes of the cluster, from what `scontrol show nodes --oneliner` and `show topology` print. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from airflow_training.runtimes.port import NodeView

__all__ = ["expand_nodes", "node_view", "parse_nodes", "parse_topology"]

_USELESS = re.compile(r"DOWN|DRAIN|FAIL|MAINT|POWER|REBOOT|INVAL|NOT_RESPONDING|\*")
_GPUS = re.compile(r"gpu(?::(?P<type>[A-Za-z][\w.-]*))?:(?P<count>\d+)")


def parse_nodes(
    text: str, *, partition: str = "", switches: Mapping[str, str] | None = None
) -> list[NodeView]:
    """Nodes that take jobs, in the partition where one is named; `switches`: node -> its switch."""
    told = (
        node_view(_fields(line), partition=partition, switches=switches)
        for line in text.splitlines()
    )
    return [each for each in told if each is not None]


def node_view(
    said: Mapping[str, str], *, partition: str = "", switches: Mapping[str, str] | None = None
) -> NodeView | None:
    """Return a node from what `scontrol show node` says of it; None for one that takes no jobs there."""
    name = said.get("NodeName", "")
    if not name or _USELESS.search(said.get("State", "")):
        return None
    partitions = said.get("Partitions", "").split(",")
    if partition and not set(partition.split(",")) & set(partitions):
        return None
    cpus = float(said.get("CPUEfctv") or said.get("CPUTot") or 0)
    memory = int(said.get("RealMemory") or 0) << 20
    kind, gpus = _gpus(said.get("Gres", ""))
    _, used = _gpus(said.get("GresUsed", ""))
    labels = {
        "slurm/features": said.get("ActiveFeatures", ""),
        "slurm/partitions": said.get("Partitions", ""),
        "slurm/switch": (switches or {}).get(name, ""),
        "nvidia.com/gpu.product": kind,
    }
    return NodeView(
        name=name,
        cpus=cpus,
        memory_bytes=memory,
        gpus=gpus,
        labels={key: value for key, value in labels.items() if value not in ("", "(null)")},
        free_cpus=max(0.0, cpus - float(said.get("CPUAlloc") or 0)),
        free_memory_bytes=max(0, memory - (int(said.get("AllocMem") or 0) << 20)),
        free_gpus=max(0, gpus - used) if "GresUsed" in said else None,
    )


def _fields(line: str) -> dict[str, str]:
    """Key -> value of a line; values may have blanks, keys never do."""
    found: dict[str, str] = {}
    keys = list(re.finditer(r"(?:^|\s)([A-Z]\w+)=", line))
    for here, after in zip(keys, [*keys[1:], None], strict=True):
        end = len(line) if after is None else after.start()
        found.setdefault(here[1], line[here.end() : end].strip())
    return found


def _gpus(text: str) -> tuple[str, int]:
    kinds, count = "", 0
    for match in _GPUS.finditer(text):
        kinds = kinds or (match["type"] or "")
        count += int(match["count"])
    return kinds, count


def parse_topology(text: str) -> dict[str, str]:
    """Node -> the switch that it hangs on (level 0)."""
    found = {}
    for line in text.splitlines():
        said = _fields(line)
        if said.get("SwitchName") and said.get("Level", "0") == "0":
            for node in expand_nodes(said.get("Nodes", "")):
                found[node] = said["SwitchName"]
    return found


def expand_nodes(listed: str) -> Iterator[str]:
    """Yield the names of a list such as `n[1-3,07],gpu[01-02]-ib`."""
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", listed):
        yield from _expand(part)


def _expand(part: str) -> Iterator[str]:
    match = re.search(r"\[([^\]]*)\]", part)
    if match is None:
        if part.strip():
            yield part.strip()
        return
    for each in match[1].split(","):
        first, _, last = each.partition("-")
        for number in range(int(first), int(last or first) + 1):
            head, tail = part[: match.start()], part[match.end() :]
            yield from _expand(f"{head}{number:0{len(first)}d}{tail}")
