"""Label and field selectors: parsed once, then asked per object."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.kubernetes.emulator.errors import bad_request
from tests.kubernetes.emulator.kinds import Kind

Labels = Mapping[str, str]
Predicate = Callable[[Mapping[str, Any]], bool]

_KEY = r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_PRESENT = re.compile(rf"(!?)\s*({_KEY})")


def _requirements(text: str) -> list[str]:
    """Split at the commas that are not inside parentheses."""
    return re.split(r",(?![^(]*\))", text)


def _label_test(requirement: str) -> Callable[[Labels], bool]:
    requirement = requirement.strip()
    if found := _SET.fullmatch(requirement):
        key, operator = found[1], found[2]
        values = frozenset(value.strip() for value in found[3].split(","))
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUAL.fullmatch(requirement):
        key, wanted = found[1], found[3]
        if found[2] == "!=":
            return lambda labels: labels.get(key) != wanted
        return lambda labels: labels.get(key) == wanted
    if found := _PRESENT.fullmatch(requirement):
        key = found[2]
        if found[1]:
            return lambda labels: key not in labels
        return lambda labels: key in labels
    raise bad_request(
        f"unable to parse requirement: found '{requirement}', expected: in, notin, =, ==, !=, exists"
    )


def label_selector(text: str) -> Predicate | None:
    """Return a test of an object's labels, or None where everything matches."""
    if not text.strip():
        return None
    tests = [_label_test(one) for one in _requirements(text)]

    def matches(obj: Mapping[str, Any]) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(test(labels) for test in tests)

    return matches


_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "status.phase", "status.podIP", "status.nominatedNodeName",
    ),
    "events": (
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
        "involvedObject.uid", "reason", "type",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "jobs": ("status.successful",),
    "services": ("spec.clusterIP", "spec.type"),
}  # fmt: skip


def _field(obj: Mapping[str, Any], path: str) -> str:
    value: Any = obj
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def field_selector(text: str, kind: Kind) -> Predicate | None:
    """Return a test of the fields the real server can select by, others are a 400."""
    if not text.strip():
        return None
    tests: list[tuple[str, bool, str]] = []
    allowed = ("metadata.name", "metadata.namespace", *_FIELDS.get(kind.plural, ()))
    for part in text.split(","):
        found = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", part.strip())
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        if found[1] not in allowed:
            raise bad_request(f'field label not supported: "{found[1]}"')
        tests.append((found[1], found[2] == "!=", found[3]))

    def matches(obj: Mapping[str, Any]) -> bool:
        return all((_field(obj, path) == value) != negated for path, negated, value in tests)

    return matches


def both(one: Predicate | None, other: Predicate | None) -> Predicate | None:
    if one is None or other is None:
        return one or other
    return lambda obj: one(obj) and other(obj)
