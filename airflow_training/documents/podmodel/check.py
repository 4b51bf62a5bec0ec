"""Checking a pod template, or a part of one, against the table: typos and types at any depth."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from airflow_training.documents.merge import MERGE_KEYS
from airflow_training.documents.paths import Loc, format_path
from airflow_training.documents.problems import MOST_FINDINGS, kind_of, problem_of_more, right_form
from airflow_training.documents.quantities import quantity_error
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import Problem

__all__ = ["SHORTHAND_KINDS", "check_complete", "check_layer", "inspect_layer", "table"]

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
    return inspect_layer(value, loc, kind=kind)[0]


def inspect_layer(value: Any, loc: Loc, *, kind: str = ROOT) -> tuple[list[Problem], bool]:
    """As `check_layer`; also return whether the layer leaves out something that is required."""
    walk = _ValueWalk()
    walk.check(value, kind, loc, whole=False)
    return walk.findings(), walk.leaves_out


def check_complete(template: Any, loc: Loc) -> list[Problem]:
    """Return the mistakes of a merged template: nothing that Kubernetes requires may be missing."""
    walk = _ValueWalk()
    walk.check(template, ROOT, loc, whole=True)
    return walk.findings()


class _ValueWalk:
    """One pass over a value. `whole`: no other layer adds to what stands here."""

    def __init__(self) -> None:
        self.leaves_out = False
        self._problems: list[Problem] = []
        self._found = 0
        self._models = table()

    def findings(self) -> list[Problem]:
        """Return the first mistakes, and how many there are besides."""
        return self._problems + problem_of_more(self._found - len(self._problems))

    def _report(self, problem: Callable[..., Problem], *about: Any) -> None:
        """Note a mistake; beyond the first hundred they are only counted, which is fast."""
        self._found += 1
        if self._found <= MOST_FINDINGS:
            self._problems.append(problem(*about))

    def check(self, value: Any, kind: str, loc: Loc, *, whole: bool) -> None:
        if value is None:
            return  # not given, or given to delete; what is required is asked for elsewhere
        if kind in self._models:
            self._check_model(value, kind, loc, whole=whole)
            return
        shape, _, inner = kind.rpartition(":")
        if shape == "list":
            self._check_list(value, inner, loc, whole=whole)
        elif shape == "map":
            self._check_map(value, inner, loc, whole=whole)
        elif kind == "quantity":
            message = quantity_error(value)
            if message:
                self._report(_problem, "bad_quantity", loc, value, message)
        elif not _fits(value, kind):
            self._report(_wrong_type, loc, value, _SPOKEN[kind])

    def _check_list(self, value: Any, kind: str, loc: Loc, *, whole: bool) -> None:
        if not isinstance(value, list | tuple):
            self._report(_wrong_type, loc, value, "a list")
            return
        key = MERGE_KEYS.get(str(loc[-1])) if kind in self._models else None
        seen: set[str] = set()
        for i, item in enumerate(value):
            here = (*loc, i)
            if item is None:
                self._report(_wrong_type, here, item, "an item")
                continue
            if item == {"$patch": "replace"} and not whole:
                continue
            # a list without merge key is replaced as a whole, so its items are complete
            self.check(item, kind, here, whole=whole or key is None)
            if key is None or not isinstance(item, Mapping):
                continue
            name = item.get(key)
            if name is None and not whole:
                self._report(_missing, (*here, key))
            elif key == "name" and isinstance(name, str):
                if name in seen:
                    message = f"another item of {format_path(loc[-1:])} has this name already"
                    self._report(_problem, "duplicate", (*here, key), name, message)
                seen.add(name)

    def _check_map(self, value: Any, kind: str, loc: Loc, *, whole: bool) -> None:
        if not isinstance(value, Mapping):
            self._report(_wrong_type, loc, value, "a mapping")
            return
        for key, inner in value.items():
            if key not in _DIRECTIVES or whole:
                self.check(inner, kind, (*loc, key), whole=whole)

    def _check_model(self, value: Any, kind: str, loc: Loc, *, whole: bool) -> None:
        if not isinstance(value, Mapping):
            self._report(_wrong_type, loc, value, "a mapping")
            return
        fields: Mapping[str, str] = self._models[kind]["fields"]
        for key, inner in value.items():
            here = (*loc, key)
            if key in fields:
                self.check(inner, fields[key], here, whole=whole)
            elif key == "$patch" and not whole:
                if inner not in ("replace", "delete"):
                    self._report(
                        _problem, "bad_pod_template", here, inner, "must be replace or delete"
                    )
            elif key not in _DIRECTIVES or whole:
                self._report(_unknown_key, here, key, kind, fields, value)
        for key in self._models[kind]["required"]:
            if value.get(key) is None:
                self.leaves_out = True
                if whole:
                    self._report(_missing, (*loc, key))


def _unknown_key(
    loc: Loc, key: str, kind: str, fields: Mapping[str, str], owner: Mapping[str, Any]
) -> Problem:
    form = ""
    if kind == "V1EnvVar" and len(owner) == 1:
        form = right_form(format_path(loc[:-1]), owner)
    elif kind == "V1ResourceRequirements" and not quantity_error(owner[key]):
        form = f"write it as limits: {{{key}: {owner[key]}}}"
    return Problem(
        code="bad_pod_template",
        field=format_path(loc),
        value=key,
        message=f"'{key}' is no key of a {kind.removeprefix('V1')}",
        allowed=sorted(fields),
        hint=form or did_you_mean(key, fields),
    )


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
    hint = right_form(format_path(loc), value) or hint
    return _problem("bad_pod_template", loc, value, message, hint)


def _missing(loc: Loc) -> Problem:
    return _problem("bad_pod_template", loc, None, "is required")
