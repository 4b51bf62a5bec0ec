"""Cluster documents to views, and views to documents."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from airflow_training.documents.paths import Loc, format_path
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem
from airflow_training.planning.sources.cluster_document import (
    BetweenDocument,
    ClusterDocument,
    DeviceDocument,
    LinkDocument,
    NodesDocument,
    TierDocument,
)
from airflow_training.planning.sources.reading import Mistakes, Unknown, read
from airflow_training.planning.view import catalogue
from airflow_training.planning.view.cluster import ClusterView, Device, Link, NodeGroup, Tier

__all__ = ["parse_cluster", "write_cluster"]


def parse_cluster(data: Any, *, at: Loc = ("cluster",), unknown: Unknown = "refuse") -> ClusterView:
    """Return the view that a cluster document describes.

    Raises:
        InputError: with every mistake of the document, or with every name that nothing has.
    """
    document = read(ClusterDocument, data, at=at, unknown=unknown)
    names = _group_names(document.nodes)
    mistakes = Mistakes()
    groups = []
    for index, nodes in enumerate(document.nodes):
        with mistakes:
            groups.append(_group(nodes, name=names[index], at=(*at, "nodes", index)))
    links = {}
    for index, joined in enumerate(document.links):
        place = (*at, "links", index)
        mistakes += _unknown_groups(joined, names, at=place)
        with mistakes:
            pair = (min(joined.between), max(joined.between))
            links[pair] = _link(joined.link, at=(*place, "link"))
    mistakes += _repeated(names, document.nodes, at=at)
    mistakes += _shrinking_tiers(document.tiers, at=at)
    mistakes.complain()
    view = ClusterView(
        name=document.name,
        groups=tuple(groups),
        tiers=tuple(Tier(**tier.model_dump()) for tier in document.tiers),
        links=links,
        quota=document.quota,
    )
    mistakes += _unreachable(view, at=at)
    mistakes.complain()
    return view


def write_cluster(view: ClusterView) -> dict[str, Any]:
    """Return the document of a view: `parse_cluster` makes the same view of it."""
    document: dict[str, Any] = {
        "name": view.name,
        "nodes": [_write_group(group) for group in view.groups],
    }
    if view.tiers:
        document["tiers"] = [dataclasses.asdict(tier) for tier in view.tiers]
    if view.links:
        document["links"] = [
            {"between": list(pair), "link": _write_link(link)} for pair, link in view.links.items()
        ]
    if view.quota is not None:
        document["quota"] = view.quota
    return document


def _group_names(groups: Sequence[NodesDocument]) -> list[str]:
    """Return a name for each group; where devices repeat, those not named are numbered."""
    kinds = [_kind(nodes.device) for nodes in groups]
    seen: Counter[str] = Counter()
    names = []
    for nodes, kind in zip(groups, kinds, strict=True):
        seen[kind] += 1
        names.append(nodes.name or (f"{kind}-{seen[kind]}" if kinds.count(kind) > 1 else kind))
    return names


def _kind(choice: str | DeviceDocument) -> str:
    if not isinstance(choice, str):
        return choice.name
    try:
        return catalogue.device(choice).name
    except InputError:  # said once, where the group is read
        return choice


def _group(nodes: NodesDocument, *, name: str, at: Loc) -> NodeGroup:
    mistakes = Mistakes()
    device, intra, nic = None, None, None
    with mistakes:
        device = _device(nodes.device, at=(*at, "device"))
        intra = _intra_node(nodes, device, at=(*at, "intra_node"))
    with mistakes:
        nic = _nic(nodes, at=(*at, "nic"))
    if device is None or intra is None or mistakes:
        raise InputError(problems=mistakes)
    return NodeGroup(
        name=name,
        device=device,
        intra_node=intra,
        nic=nic,
        **nodes.model_dump(exclude={"name", "device", "intra_node", "nic", "nic_gbit_s"}),
    )


def _device(choice: str | DeviceDocument, *, at: Loc) -> Device:
    if isinstance(choice, str):
        return catalogue.device(choice, field=format_path(at))
    return Device(**choice.model_dump())


def _link(choice: str | LinkDocument, *, at: Loc) -> Link:
    if isinstance(choice, str):
        return catalogue.link(choice, field=format_path(at))
    return Link(**{**choice.model_dump(), "wired": tuple(sorted(choice.wired))})


def _intra_node(nodes: NodesDocument, device: Device, *, at: Loc) -> Link:
    if nodes.intra_node is not None:
        return _link(nodes.intra_node, at=at)
    usual = catalogue.usual_link(device.name)
    if usual is None:
        raise InputError.of(
            code="missing",
            field=format_path(at),
            message=f"is required: nothing is known of how devices '{device.name}' are joined",
            allowed=catalogue.link_names(),
        )
    return usual


def _nic(nodes: NodesDocument, *, at: Loc) -> Link | None:
    if nodes.nics_per_node == 0 or nodes.nic_gbit_s == 0:
        return None
    if isinstance(nodes.nic, LinkDocument):
        return _link(nodes.nic, at=at)
    if nodes.nic_gbit_s is None:
        return None if nodes.nic is None else _link(nodes.nic, at=at)
    if nodes.nic is None:
        return catalogue.network(nodes.nic_gbit_s)
    return _link(f"{nodes.nic}-{nodes.nic_gbit_s:g}", at=at)


def _write_group(group: NodeGroup) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": group.name,
        "count": group.count,
        "device": _write_device(group.device),
        "devices_per_node": group.devices_per_node,
        "intra_node": _write_link(group.intra_node),
    }
    if group.nic is not None:
        document["nic"] = _write_link(group.nic)
    for field in dataclasses.fields(NodeGroup):
        if field.name not in document and getattr(group, field.name) != field.default:
            document[field.name] = getattr(group, field.name)
    return document


def _write_device(device: Device) -> str | dict[str, Any]:
    try:
        if catalogue.device(device.name) == device:
            return device.name
    except InputError:  # an own device
        pass
    return {**dataclasses.asdict(device), "peak_flops": dict(device.peak_flops)}


def _write_link(link: Link) -> str | dict[str, Any]:
    try:
        if catalogue.link(link.name) == link:
            return link.name
    except InputError:  # an own link
        pass
    return {**dataclasses.asdict(link), "wired": [list(share) for share in link.wired]}


def _unknown_groups(joined: BetweenDocument, names: Sequence[str], *, at: Loc) -> list[Problem]:
    return [
        Problem(
            code="not_allowed",
            field=format_path((*at, "between", place)),
            value=group,
            message="is not the name of a group of nodes",
            allowed=names,
            hint=did_you_mean(group, names),
        )
        for place, group in enumerate(joined.between)
        if group not in names
    ]


def _repeated(names: Sequence[str], groups: Sequence[NodesDocument], *, at: Loc) -> list[Problem]:
    return [
        Problem(
            code="duplicate",
            field=format_path((*at, "nodes", index, "name")),
            value=name,
            message="another group of nodes has this name",
        )
        for index, name in enumerate(names)
        if name in names[:index] and groups[index].name is not None
    ]


def _shrinking_tiers(tiers: Sequence[TierDocument], *, at: Loc) -> list[Problem]:
    return [
        Problem(
            code="out_of_range",
            field=format_path((*at, "tiers", index, "nodes")),
            value=tier.nodes,
            message=f"must be more than the {below.nodes} nodes of the tier below",
        )
        for index, (below, tier) in enumerate(itertools.pairwise(tiers), start=1)
        if tier.nodes <= below.nodes
    ]


def _unreachable(view: ClusterView, *, at: Loc) -> list[Problem]:
    problems = [
        Problem(
            code="missing",
            field=format_path((*at, "nodes", index, "nic_gbit_s")),
            message=f"is required: {group.count} nodes reach each other through a NIC",
        )
        for index, group in enumerate(view.groups)
        if group.count > 1 and group.nic is None
    ]
    return problems + [
        Problem(
            code="missing",
            field=format_path((*at, "links")),
            message=f"nothing joins '{one.name}' and '{other.name}': give both NICs, or a link",
        )
        for one, other in itertools.combinations(view.groups, 2)
        if view.link_between(one.name, other.name) is None
    ]
