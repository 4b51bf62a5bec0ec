"""The kinds of objects that are read or written on a cluster, and where they are found. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "CONFIG_MAPS",
    "COSCHEDULING_GROUPS",
    "EVENTS",
    "KUEUE_LOCAL_QUEUES",
    "KUEUE_WAITING",
    "KUEUE_WORKLOADS",
    "NAMESPACES",
    "NETWORK_POLICIES",
    "NODES",
    "PODS",
    "PODS_OF_ALL",
    "PRIORITY_CLASSES",
    "RESOURCE_QUOTAS",
    "REVIEWS",
    "SECRETS",
    "SERVICES",
    "SERVICE_ACCOUNTS",
    "VOLCANO_GROUPS",
    "VOLCANO_QUEUES",
    "ResourceKind",
]


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """One resource of the API."""

    group: str
    """Empty: the core group."""
    version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path below the server's address."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *filter(None, (name, subresource))])

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


CONFIG_MAPS = ResourceKind("", "v1", "configmaps")
EVENTS = ResourceKind("", "v1", "events")
NAMESPACES = ResourceKind("", "v1", "namespaces", namespaced=False)
NETWORK_POLICIES = ResourceKind("networking.k8s.io", "v1", "networkpolicies")
NODES = ResourceKind("", "v1", "nodes", namespaced=False)
PODS = ResourceKind("", "v1", "pods")
PODS_OF_ALL = ResourceKind("", "v1", "pods", namespaced=False)
"""To list those of every namespace."""
RESOURCE_QUOTAS = ResourceKind("", "v1", "resourcequotas")
SECRETS = ResourceKind("", "v1", "secrets")
SERVICE_ACCOUNTS = ResourceKind("", "v1", "serviceaccounts")
SERVICES = ResourceKind("", "v1", "services")
PRIORITY_CLASSES = ResourceKind("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
REVIEWS = ResourceKind("authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False)
VOLCANO_GROUPS = ResourceKind("scheduling.volcano.sh", "v1beta1", "podgroups")
VOLCANO_QUEUES = ResourceKind("scheduling.volcano.sh", "v1beta1", "queues", namespaced=False)
COSCHEDULING_GROUPS = ResourceKind("scheduling.x-k8s.io", "v1alpha1", "podgroups")
KUEUE_LOCAL_QUEUES = (
    ResourceKind("kueue.x-k8s.io", "v1beta2", "localqueues"),
    ResourceKind("kueue.x-k8s.io", "v1beta1", "localqueues"),
)
"""As Kueue 0.15 and newer serve them, and as those before 0.20 do."""
KUEUE_WORKLOADS = (
    ResourceKind("kueue.x-k8s.io", "v1beta2", "workloads"),
    ResourceKind("kueue.x-k8s.io", "v1beta1", "workloads"),
)
KUEUE_WAITING = (
    ResourceKind("visibility.kueue.x-k8s.io", "v1beta2", "localqueues"),
    ResourceKind("visibility.kueue.x-k8s.io", "v1beta1", "localqueues"),
)
"""Queues, of which `pendingworkloads` lists what waits in what order."""
