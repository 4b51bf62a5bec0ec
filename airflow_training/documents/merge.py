"""Merging pod templates as Kubernetes' strategic merge patch would. Pure, on plain data.

Maps merge deeply, null deletes, `$patch: replace | delete` is honoured, lists of objects with a
merge key merge by it, other lists are replaced. The merge keys are those of the Kubernetes API
for everything a PodTemplateSpec holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["MERGE_KEYS", "merge_templates", "shorthand_template"]

MERGE_KEYS: Mapping[str, str] = {
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Field of a pod template -> key by which its items merge (`patchMergeKey` of the API)."""
_ALTERNATIVES: Mapping[str, frozenset[str]] = {
    "env": frozenset({"name"}),
    "volumes": frozenset({"name"}),
}
"""Lists whose items hold exactly one of several sources besides these keys (`retainKeys`)."""


def merge_templates(*layers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the layers merged, later ones over earlier ones; none of them is changed."""
    merged: dict[str, Any] = {}
    for layer in layers:
        if layer:
            merged = _merge_maps(merged, layer)
    return merged


def shorthand_template(container: str, shorthand: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod template that shorthand keys (camelCase) stand for; empty for none."""
    inside = {key: value for key, value in shorthand.items() if key != "volumes"}
    spec: dict[str, Any] = {}
    if inside:
        spec["containers"] = [{"name": container, **inside}]
    if "volumes" in shorthand:
        spec["volumes"] = shorthand["volumes"]
    return {"spec": spec} if spec else {}


def _merge_maps(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    if patch.get("$patch") == "replace":
        return dict(_clean(patch))
    if patch.get("$patch") == "delete":
        return {}
    merged = dict(base)
    for key, value in patch.items():
        if key == "$patch":
            continue
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_values(key, merged.get(key), value)
    return merged


def _merge_values(field: str, base: Any, patch: Any) -> Any:
    if isinstance(patch, Mapping):
        return _merge_maps(base if isinstance(base, Mapping) else {}, patch)
    key = MERGE_KEYS.get(field)
    if isinstance(patch, Sequence) and not isinstance(patch, str):
        if key is not None and all(isinstance(item, Mapping) for item in patch):
            return _merge_lists(base if isinstance(base, Sequence) else (), patch, key, field)
        return [_clean(item) for item in patch]
    return patch


def _merge_lists(
    base: Sequence[Any], patch: Sequence[Mapping[str, Any]], key: str, field: str
) -> list[Any]:
    whole = {"$patch": "replace"}
    merged = [] if whole in patch else list(base)
    places: dict[str, int] = {}
    for i, old in enumerate(merged):
        if isinstance(old, Mapping):
            places.setdefault(repr(old.get(key)), i)
    deleted = set()
    for item in patch:
        if item == whole:
            continue
        name = repr(item[key]) if key in item else None
        at = places.get(name) if name else None
        if item.get("$patch") == "delete":
            if name and at is not None:
                deleted.add(places.pop(name))
        elif at is None:
            if name:
                places[name] = len(merged)
            merged.append(_clean(item))
        else:
            merged[at] = _merge_maps(_without_other_source(merged[at], item, field), item)
    return [item for i, item in enumerate(merged) if i not in deleted]


def _without_other_source(
    old: Mapping[str, Any], new: Mapping[str, Any], field: str
) -> Mapping[str, Any]:
    """Drop the old `value` where the new item has a `valueFrom`, the old volume's kind likewise."""
    common = _ALTERNATIVES.get(field)
    if common is None or not new.keys() - common - {"$patch"} - old.keys():
        return old
    return {key: value for key, value in old.items() if key in common}


def _clean(value: Any) -> Any:
    """Return a copy without directives and nulls, which mean nothing where nothing is below."""
    if isinstance(value, Mapping):
        return _merge_maps({}, {key: inner for key, inner in value.items() if key != "$patch"})
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_clean(item) for item in value]
    return value
