"""Models of roles, their dependencies, and the shorthand for the training container."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from airflow_training.documents.base import (
    DnsLabel,
    Many,
    Model,
    Number,
    Threshold,
    discriminate_by_kind,
)
from airflow_training.documents.resolved import DependencyStatus, RestartPolicy

__all__ = ["SHORTHAND", "Dependency", "NetworkPolicy", "NetworkRule", "Role", "Shorthand", "Spot"]


class Shorthand(Model):
    """Keys for the training container that may stand on the job and on each role.

    Their insides are Kubernetes' own and are checked by `podmodel`. None: not given, or, when
    written as null on a role, "not the job's".
    """

    image: str | None = None
    command: Many[str] | None = None
    args: Many[str] | None = None
    env: Many[dict[str, Any]] | None = None
    env_from: Many[dict[str, Any]] | None = None
    working_dir: str | None = None
    """On the local runtime relative to the job file."""
    resources: dict[str, Any] | None = None
    ports: Many[dict[str, Any]] | None = None
    volumes: Many[dict[str, Any]] | None = None
    volume_mounts: Many[dict[str, Any]] | None = None


SHORTHAND: Mapping[str, str] = {
    field.alias or name: name for name, field in Shorthand.model_fields.items()
}
"""Shorthand key, in camelCase -> its Python name."""


class Dependency(Model):
    role: str
    status: DependencyStatus = "AddressKnown"
    require: Literal["All", "Any"] = "All"
    listener: Literal["Each", "Any"] = "Each"
    answer: Literal["Auto", "List", "Confirmation"] = "Auto"
    timeout_seconds: Annotated[Number, Field(gt=0)] = 600.0
    """How long what is waited for may run without being there, while nothing else holds the role; its own
    waits do not count."""
    poll_seconds: Annotated[Number, Field(gt=0)] = 1.0


class NetworkRule(Model):
    """Who may be reached, or reach a role: any of those that are named; nobody named: everybody."""

    roles: Many[str] = Field(default_factory=list)
    """Of this run."""
    peers: Many[dict[str, Any]] = Field(default_factory=list)
    """Others, as `NetworkPolicyPeer` of Kubernetes: `podSelector`, `namespaceSelector`, `ipBlock`."""
    ports: Many[
        Annotated[
            Annotated[int, Tag("<number>"), Field(ge=1, le=65535)] | Annotated[str, Tag("<text>")],
            discriminate_by_kind("a number or the name of a port", kinds=("<number>", "<text>")),
        ]
    ] = Field(default_factory=list)
    """Numbers, or names of ports of the role that is reached; none: all of them."""


class NetworkPolicy(Model):
    """With whom the instances of a role may speak, where the cluster's network carries such policies out."""

    ingress: Many[NetworkRule] | None = None
    """None: anybody may reach them; []: nobody."""
    egress: Many[NetworkRule] | None = None
    """None: they reach anybody; []: only name servers."""


class Spot(Model):
    """How many instances of a role are on machines that the platform may take away at any time, at a lower price."""

    replicas: Annotated[int, Field(ge=0)] = 0
    """Those with the highest indexes; the others are on no such machine."""
    label: str = "karpenter.sh/capacity-type"
    """Of the nodes."""
    value: str = "spot"
    """Of the label, and of the taint that such nodes may have by the same name."""


class Role(Shorthand):
    """A group of equal instances."""

    name: DnsLabel
    replicas: Annotated[int, Field(ge=0)] = 1
    min_replicas: Annotated[int, Field(ge=0)] | None = None
    max_replicas: Annotated[int, Field(ge=1)] | None = None
    template: dict[str, Any] | None = None
    """PodTemplateSpec, merged over the shorthand."""
    network_policy: NetworkPolicy | None = None
    """None: as the namespace has it."""
    spot: Spot | None = None
    """None: wherever the template says."""
    warm_spares: Annotated[int, Field(ge=0)] = 0
    """Places that are held beside those of its instances, for one that finds none."""
    depends_on: Many[Dependency] = Field(default_factory=list)
    """Not set: the framework's."""
    restart_policy: RestartPolicy | None = None
    """None: the framework's."""
    backoff_limit: Annotated[int, Field(ge=0)] = 6
    max_restarts: Annotated[int, Field(ge=0)] | None = None
    """Of all its instances together; None: no limit but the run's."""
    min_succeeded: Threshold = "All"
    min_failed: Threshold = "Any"
    tracked: bool | None = None
    """None: the framework's."""
