"""Types and unknown fields of the built-in kinds, after the official client's models."""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any

from tests.kubernetes.emulator.errors import bad_request

_CONTAINER = re.compile(r"(list|dict)[\[(](.*)[\])]")
_GO_TYPES = {"str": "string", "int": "int32", "bool": "bool", "float": "float64"}


@functools.cache
def _model(name: str) -> tuple[dict[str, str], dict[str, str]] | None:
    """Return field -> type and the inverse of field -> JSON name, or None for plain types."""
    module = importlib.import_module("kubernetes_asyncio.client.models")
    found = getattr(module, name, None)
    if found is None:
        return None
    json_names = {json_name: field for field, json_name in found.attribute_map.items()}
    return dict(found.openapi_types), json_names


def prune(document: Any, model: str) -> tuple[Any, list[str]]:
    """Return the document without unknown fields, and their paths; a wrong type is a 400."""
    unknown: list[str] = []
    return _pruned(document, model, "", unknown), unknown


def _mismatch(value: Any, wanted: str, path: str) -> Exception:
    kinds = {dict: "object", list: "array", str: "string", bool: "bool"}
    seen = kinds.get(type(value), "number")
    go_type = _GO_TYPES.get(wanted, wanted.removeprefix("V1"))
    where = f"Go struct field {path.lstrip('.')} of type {go_type}"
    return bad_request(f"json: cannot unmarshal {seen} into {where}")


def _pruned(value: Any, wanted: str, path: str, unknown: list[str]) -> Any:
    if value is None or wanted == "object":
        return value
    if found := _CONTAINER.fullmatch(wanted):
        inner = found[2].rpartition(",")[2].strip()
        if found[1] == "list":
            if not isinstance(value, list):
                raise _mismatch(value, "[]" + inner, path)
            return [_pruned(one, inner, path, unknown) for one in value]
        if not isinstance(value, dict):
            raise _mismatch(value, f"map[string]{inner}", path)
        return {key: _pruned(one, inner, f"{path}.{key}", unknown) for key, one in value.items()}
    if wanted in ("str", "datetime"):
        # A quantity may be a number; the client's models call it a string.
        quantity = ".limits." in path or ".requests." in path or ".hard." in path
        if not isinstance(value, str) and not (quantity and isinstance(value, (int, float))):
            raise _mismatch(value, "str", path)
        return value
    if wanted in ("int", "float", "bool"):
        good = {"int": int, "float": (int, float), "bool": bool}[wanted]
        if not isinstance(value, good) or (wanted != "bool" and isinstance(value, bool)):  # type: ignore[arg-type]  # a union
            raise _mismatch(value, wanted, path)
        return value
    model = _model(wanted)
    if model is None:
        return value
    if not isinstance(value, dict):
        raise _mismatch(value, wanted, path)
    types, names = model
    kept = {}
    for key, one in value.items():
        if key in names:
            kept[key] = _pruned(one, types[names[key]], f"{path}.{key}", unknown)
        else:
            unknown.append(f"{path}.{key}".lstrip("."))
    return kept
