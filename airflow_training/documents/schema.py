"""JSON Schema of the TrainingJob document, so that editors complete and check job files.

Made from the models and from the table of pod models; what needs two fields is not in it.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from airflow_training.documents.base import Model, drop_titles
from airflow_training.documents.merge import MERGE_KEYS
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.podmodel.check import ROOT, SHORTHAND_KINDS, table
from airflow_training.documents.problems import branches
from airflow_training.documents.quantities import QUANTITY_PATTERN

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
    drop_titles(schema)
    definitions = schema["$defs"]
    for owner in ("TrainingJobSpec", "Role"):
        properties = definitions[owner]["properties"]
        for key, kind in SHORTHAND_KINDS.items():
            properties[key] = _nullable(_kind(kind, key, whole=False))
    definitions["Role"]["properties"]["template"] = _nullable(_kind(ROOT, "template", whole=False))
    for pod_model in table():
        for whole in (False, True):
            definitions[_name(pod_model, whole=whole)] = _model(pod_model, whole=whole)
    definitions["ResumeFrom"]["oneOf"] = [
        _needs("fromRun", {}),
        _needs("asset", {}),
    ]
    for model in _models_below(TrainingJob):
        _describe(model, definitions.get(model.__name__, schema))
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
        directives = {r"^\$(patch|retainKeys)$": dict[str, Any]()}
        free = {} if whole else {"patternProperties": directives}
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
    layer = {"allOf": [_kind(kind, field, whole=False), _needs(key, known)]}
    return {"anyOf": [layer, {"const": {"$patch": "replace"}}]}


def _needs(key: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    inner = dict(schema) or {"not": {"type": "null"}}
    return {"required": [key], "properties": {key: inner}}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]} if schema else schema


def _models_below(model: type[BaseModel]) -> list[type[BaseModel]]:
    found: list[type[BaseModel]] = []
    waiting: list[Any] = [model]
    while waiting:
        annotation = waiting.pop()
        for branch in branches(annotation):
            if isinstance(branch, type) and issubclass(branch, BaseModel):
                if branch not in found:
                    found.append(branch)
                    waiting += [field.annotation for field in branch.model_fields.values()]
            else:
                waiting += [arg for arg in get_args(branch) if get_origin(branch) in (list, dict)]
    return found


def _describe(model: type[BaseModel], schema: dict[str, Any]) -> None:
    """Put the sentences that stand below the fields in the source into the schema."""
    said: dict[str, str] = {}
    for owner in reversed(model.__mro__[: model.__mro__.index(Model)]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                written = text.value
                if isinstance(field.target, ast.Name) and isinstance(written, ast.Constant):
                    said[field.target.id] = inspect.cleandoc(str(written.value))
    for name, sentence in said.items():
        alias = model.model_fields[name].alias or name
        schema["properties"][alias]["description"] = sentence
    if model is TrainingJob:
        schema["description"] = "A training job of airflow-training"


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
