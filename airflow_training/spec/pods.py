"""Checks of what a job says about pods: templates, shorthand keys, quantities. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from airflow_training.errors import Problem
from airflow_training.spec.merge import MERGE_KEYS, merge_templates, shorthand_template
from airflow_training.spec.paths import Loc, format_path, split_path
from airflow_training.spec.podmodel.check import SHORTHAND_KINDS, check_complete, inspect_layer

__all__ = ["check_pods", "pod_warnings"]

_STAND_IN = "\0training"
"""Name of the training container while no framework has named it."""
_USER_LISTS = frozenset({"env", "envFrom", "ports", "volumeMounts", "volumes"})


def check_pods(document: Mapping[str, Any]) -> list[Problem]:
    """Return the mistakes of every pod template and shorthand key of a document."""
    spec = _mapping(document.get("spec"))
    problems, leaves_out = _check_shorthand(spec, ("spec",))
    for i, role in enumerate(_mappings(spec.get("roles"))):
        loc: Loc = ("spec", "roles", i)
        for found, open_ends in (
            _check_shorthand(role, loc),
            inspect_layer(role.get("template"), (*loc, "template")),
        ):
            problems += found
            leaves_out |= open_ends
    if problems or not leaves_out:
        return problems
    for i, role in enumerate(_mappings(spec.get("roles"))):
        problems += _check_merged(spec, role, ("spec", "roles", i))
    return list({problem.field: problem for problem in problems}.values())


def pod_warnings(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is allowed in a pod template and has no effect."""
    for i, role in enumerate(_mappings(_mapping(document.get("spec")).get("roles"))):
        pod = _mapping(_mapping(role.get("template")).get("spec"))
        if pod.get("restartPolicy") not in (None, "Never"):
            yield Problem(
                code="conflict",
                field=format_path(("spec", "roles", i, "template", "spec", "restartPolicy")),
                value=pod["restartPolicy"],
                message="pods are always created with restartPolicy Never",
                hint="the role's own restartPolicy says what is restarted",
            )


def _check_shorthand(owner: Mapping[str, Any], loc: Loc) -> tuple[list[Problem], bool]:
    problems: list[Problem] = []
    leaves_out = False
    for key, kind in SHORTHAND_KINDS.items():
        if owner.get(key) is not None:
            found, open_ends = inspect_layer(owner[key], (*loc, key), kind=kind)
            problems += found
            leaves_out |= open_ends
    return problems, leaves_out


# --- what only shows when the layers lie over each other --------------------------------------


def _check_merged(spec: Mapping[str, Any], role: Mapping[str, Any], loc: Loc) -> Iterator[Problem]:
    """Yield what is required and in none of the user's layers, placed in the layer that needs it.

    Only inside lists that a framework's own template does not complete: environment, volumes,
    mounts and ports.
    """
    layers = (
        (loc, "template", _mapping(role.get("template"))),
        (loc, "", shorthand_template(_STAND_IN, _written(role))),
        (("spec",), "", shorthand_template(_STAND_IN, _written(spec))),
    )
    merged = merge_templates(*(layer for _, _, layer in reversed(layers)))
    for problem in check_complete(merged, ()):
        place = split_path(problem.field) or ()
        if not _USER_LISTS.intersection(place):
            continue
        for prefix, key, layer in layers:
            found = _locate(place, merged, layer)
            if found is not None:
                if not key:
                    found = found[3:] if found[1] == "containers" else found[1:]
                yield replace(
                    problem, field=format_path((*prefix, *((key,) if key else ()), *found))
                )
                break


def _locate(place: Loc, merged: Any, layer: Any) -> Loc | None:
    """Return where the owner of a merged place stands in one layer; None: not there."""
    here: list[str | int] = []
    for part in place[:-1]:
        if isinstance(part, int):
            item, merge_by = merged[part], MERGE_KEYS.get(str(here[-1]))
            at = next((j for j, own in enumerate(layer) if _is_same(own, item, merge_by)), None)
            if at is None:
                return None
            here.append(at)
            merged, layer = item, layer[at]
        else:
            if not isinstance(layer, Mapping) or layer.get(part) is None:
                return None
            here.append(part)
            merged, layer = merged[part], layer[part]
    return (*here, place[-1])


def _is_same(own: Any, item: Any, merge_by: str | None) -> bool:
    if merge_by is None or not isinstance(own, Mapping) or not isinstance(item, Mapping):
        return bool(own == item)
    return bool(own.get(merge_by) == item.get(merge_by))


def _written(owner: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: owner[key] for key in SHORTHAND_KINDS if owner.get(key) is not None}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    """Return the items of a list, each as a mapping, so that positions stay what they were."""
    return [_mapping(item) for item in value] if isinstance(value, list | tuple) else []
