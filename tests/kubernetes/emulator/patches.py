"""JSON patch, merge patch, strategic merge patch and server-side apply. Pure: documents in and out."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.kubernetes.emulator.errors import Cause, bad_request

Path = tuple[str, ...]

MERGE_KEYS: dict[str, str] = {
    "containers": "name", "initContainers": "name", "env": "name", "volumes": "name",
    "volumeMounts": "mountPath", "imagePullSecrets": "name", "ownerReferences": "uid",
    "conditions": "type", "schedulingGates": "name", "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey", "podIPs": "ip",
}  # fmt: skip
"""Lists that merge by the key of their items; other lists are replaced."""

SETS = frozenset({"finalizers"})
"""Lists of plain values that merge."""


def merge_key(field: str, items: list[Any]) -> str:
    """Return the key by which a list merges, or an empty string."""
    if field == "ports":
        return "port" if any("port" in one for one in items) else "containerPort"
    return MERGE_KEYS.get(field, "")


def json_patch(document: Any, operations: Any) -> Any:
    """Return a patched copy (RFC 6902)."""
    if not isinstance(operations, list):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into jsonpatch.Patch"
        )
    document = copy.deepcopy(document)
    for operation in operations:
        document = _one_operation(document, operation)
    return document


def _one_operation(document: Any, operation: Mapping[str, Any]) -> Any:
    kind, path = operation.get("op"), operation.get("path")
    if kind not in ("add", "remove", "replace", "move", "copy", "test") or path is None:
        raise bad_request(f"Unexpected kind: {kind}")
    if kind in ("move", "copy"):
        parent, key = _locate(document, operation["from"])
        value = copy.deepcopy(_get(parent, key))
        if kind == "move":
            _remove(parent, key)
        return _add(document, path, value)
    if kind == "add":
        return _add(document, path, copy.deepcopy(operation.get("value")))
    parent, key = _locate(document, path)
    if kind == "test":
        if _get(parent, key) != operation.get("value"):
            raise PatchFailed(f"testing value {path} failed: test failed")
    elif kind == "remove":
        _remove(parent, key)
    else:
        _get(parent, key)
        parent[int(key) if isinstance(parent, list) else key] = copy.deepcopy(
            operation.get("value")
        )
    return document


class PatchFailed(Exception):
    """A patch that does not fit the object: 422 without causes."""


def _steps(pointer: str) -> list[str]:
    return [one.replace("~1", "/").replace("~0", "~") for one in pointer.split("/")[1:]]


def _locate(document: Any, pointer: str) -> tuple[Any, str]:
    *parents, last = _steps(pointer)
    for step in parents:
        document = _get(document, step)
    return document, last


def _get(parent: Any, key: str) -> Any:
    try:
        return parent[int(key)] if isinstance(parent, list) else parent[key]
    except (KeyError, IndexError, ValueError, TypeError):
        raise PatchFailed(
            f"the server rejected our request due to an error in our request: missing path {key}"
        ) from None


def _remove(parent: Any, key: str) -> None:
    _get(parent, key)
    del parent[int(key) if isinstance(parent, list) else key]


def _add(document: Any, pointer: str, value: Any) -> Any:
    if not pointer:
        return value
    parent, key = _locate(document, pointer)
    if isinstance(parent, list):
        parent.insert(len(parent) if key == "-" else int(key), value)
    elif isinstance(parent, dict):
        parent[key] = value
    else:
        raise PatchFailed(f"add operation does not apply: doc is missing path: {pointer}")
    return document


def merge_patch(target: Any, patch: Any) -> Any:
    """Return `target` with `patch` merged in (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_merge(target: Any, patch: Any) -> Any:
    """Return `target` with `patch` merged: known lists by the key of their items."""
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            merged[field] = [one for one in merged.get(field, ()) if one not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            merged.pop(key, None)
        elif isinstance(value, list):
            merged[key] = _merge_list(key, merged.get(key) or [], value)
        elif isinstance(value, dict) and value.get("$patch") == "delete":
            merged.pop(key, None)
        else:
            merged[key] = strategic_merge(merged.get(key), value)
    return merged


def _merge_list(field: str, target: list[Any], patch: list[Any]) -> list[Any]:
    if field in SETS:
        return target + [one for one in patch if one not in target]
    key = merge_key(field, [*target, *patch]) if all(isinstance(p, dict) for p in patch) else ""
    if not key or {"$patch": "replace"} in patch:
        return [one for one in patch if one != {"$patch": "replace"}]
    merged = list(target)
    for item in patch:
        if key not in item:
            raise bad_request(f"map: {json.dumps(item)} does not contain declared merge key: {key}")
        at = next((n for n, one in enumerate(merged) if one.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            merged = [one for one in merged if one.get(key) != item[key]]
        elif at is None:
            merged.append(item)
        else:
            merged[at] = strategic_merge(merged[at], item)
    return merged


# Server-side apply: which manager owns which leaf, written as FieldsV1.


def leaves(document: Any, *, at: Path = (), field: str = "") -> Iterator[tuple[Path, Any]]:
    """Yield every owned field with its value, as FieldsV1 spells the path."""
    if isinstance(document, dict) and document:
        for key, value in document.items():
            yield from leaves(value, at=(*at, f"f:{key}"), field=key)
        return
    if isinstance(document, list) and document:
        if field in SETS:
            for value in document:
                yield (*at, f"v:{json.dumps(value)}"), value
            return
        if all(isinstance(one, dict) for one in document) and (key := merge_key(field, document)):
            for item in document:
                step = f"k:{json.dumps({key: item.get(key)}, separators=(',', ':'))}"
                yield (*at, step, "."), None
                yield from leaves(item, at=(*at, step))
            return
    yield at, document


NEVER_OWNED = (
    ("f:apiVersion",), ("f:kind",), ("f:metadata", "f:name"), ("f:metadata", "f:namespace"),
    ("f:metadata", "f:uid"), ("f:metadata", "f:resourceVersion"), ("f:metadata", "f:generation"),
    ("f:metadata", "f:creationTimestamp"), ("f:metadata", "f:managedFields"),
    ("f:metadata", "f:deletionTimestamp"), ("f:metadata", "f:deletionGracePeriodSeconds"),
)  # fmt: skip


def owned(document: Mapping[str, Any]) -> dict[Path, Any]:
    """Return the leaves that a manager who writes this document owns."""
    return {
        path: value
        for path, value in leaves(document)
        if not any(path[: len(never)] == never for never in NEVER_OWNED)
    }


def to_fields(paths: set[Path]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
    return tree


def from_fields(tree: Mapping[str, Any], at: Path = ()) -> set[Path]:
    if not tree:
        return {at}
    found: set[Path] = set()
    for step, below in tree.items():
        found |= from_fields(below, (*at, step))
    return found


def spelled(path: Path) -> str:
    """Return a path as the messages of a conflict show it: `.spec.containers[name="a"].image`."""
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        elif step.startswith("k:"):
            inner = ",".join(f"{k}={json.dumps(v)}" for k, v in json.loads(step[2:]).items())
            text += f"[{inner}]"
        elif step.startswith("v:"):
            text += f"[={step[2:]}]"
    return text


def conflicts(
    wanted: Mapping[Path, Any], live: Mapping[Path, Any], others: Mapping[str, set[Path]]
) -> list[Cause]:
    """Return what an apply would take from other managers with another value."""
    return [
        Cause(spelled(path), "FieldManagerConflict", f'conflict with "{manager}"')
        for manager, theirs in others.items()
        for path in sorted(theirs & wanted.keys())
        if path[-1] != "." and live.get(path) != wanted[path]
    ]


def drop(document: Any, path: Path) -> Any:
    """Return a copy without the leaf at `path`; containers that become empty go too."""
    step, *rest = path
    if step == ".":
        return document
    if isinstance(document, dict) and step.startswith("f:"):
        key = step[2:]
        if key not in document:
            return document
        below = drop(document[key], tuple(rest)) if rest else None
        changed = {k: v for k, v in document.items() if k != key}
        if below not in (None, {}, []):
            changed[key] = below
        return changed
    if isinstance(document, list) and step.startswith("k:"):
        wanted = json.loads(step[2:])
        result = []
        for item in document:
            if not wanted.items() <= item.items():
                result.append(item)
            elif rest == ["."]:
                continue
            elif (below := drop(item, tuple(rest))) not in ({}, None):
                result.append(below)
        return result
    if isinstance(document, list) and step.startswith("v:"):
        return [one for one in document if one != json.loads(step[2:])]
    return document
