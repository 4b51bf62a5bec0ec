"""Whether any node of a cluster could ever take a pod: each as it would be when it is empty. Pure.

What passes by itself is no obstacle: a node that is cordoned or not ready, and what other pods hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow_training.documents.quantities import parse_quantity
from airflow_training.runtimes.kubernetes.gangs import pod_requests

__all__ = ["NEVER_FITS", "never_fits", "never_fits_by_message"]

NEVER_FITS = "no node could take it, even when empty"

_PASSING_TAINTS = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/",
)
_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})
_BYTES = frozenset({"memory", "ephemeral-storage"})
_NAMED = 3
"""Nodes that are named in a message."""

Node = Mapping[str, Any]


def never_fits(spec: Mapping[str, Any], nodes: Sequence[Node], *, any_taint: bool = False) -> str:
    """Return why no node could take a pod; "" where one could, or where no node is known.

    `any_taint`: tolerations are added later (by Kueue, of a flavor).
    """
    asked = {**pod_requests(spec), "pods": 1.0}
    picked = [node for node in nodes if _is_picked(spec, node)]
    open_ = [node for node in picked if any_taint or not _kept_away(spec, node)]
    if not nodes or any(not _lacks(asked, node) for node in open_):
        return ""
    if not picked:
        return f"{NEVER_FITS}: none has the labels that its nodeSelector or affinity asks for"
    why = _lack_of_all(asked, open_) if open_ else ""
    tainted = [node for node in picked if node not in open_ and not _lacks(asked, node)]
    if tainted:
        behind = (
            f"{_listed(tainted)} could, with a toleration of taint {_kept_away(spec, tainted[0])}"
        )
        why = f"{why}; {behind}" if why else behind
    return f"{NEVER_FITS}: {why or _lack_of_all(asked, picked)}"


# what a node is asked for --------------------------------------------------------------------------
def _is_picked(spec: Mapping[str, Any], node: Node) -> bool:
    """Return whether nodeSelector and required affinity of a pod let it go to a node."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or ()
    return not terms or any(_holds(term, node) for term in terms)


def _holds(term: Mapping[str, Any], node: Node) -> bool:
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    rules = [(rule, labels) for rule in term.get("matchExpressions") or ()]
    rules += [(rule, fields) for rule in term.get("matchFields") or ()]
    return bool(rules) and all(_rule_holds(rule, values) for rule, values in rules)


_OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, wanted: value in wanted,
    "NotIn": lambda value, wanted: value not in wanted,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, wanted: value is not None and int(value) > int(wanted[0]),
    "Lt": lambda value, wanted: value is not None and int(value) < int(wanted[0]),
}


def _rule_holds(rule: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    judge = _OPERATORS.get(rule["operator"])
    try:
        return judge is None or judge(values.get(rule["key"]), rule.get("values") or ())
    except (ValueError, IndexError):
        return False  # a label that is no number is neither greater nor less


def _kept_away(spec: Mapping[str, Any], node: Node) -> str:
    """Return the first lasting taint of a node that a pod does not tolerate; "" where there is none."""
    devices = {name for name in pod_requests(spec) if "/" in name}
    for taint in (node.get("spec") or {}).get("taints") or ():
        # who asks for a device gets its toleration from the cluster (ExtendedResourceToleration)
        lasting = not taint["key"].startswith(_PASSING_TAINTS) and taint["key"] not in devices
        if lasting and taint.get("effect") in _KEEPS_AWAY and not _is_tolerated(spec, taint):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"{taint['key']}{value}:{taint['effect']}"
    return ""


def _is_tolerated(spec: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    return any(
        each.get("effect") in (None, "", taint["effect"])
        and each.get("key") in (None, "", taint["key"])
        and (
            each.get("operator") == "Exists" or (each.get("value") or "") == taint.get("value", "")
        )
        for each in spec.get("tolerations") or ()
        if each.get("key") or each.get("operator") == "Exists"
    )


# resources ---------------------------------------------------------------------------------------
def _has(node: Node) -> Mapping[str, float]:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return {name: parse_quantity(amount) for name, amount in allocatable.items()}


def _lacks(asked: Mapping[str, float], node: Node) -> list[str]:
    has = _has(node)
    # what a node does not say of its pods and disk, it does not limit
    unsaid = {"pods", "ephemeral-storage"} - has.keys()
    return [
        name for name, amount in asked.items() if amount > has.get(name, 0.0) and name not in unsaid
    ]


def _lack_of_all(asked: Mapping[str, float], nodes: Sequence[Node]) -> str:
    """Return what none of these nodes has enough of, with the largest there is."""
    lacking = [name for name in asked if all(name in _lacks(asked, node) for node in nodes)]
    told = []
    for name in lacking:
        largest = max(nodes, key=lambda node: _has(node).get(name, 0.0))
        most, wanted = _has(largest).get(name, 0.0), _amount(name, asked[name])
        where = f"the largest is {largest['metadata']['name']} with {_amount(name, most)}"
        told.append(f"it asks for {wanted} of {name}, " + (where if most else "which none has"))
    if told:
        return "; ".join(told)
    closest = min(nodes, key=lambda node: len(_lacks(asked, node)))
    has, short = _has(closest), sorted(_lacks(asked, closest))
    together = " and ".join(_of(name, asked[name]) for name in sorted(asked) if name != "pods")
    only = " and ".join(_of(name, has.get(name, 0.0)) for name in short)
    return f"none has {together} together; {closest['metadata']['name']} has only {only}"


def _of(name: str, value: float) -> str:
    return f"{_amount(name, value)} of {name}"


def _amount(name: str, value: float) -> str:
    return f"{value / 2**30:.3g} GiB" if name in _BYTES else f"{value:g}"


def _listed(nodes: Sequence[Node]) -> str:
    names = [node["metadata"]["name"] for node in nodes]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


# where nodes may not be read -----------------------------------------------------------------------
_COUNTS = re.compile(r"0/(?P<all>\d+) nodes are available: (?P<said>.*)", re.DOTALL)
_PART = re.compile(r"(\d+) ((?:[^,{]|\{[^}]*\})+)")
_TAINT = re.compile(r"untolerated taint(?:\(s\))? \{(?P<key>[^:}]*)")
_UNLABELLED = "didn't match Pod's node affinity/selector"
_INSUFFICIENT = "Insufficient "


def never_fits_by_message(said: str) -> str:
    """Return why no node could take a pod, by what the scheduler says; "" where it does not say that.

    That a node has too little of something may pass, unless it says that the end of other pods would
    not help, as newer schedulers do.
    """
    found = _COUNTS.match(said.strip())
    if found is None or found["all"] == "0":
        return ""
    why, _, then = found["said"].partition(". ")
    why = why.rstrip(".")
    parts = [(int(number), words.strip()) for number, words in _PART.findall(why)]
    if not parts or not all(_lasts(words) for _, words in parts):
        return ""
    if any(words.startswith(_INSUFFICIENT) for _, words in parts):
        never = f"{found['all']} Preemption is not helpful for scheduling" in then
    else:
        never = sum(number for number, _ in parts) >= int(found["all"])
    return f"{NEVER_FITS}: {why}" if never else ""


def _lasts(words: str) -> bool:
    taint = _TAINT.search(words)
    if taint is not None:
        return not taint["key"].startswith(_PASSING_TAINTS)
    return _UNLABELLED in words or words.startswith(_INSUFFICIENT)
