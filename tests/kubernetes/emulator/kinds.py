"""Which resources the server serves: one table, and the groups that can be switched on."""

from __future__ import annotations

from dataclasses import dataclass

ALL_VERBS = (
    "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    group: str
    versions: tuple[str, ...]
    """Served versions, the stored one first; all hold the same objects."""
    plural: str
    kind: str
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    short_names: tuple[str, ...] = ()
    custom: bool = False
    """Defined by a CRD: no strategic merge patch, updates need a resource version."""
    returns_deleted: bool = False
    """A delete answers with the object, not with a Status."""
    model: str = ""
    """Class of the official client whose fields and types are checked."""

    @property
    def qualified(self) -> str:
        """Return the name as error messages spell it: `pods`, `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def api_version(self, version: str = "") -> str:
        """Return `v1` or `batch/v1`."""
        version = version or self.versions[0]
        return f"{self.group}/{version}" if self.group else version

    @property
    def status_subresource(self) -> bool:
        return "status" in self.subresources


def _core(plural: str, kind: str, **more: object) -> Kind:
    return Kind(group="", versions=("v1",), plural=plural, kind=kind, **more)  # type: ignore[arg-type]  # passed through


NAMESPACES = _core(
    "namespaces", "Namespace", namespaced=False, subresources=("finalize", "status"),
    short_names=("ns",), model="V1Namespace",
    verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
)  # fmt: skip
PODS = _core(
    "pods", "Pod", subresources=("eviction", "exec", "log", "status"), short_names=("po",),
    returns_deleted=True, model="V1Pod",
)  # fmt: skip
SERVICES = _core(
    "services", "Service", subresources=("status",), short_names=("svc",), returns_deleted=True,
    model="V1Service",
)  # fmt: skip
CONFIGMAPS = _core("configmaps", "ConfigMap", short_names=("cm",), model="V1ConfigMap")
SECRETS = _core("secrets", "Secret", model="V1Secret")
EVENTS = _core("events", "Event", short_names=("ev",), model="CoreV1Event")
NETWORK_POLICIES = Kind(
    group="networking.k8s.io", versions=("v1",), plural="networkpolicies", kind="NetworkPolicy",
    short_names=("netpol",), model="V1NetworkPolicy",
)  # fmt: skip
NODES = _core(
    "nodes", "Node", namespaced=False, subresources=("status",), short_names=("no",), model="V1Node"
)
QUOTAS = _core(
    "resourcequotas", "ResourceQuota", subresources=("status",), short_names=("quota",),
    returns_deleted=True, model="V1ResourceQuota",
)  # fmt: skip
SERVICEACCOUNTS = _core(
    "serviceaccounts", "ServiceAccount", short_names=("sa",), returns_deleted=True,
    model="V1ServiceAccount",
)  # fmt: skip
PRIORITYCLASSES = Kind(
    group="scheduling.k8s.io", versions=("v1",), plural="priorityclasses", kind="PriorityClass",
    namespaced=False, short_names=("pc",), model="V1PriorityClass",
)  # fmt: skip
ACCESS_REVIEWS = Kind(
    group="authorization.k8s.io", versions=("v1",), plural="selfsubjectaccessreviews",
    kind="SelfSubjectAccessReview", namespaced=False, verbs=("create",),
    model="V1SelfSubjectAccessReview",
)  # fmt: skip
JOBS = Kind(
    group="batch", versions=("v1",), plural="jobs", kind="Job", subresources=("status",),
    model="V1Job",
)  # fmt: skip


def _custom(
    group: str,
    versions: tuple[str, ...],
    plural: str,
    kind: str,
    *,
    namespaced: bool = True,
    short_names: tuple[str, ...] = (),
) -> Kind:
    return Kind(
        group=group, versions=versions, plural=plural, kind=kind, namespaced=namespaced,
        short_names=short_names, subresources=("status",), custom=True,
    )  # fmt: skip


VOLCANO = "scheduling.volcano.sh"
COSCHEDULING = "scheduling.x-k8s.io"
KUEUE = "kueue.x-k8s.io"

VOLCANO_PODGROUPS = _custom(
    VOLCANO, ("v1beta1",), "podgroups", "PodGroup", short_names=("pg", "podgroup-v1beta1")
)
COSCHEDULING_PODGROUPS = _custom(
    COSCHEDULING, ("v1alpha1",), "podgroups", "PodGroup", short_names=("pg", "pgs")
)
LOCAL_QUEUES = _custom(
    KUEUE, ("v1beta2", "v1beta1"), "localqueues", "LocalQueue", short_names=("queue", "lq")
)

BUILT_IN: tuple[Kind, ...] = (
    NAMESPACES, PODS, SERVICES, CONFIGMAPS, SECRETS, EVENTS, NODES, QUOTAS, SERVICEACCOUNTS,
    PRIORITYCLASSES, ACCESS_REVIEWS, JOBS, NETWORK_POLICIES,
)  # fmt: skip

CUSTOM: dict[str, tuple[Kind, ...]] = {
    "volcano": (VOLCANO_PODGROUPS,),
    "coscheduling": (COSCHEDULING_PODGROUPS,),
    "kueue": (LOCAL_QUEUES,),
}
"""What a cluster knows besides: name of the `gang` -> those of its CRDs that we use."""
