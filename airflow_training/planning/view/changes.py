"""What is different between two cluster views, in words for an event."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_training.documents.text import counted
from airflow_training.planning.view.cluster import ClusterView, Link, NodeGroup


def changes(before: ClusterView, after: ClusterView) -> tuple[str, ...]:
    """Differences in words, a phrase each; empty where a plan cannot tell the two apart."""
    then = {group.name: group for group in before.groups}
    now = {group.name: group for group in after.groups}
    found: list[str] = []
    for name in (*then, *(name for name in now if name not in then)):
        if name not in now:
            found.append(f"{name} is gone ({counted(then[name].count, 'node')})")
        elif name not in then:
            found.append(f"{name} is new ({counted(now[name].count, 'node')})")
        else:
            found += _of_group(then[name], now[name])
    if before.quota != after.quota:
        found.append(f"the quota is {_quota(after, 'gone')} (before: {_quota(before, 'none')})")
    if before.tiers != after.tiers:
        found.append("the switches above the nodes changed")
    for pair in sorted({*before.links, *after.links}):
        found += _of_link(" to ".join(pair), before.links.get(pair), after.links.get(pair))
    return tuple(found)


def _quota(view: ClusterView, without: str) -> str:
    return without if view.quota is None else counted(view.quota, "device")


def _of_group(then: NodeGroup, now: NodeGroup) -> Iterator[str]:
    name = then.name
    if now.count < then.count:
        yield f"{name} lost {counted(then.count - now.count, 'node')}, {now.count} are left"
    if now.count > then.count:
        yield f"{name} gained {counted(now.count - then.count, 'node')}, now {now.count}"
    if (now.device, now.devices_per_node) != (then.device, then.devices_per_node):
        yield f"{name} has other devices ({now.devices_per_node} x {now.device.name} a node)"
    if now.efficiency != then.efficiency:
        yield f"{name} runs at {now.efficiency:.0%} of its rate (before: {then.efficiency:.0%})"
    yield from _of_link(f"{name}'s links inside a node", then.intra_node, now.intra_node)
    yield from _of_link(f"{name}'s network", then.nic, now.nic)
    if now.nics_per_node != then.nics_per_node:
        yield f"{name} has {counted(now.nics_per_node, 'NIC')} a node (before: {then.nics_per_node})"
    if _prices(now) != _prices(then):
        yield f"{name} has other prices"


def _of_link(name: str, then: Link | None, now: Link | None) -> Iterator[str]:
    if then == now:
        return
    if then is None or now is None:
        yield f"{name}: {'gone' if now is None else 'new'}"
    elif now.bandwidth != then.bandwidth:
        slower = "slower" if now.bandwidth < then.bandwidth else "faster"
        yield f"{name}: {slower} ({now.bandwidth / 1e9:.3g} GB/s, before {then.bandwidth / 1e9:.3g})"
    else:
        yield f"{name}: of another kind ({now.name}, before {then.name})"


def _prices(group: NodeGroup) -> tuple[float | None, float | None, float]:
    return (
        group.price_per_device_hour,
        group.spot_price_per_device_hour,
        group.spot_restarts_per_device_hour,
    )
