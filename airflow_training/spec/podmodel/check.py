"""Checking a pod template, or a part of one, against the table: typos and types at any depth."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from airflow_training.errors import Problem
from airflow_training.spec.merge import MERGE_KEYS
from airflow_training.spec.paths import Loc, format_path
from airflow_training.spec.problems import did_you_mean, kind_of
from airflow_training.spec.quantities import quantity_error

__all__ = ["SHORTHAND_KINDS", "check_complete", "check_layer", "table"]

ROOT = "V1PodTemplateSpec"
SHORTHAND_KINDS: Mapping[str, str] = {
    "env": "list:V1EnvVar",
    "envFrom": "list:V1EnvFromSource",
    "ports": "list:V1ContainerPort",
    "resources": "V1ResourceRequirements",
    "volumeMounts": "list:V1VolumeMount",
    "volumes": "list:V1Volume",
}
"""Shorthand keys that are Kubernetes' own, and their type in the table."""
_DIRECTIVES = frozenset({"$patch", "$retainKeys"})
_SPOKEN = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "int-or-str": "a port's number or name",
}


@lru_cache(maxsize=1)
def table() -> Mapping[str, Any]:
    """Return `{model: {"fields": {camelCase: type}, "required": [...]}}`."""
    text = Path(__file__).with_name("models.json").read_text(encoding="utf-8")
    loaded: Mapping[str, Any] = json.loads(text)
    return loaded


def check_layer(value: Any, loc: Loc, *, kind: str = ROOT) -> list[Problem]:
    """Return the mistakes of one layer: it may leave out what another layer gives.

    Null (which deletes) and `$patch` are allowed; items of merged lists need their merge key.
    """
    return list(_check(value, kind, loc, whole=False))


def check_complete(template: Any, loc: Loc) -> list[Problem]:
    """Return the mistakes of a merged template: nothing that Kubernetes requires may be missing."""
    return list(_check(template, ROOT, loc, whole=True))


def _check(value: Any, kind: str, loc: Loc, *, whole: bool) -> Iterator[Problem]:
    shape, _, item_kind = kind.rpartition(":")
    if value is None:
        return  # not given, or given to delete; what is required is asked for below
    if shape == "list":
        yield from _check_list(value, item_kind, loc, whole=whole)
    elif shape == "map":
        yield from _check_map(value, item_kind, loc, whole=whole)
    elif kind in table():
        yield from _check_model(value, kind, loc, whole=whole)
    elif kind == "quantity":
        message = quantity_error(value)
        if message:
            yield _problem("bad_quantity", loc, value, message)
    elif not _fits(value, kind):
        yield _wrong_type(loc, value, _SPOKEN[kind])


def _check_list(value: Any, kind: str, loc: Loc, *, whole: bool) -> Iterator[Problem]:
    if not isinstance(value, list | tuple):
        yield _wrong_type(loc, value, "a list")
        return
    key = MERGE_KEYS.get(str(loc[-1])) if kind in table() else None
    seen: set[Any] = set()
    for i, item in enumerate(value):
        here = (*loc, i)
        if item is None:
            yield _wrong_type(here, item, "an item")
            continue
        if item == {"$patch": "replace"} and not whole:
            continue
        # a list without merge key is replaced as a whole, so its items are complete
        yield from _check(item, kind, here, whole=whole or key is None)
        if key is None or not isinstance(item, Mapping):
            continue
        name = item.get(key)
        if name is None and not whole:
            yield _missing((*here, key))
        elif key == "name" and isinstance(name, str):
            if name in seen:
                message = f"another item of {format_path(loc[-1:])} has this name already"
                yield _problem("duplicate", (*here, key), name, message)
            seen.add(name)


def _check_map(value: Any, kind: str, loc: Loc, *, whole: bool) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield _wrong_type(loc, value, "a mapping")
        return
    for key, inner in value.items():
        if key not in _DIRECTIVES or whole:
            yield from _check(inner, kind, (*loc, key), whole=whole)


def _check_model(value: Any, kind: str, loc: Loc, *, whole: bool) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield _wrong_type(loc, value, "a mapping")
        return
    fields: Mapping[str, str] = table()[kind]["fields"]
    for key, inner in value.items():
        here = (*loc, key)
        if key in fields:
            yield from _check(inner, fields[key], here, whole=whole)
        elif key == "$patch" and not whole:
            if inner not in ("replace", "delete"):
                yield _problem("bad_pod_template", here, inner, "must be replace or delete")
        elif key not in _DIRECTIVES or whole:
            yield Problem(
                code="bad_pod_template",
                field=format_path(here),
                value=key,
                message=f"'{key}' is no key of a {kind.removeprefix('V1')}",
                allowed=sorted(fields),
                hint=did_you_mean(key, fields),
            )
    if whole:
        for key in table()[kind]["required"]:
            if value.get(key) is None:
                yield _missing((*loc, key))


def _fits(value: Any, kind: str) -> bool:
    number = isinstance(value, int) and not isinstance(value, bool)
    match kind:
        case "str":
            return isinstance(value, str)
        case "int":
            return number
        case "float":
            return number or isinstance(value, float)
        case "bool":
            return isinstance(value, bool)
        case "int-or-str":
            return number or isinstance(value, str)
    return True


def _problem(code: str, loc: Loc, value: Any, message: str, hint: str = "") -> Problem:
    shown = value if isinstance(value, str | int | float | bool) else None
    return Problem(code=code, field=format_path(loc), value=shown, message=message, hint=hint)


def _wrong_type(loc: Loc, value: Any, wanted: str) -> Problem:
    hint = ""
    if wanted == "text" and isinstance(value, bool | int | float):
        shown = str(value).lower() if isinstance(value, bool) else value
        hint = f'write it in quotes: "{shown}"'
    message = f"must be {wanted}, not {kind_of(value)}"
    return _problem("bad_pod_template", loc, value, message, hint)


def _missing(loc: Loc) -> Problem:
    return _problem("bad_pod_template", loc, None, "is required")
