"""Whether a node is one to leave: by its conditions, taints and labels, as a job says which count. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple

from airflow_training.control import reasons
from airflow_training.documents.resolved import UnfitNodePolicy

__all__ = [
    "CONDITIONS",
    "TAINTS",
    "NodeFact",
    "UnfitRules",
    "annotation_of",
    "fact_of",
    "rules_for",
]

CONDITIONS = (
    "NetworkUnavailable",
    # node-problem-detector and those of the clouds
    "KernelDeadlock",
    "ReadonlyFilesystem",
    "FilesystemCorruptionProblem",
    "*Gpu*Unhealthy",
    "*Gpu*Problem",
    "*Gpu*Error*",
    "*Gpu*Fail*",
    "GPUMissing",
    "Xid*",
    "NVLink*",
    "IBLink*",
    "AcceleratedHardwareReady",
    "NetworkingReady",
)
"""Types that count where a job names none, in upper or lower case."""
TAINTS = (
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "aws-node-termination-handler/*",
    "cloud.google.com/impending-node-termination",
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/out-of-service",
)
"""Keys that count where a job names none."""
_GOOD_WHEN_TRUE = ("Ready", "Healthy")
"""How the types of conditions end that say what is well."""


class NodeFact(NamedTuple):
    """What a node says of itself that concerns who runs there."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfitRules:
    """What of a node counts; `*` stands for anything."""

    conditions: Sequence[str] = CONDITIONS
    taints: Sequence[str] = TAINTS
    labels: Mapping[str, str] = field(default_factory=dict)
    """Name -> value."""


_IGNORED = "null"


def annotation_of(wanted: UnfitNodePolicy) -> str:
    """The job's rules as an annotation of its pods; "": none, so that those of here hold."""
    if wanted.action == "Ignore":
        return _IGNORED
    own = {
        "conditions": wanted.conditions,
        "taints": wanted.taints,
        "labels": wanted.labels or None,
    }
    given = {name: value for name, value in own.items() if value is not None}
    return json.dumps(given, sort_keys=True) if given else ""


@lru_cache(maxsize=256)
def rules_for(annotation: str) -> UnfitRules | None:
    """Return the rules that a pod carries; None: nobody asks. What is not ours to read says nothing."""
    if annotation == _IGNORED:
        return None
    try:
        found = json.loads(annotation or "{}")
    except ValueError:
        found = {}
    found = found if isinstance(found, dict) else {}
    labels = found.get("labels")
    return UnfitRules(
        conditions=_texts(found.get("conditions"), otherwise=CONDITIONS),
        taints=_texts(found.get("taints"), otherwise=TAINTS),
        labels={key: each for key, each in labels.items() if isinstance(each, str)}
        if isinstance(labels, dict)
        else {},
    )


def _texts(found: Any, *, otherwise: Sequence[str]) -> Sequence[str]:
    known = isinstance(found, list) and all(isinstance(each, str) for each in found)
    return found if known else otherwise


def fact_of(node: Mapping[str, Any], rules: UnfitRules) -> NodeFact | None:
    """Return why a node is one to leave, or that it takes nothing new; None where all is well."""
    name = node["metadata"]["name"]
    why = next(_signs(node, rules), "")
    if why:
        return NodeFact(reasons.NODE_UNFIT, f"node {name}: {why}")
    if (node.get("spec") or {}).get("unschedulable"):
        return NodeFact(
            reasons.NODE_CORDONED, f"node {name} is cordoned: it may be drained at any time"
        )
    return None


def _signs(node: Mapping[str, Any], rules: UnfitRules) -> Iterator[str]:
    for each in (node.get("status") or {}).get("conditions") or ():
        if _matches(each["type"], rules.conditions) and _is_bad(each):
            words = ": ".join(filter(None, (each.get("reason"), each.get("message"))))
            yield f"condition {each['type']} is {each['status']}{f' ({words})' if words else ''}"
    for each in (node.get("spec") or {}).get("taints") or ():
        if _matches(each["key"], rules.taints):
            value = f"={each['value']}" if each.get("value") else ""
            yield f"taint {each['key']}{value}"
    labels = node["metadata"].get("labels") or {}
    for key, wanted in rules.labels.items():
        if key in labels and fnmatchcase(labels[key], wanted):
            yield f"label {key}={labels[key]}"


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name.lower(), each.lower()) for each in patterns)


def _is_bad(condition: Mapping[str, Any]) -> bool:
    bad = "False" if condition["type"].endswith(_GOOD_WHEN_TRUE) else "True"
    return bool(condition["status"] == bad)
