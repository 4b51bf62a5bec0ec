"""JSON Schema of the TrainingJob document, so that editors complete and check job files.

Made from the models and from the table of pod models; what needs two fields is not in it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from airflow_training.spec.merge import MERGE_KEYS
from airflow_training.spec.models import TrainingJob
from airflow_training.spec.podmodel.check import ROOT, SHORTHAND_KINDS, table
from airflow_training.spec.quantities import QUANTITY_PATTERN

__all__ = ["SCHEMA_ID", "json_schema"]

SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"

_SCALARS: Mapping[str, Mapping[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "any": {},
    "int-or-str": {"type": ["integer", "string"]},
    "quantity": {
        "anyOf": [
            {"type": "number", "minimum": 0},
            {"type": "string", "pattern": QUANTITY_PATTERN},
        ]
    },
}
_DIRECTIVES: Mapping[str, Any] = {
    "$patch": {"enum": ["replace", "delete"]},
    "$retainKeys": {"type": "array", "items": {"type": "string"}},
}


def json_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12); one's own copy."""
    schema = TrainingJob.model_json_schema(by_alias=True)
    _drop_titles(schema)
    definitions = schema["$defs"]
    for owner in ("TrainingJobSpec", "Role"):
        properties = definitions[owner]["properties"]
        for key, kind in SHORTHAND_KINDS.items():
            properties[key] = _nullable(_kind(kind, key, whole=False))
    definitions["Role"]["properties"]["template"] = _nullable(_kind(ROOT, "template", whole=False))
    for model in table():
        definitions[_name(model, whole=False)] = _model(model, whole=False)
        definitions[_name(model, whole=True)] = _model(model, whole=True)
    definitions["ResumeFrom"]["oneOf"] = [
        _needs("fromRun", {}),
        _needs("asset", {}),
    ]
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    schema["$schema"] = SCHEMA_ID
    schema["title"] = "TrainingJob"
    return _without_unused(schema)


def _name(model: str, *, whole: bool) -> str:
    plain = model.removeprefix("V1")
    return f"{plain}.Complete" if whole else plain


def _model(model: str, *, whole: bool) -> dict[str, Any]:
    """Return the schema of a pod model: as one layer of several, or complete."""
    entry = table()[model]
    properties = {
        key: _nullable(_kind(kind, key, whole=whole)) for key, kind in entry["fields"].items()
    }
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }
    if whole:
        for key in entry["required"]:
            properties[key] = _kind(entry["fields"][key], key, whole=True)
        if entry["required"]:
            schema["required"] = list(entry["required"])
    else:
        properties.update(copy.deepcopy(dict(_DIRECTIVES)))
    return schema


def _kind(kind: str, field: str, *, whole: bool) -> dict[str, Any]:
    shape, _, item = kind.rpartition(":")
    if shape == "list":
        return {"type": "array", "items": _item(item, field, whole=whole)}
    if shape == "map":
        free = {"patternProperties": {r"^\$(patch|retainKeys)$": {}}} if not whole else {}
        inner = _nullable(_kind(item, field, whole=whole))
        return {"type": "object", "additionalProperties": inner, **free}
    if kind in table():
        return {"$ref": f"#/$defs/{_name(kind, whole=whole)}"}
    return copy.deepcopy(dict(_SCALARS[kind]))


def _item(kind: str, field: str, *, whole: bool) -> dict[str, Any]:
    key = MERGE_KEYS.get(field) if kind in table() else None
    if whole or key is None:
        return _kind(kind, field, whole=True)
    known = _kind(table()[kind]["fields"][key], key, whole=False)
    alone = {"const": {"$patch": "replace"}}
    layer = {"allOf": [_kind(kind, field, whole=False), _needs(key, known)]}
    return {"anyOf": [layer, alone, {"const": {"$patch": "delete"}}]}


def _needs(key: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    inner = dict(schema) or {"not": {"type": "null"}}
    return {"required": [key], "properties": {key: inner}}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]} if schema else schema


def _drop_titles(value: Any) -> None:
    """Remove the titles pydantic makes from names: they only repeat the keys."""
    if isinstance(value, dict):
        if isinstance(value.get("title"), str):
            del value["title"]
        for inner in value.values():
            _drop_titles(inner)
    elif isinstance(value, list):
        for inner in value:
            _drop_titles(inner)


def _without_unused(schema: dict[str, Any]) -> dict[str, Any]:
    """Drop definitions that nothing refers to."""
    definitions = schema["$defs"]
    used: set[str] = set()
    waiting: list[Any] = [{key: value for key, value in schema.items() if key != "$defs"}]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            reference = value.get("$ref")
            if isinstance(reference, str):
                name = reference.removeprefix("#/$defs/")
                if name not in used:
                    used.add(name)
                    waiting.append(definitions[name])
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    schema["$defs"] = {name: definitions[name] for name in sorted(used)}
    return schema
