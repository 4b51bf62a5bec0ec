"""Types and unknown fields: of the built-in kinds after the official client's models, of a few others."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Collection
from typing import Any

from tests.kubernetes.emulator.errors import bad_request
from tests.kubernetes.emulator.kinds import COSCHEDULING_PODGROUPS, VOLCANO_PODGROUPS, Kind

_CONTAINER = re.compile(r"(list|dict)[\[(](.*)[\])]")
_GO_TYPES = {"str": "string", "int": "int32", "bool": "bool", "float": "float64"}
_CUSTOM_SPECS = {
    VOLCANO_PODGROUPS.qualified: {
        "minMember", "minTaskMember", "queue", "priorityClassName", "minResources",
    },
    COSCHEDULING_PODGROUPS.qualified: {"minMember", "minResources", "scheduleTimeoutSeconds"},
}  # fmt: skip
"""Of kinds that a CRD defines: the fields of their `spec`."""


Forgotten = tuple[str, str]
"""Model of the official client, or kind that a CRD defines, and field: an older server has none of that name."""


def decode(
    kind: Kind, document: Any, *, forgotten: Collection[Forgotten] = ()
) -> tuple[Any, list[str]]:
    """Return the document without the fields that its kind does not have, and their paths."""
    if kind.model:
        return prune(document, kind.model, forgotten=forgotten)
    known, spec = _CUSTOM_SPECS.get(kind.qualified), document.get("spec")
    if known is None or not isinstance(spec, dict):
        return document, []
    known = {key for key in known if (kind.qualified, key) not in forgotten}
    kept = {key: value for key, value in spec.items() if key in known}
    return {**document, "spec": kept}, [f"spec.{key}" for key in spec if key not in known]


@functools.cache
def _model(name: str) -> tuple[dict[str, str], dict[str, str]] | None:
    """Return field -> type and the inverse of field -> JSON name, or None for plain types."""
    module = importlib.import_module("kubernetes_asyncio.client.models")
    found = getattr(module, name, None)
    if found is None:
        return None
    json_names = {json_name: field for field, json_name in found.attribute_map.items()}
    return dict(found.openapi_types), json_names


def prune(
    document: Any, model: str, *, forgotten: Collection[Forgotten] = ()
) -> tuple[Any, list[str]]:
    """Return the document without unknown fields, and their paths; a wrong type is a 400."""
    decoding = _Decoding(forgotten)
    return decoding.pruned(document, model, ""), decoding.unknown


def _mismatch(value: Any, wanted: str, path: str) -> Exception:
    kinds = {dict: "object", list: "array", str: "string", bool: "bool"}
    seen = kinds.get(type(value), "number")
    go_type = _GO_TYPES.get(wanted, wanted.removeprefix("V1"))
    where = re.sub(r"\[\d+\]", "", path.lstrip("."))
    return bad_request(
        f"json: cannot unmarshal {seen} into Go struct field {where} of type {go_type}"
    )


class _Decoding:
    """Of one document."""

    def __init__(self, forgotten: Collection[Forgotten]) -> None:
        self._forgotten = forgotten
        self.unknown: list[str] = []

    def pruned(self, value: Any, wanted: str, path: str) -> Any:
        if value is None or wanted == "object":
            return value
        if found := _CONTAINER.fullmatch(wanted):
            inner = found[2].rpartition(",")[2].strip()
            if found[1] == "list":
                if not isinstance(value, list):
                    raise _mismatch(value, "[]" + inner, path)
                return [self.pruned(one, inner, f"{path}[{n}]") for n, one in enumerate(value)]
            if not isinstance(value, dict):
                raise _mismatch(value, f"map[string]{inner}", path)
            return {key: self.pruned(one, inner, f"{path}.{key}") for key, one in value.items()}
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
            if key in names and (wanted, key) not in self._forgotten:
                kept[key] = self.pruned(one, types[names[key]], f"{path}.{key}")
            else:
                self.unknown.append(f"{path}.{key}".lstrip("."))
        return kept
