"""Checks of what a job says about pods: templates, shorthand keys, quantities. Pure."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from airflow_training.documents.layers import UserTemplate
from airflow_training.documents.loading import MAX_NODES
from airflow_training.documents.paths import Loc, format_path, split_path
from airflow_training.documents.podmodel.check import SHORTHAND_KINDS, check_complete, inspect_layer
from airflow_training.documents.quantities import parse_quantity, quantity_error
from airflow_training.documents.shapes import mapping, mappings
from airflow_training.errors import Problem

__all__ = ["MALFORMED", "check_expansion", "check_pods", "pod_warnings", "without_malformed_pods"]

MALFORMED = frozenset({"bad_pod_template", "bad_quantity"})
"""Codes of mistakes whose part of a document no later room sees."""
_STAND_IN = "\0training"
"""Name of the training container while no framework has named it."""
_LONGEST_TEXT = 131_071
"""Bytes of one argument or `NAME=value` that Linux hands to a program (`MAX_ARG_STRLEN` less the end of the text)."""
_LEAST_MEMORY = 1 << 20
"""Bytes; engines of containers want several times as much."""
_LIKELY_UNITS = 1024
"""Below so many bytes a unit was left out."""
_USER_LISTS = frozenset({"env", "envFrom", "ports", "volumeMounts", "volumes"})


def check_pods(document: Mapping[str, Any]) -> list[Problem]:
    """Return the mistakes of every pod template and shorthand key of a document."""
    spec = mapping(document.get("spec"))
    problems, leaves_out = _check_shorthand(spec, ("spec",))
    problems += _of_container(spec, ("spec",))
    for i, role in enumerate(mappings(spec.get("roles"))):
        loc: Loc = ("spec", "roles", i)
        for found, open_ends in (
            _check_shorthand(role, loc),
            inspect_layer(role.get("template"), (*loc, "template")),
        ):
            problems += found
            leaves_out |= open_ends
        problems += _of_container(role, loc)
        problems += _restarts_inside(mapping(role.get("template")), (*loc, "template", "spec"))
        pod = mapping(mapping(role.get("template")).get("spec"))
        for key in ("initContainers", "containers"):
            for number, container in enumerate(mappings(pod.get(key))):
                problems += _of_container(container, (*loc, "template", "spec", key, number))
    if problems or not leaves_out:
        return problems
    for i, role in enumerate(mappings(spec.get("roles"))):
        problems += _check_merged(spec, role, ("spec", "roles", i))
    return list({problem.field: problem for problem in problems}.values())


def check_expansion(data: Any) -> Iterator[Problem]:
    """Yield `too_large` where the job's shorthand, copied into every role, makes a mountain."""
    spec = mapping(mapping(data).get("spec"))
    roles = len(mappings(spec.get("roles")))
    values = sum(_size(spec.get(key)) for key in ("args", *SHORTHAND_KINDS)) * roles
    if values > MAX_NODES:
        message = f"{values} values once the job's own keys are copied into {roles} roles"
        hint = f"at most {MAX_NODES} are read"
        yield Problem(code="too_large", field="spec.roles", message=message, hint=hint)


def _size(value: Any) -> int:
    inside = value.values() if isinstance(value, Mapping) else value
    return 1 + sum(map(_size, inside)) if isinstance(value, Mapping | list | tuple) else 1


def pod_warnings(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is allowed in a pod template and has no effect."""
    for i, role in enumerate(mappings(mapping(document.get("spec")).get("roles"))):
        pod = mapping(mapping(role.get("template")).get("spec"))
        if pod.get("restartPolicy") not in (None, "Never"):
            yield Problem(
                code="conflict",
                field=format_path(("spec", "roles", i, "template", "spec", "restartPolicy")),
                value=pod["restartPolicy"],
                message="pods are always created with restartPolicy Never",
                hint="the role's own restartPolicy says what is restarted",
            )


def without_malformed_pods(data: Any, problems: Iterable[Problem]) -> Any:
    """Return the document without what is malformed inside its pods: itself, where nothing is.

    So that later rooms, which rely on the shape of pods, can look for mistakes in the rest.
    """
    malformed = [split_path(each.field) for each in problems if each.code in MALFORMED]
    if not any(malformed):
        return data
    legible = copy.deepcopy(data)
    for loc in malformed:
        if loc:
            _remove(legible, loc)
    return legible


def _remove(data: Any, loc: Loc) -> None:
    """Remove a key; an item of a list becomes empty, so that the others stay where they are."""
    *parents, last = loc
    with contextlib.suppress(KeyError, IndexError, TypeError):  # taken out with what is around it
        for part in parents:
            data = data[part]
        if isinstance(last, int):
            data[last] = {}
        else:
            del data[last]


def _of_container(owner: Mapping[str, Any], loc: Loc) -> Iterator[Problem]:
    """Yield the mistakes of values that are well-formed, and with which no container runs."""
    yield from _too_long(owner, loc)
    yield from _too_little_memory(owner, loc)
    yield from _parts_of_devices(owner, loc)
    yield from _above_limit(owner, loc)


def _above_limit(owner: Mapping[str, Any], loc: Loc) -> Iterator[Problem]:
    """Yield requests above their limit, which nothing could ever use; of devices all that differ from it."""
    resources = mapping(owner.get("resources"))
    limits = mapping(resources.get("limits"))
    for name, value in mapping(resources.get("requests")).items():
        limit = limits.get(name)
        if limit is None or quantity_error(value) or quantity_error(limit):
            continue
        asked, most = parse_quantity(value), parse_quantity(limit)
        is_device = "/" in str(name)
        if asked > most or (is_device and asked != most):
            yield Problem(
                code="out_of_range",
                field=format_path((*loc, "resources", "requests", name)),
                value=value,
                message=f"must be {'' if is_device else 'at most '}its limit, which is {limit}",
            )


def _parts_of_devices(owner: Mapping[str, Any], loc: Loc) -> Iterator[Problem]:
    """Yield counts of devices that are no whole numbers: Kubernetes refuses them, and no machine has a part of one."""
    resources = mapping(owner.get("resources"))
    for key in ("limits", "requests"):
        for name, value in mapping(resources.get(key)).items():
            if "/" not in str(name) or value is None or quantity_error(value):
                continue
            if not parse_quantity(value).is_integer():
                yield Problem(
                    code="bad_quantity",
                    field=format_path((*loc, "resources", key, name)),
                    value=value,
                    message="must be a whole number of devices",
                )


def _too_little_memory(owner: Mapping[str, Any], loc: Loc) -> Iterator[Problem]:
    """Yield amounts of memory in which no program runs: a number without a unit is bytes, `m` is a thousandth."""
    resources = mapping(owner.get("resources"))
    for key in ("limits", "requests"):
        value = mapping(resources.get(key)).get("memory")
        if value is None or quantity_error(value):
            continue
        size = parse_quantity(value)
        if not 0 < size < _LEAST_MEMORY:
            continue
        number = str(value).removesuffix("m")
        unit = "Gi" if number == str(value) else "Mi"
        yield Problem(
            code="bad_quantity",
            field=format_path((*loc, "resources", key, "memory")),
            value=value,
            message=f"{size:.7g} bytes of memory: no program runs in that",
            hint=f"with a unit, as '{number}{unit}'"
            if size < _LIKELY_UNITS and number.replace(".", "", 1).isdigit()
            else "",
        )


def _too_long(owner: Mapping[str, Any], loc: Loc) -> Iterator[Problem]:
    """Yield the texts with which no program can be started, by their sizes: what they hold may be secret."""
    texts: list[tuple[Loc, str, str]] = [
        (("env", i, "value"), f"variable {entry.get('name')}", f"{entry.get('name')}={entry.get('value')}")
        for i, entry in enumerate(mappings(owner.get("env")))
        if isinstance(entry.get("value"), str)
    ]  # fmt: skip
    for key in ("command", "args"):
        words = owner.get(key)
        if isinstance(words, list):
            texts += (((key, i), "argument", word) for i, word in enumerate(words) if isinstance(word, str))  # fmt: skip
    for place, kind, text in texts:
        size = len(text.encode("utf-8", "replace"))
        if size > _LONGEST_TEXT:
            yield Problem(
                code="too_large",
                field=format_path((*loc, *place)),
                message=f"the {kind} has {size} bytes: Linux starts no program with more than {_LONGEST_TEXT} in one",
                hint="put it into a file, as in a ConfigMap or Secret that is mounted, and name its path",
            )


def _restarts_inside(template: Mapping[str, Any], loc: Loc) -> Iterator[Problem]:
    """Yield what would let a kubelet start a container again, past our counts and limits.

    An init container with restartPolicy Always is a sidecar: that one may.
    """
    pod = mapping(template.get("spec"))
    for key, allowed in (("initContainers", ("Never", "Always")), ("containers", ("Never",))):
        for i, container in enumerate(mappings(pod.get(key))):
            policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules")
            if policy is not None and policy not in allowed:
                yield _conflicting((*loc, key, i, "restartPolicy"), policy, allowed)
            if rules:
                yield _conflicting((*loc, key, i, "restartPolicyRules"), rules, ())


def _conflicting(loc: Loc, value: Any, allowed: tuple[str, ...]) -> Problem:
    return Problem(
        code="conflict",
        field=format_path(loc),
        value=value,
        message="containers are not restarted inside their pod: restarts are counted and limited"
        " by the job",
        allowed=allowed,
        hint="the role's own restartPolicy and failurePolicy.rules say what is restarted",
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
    written = UserTemplate(spec, role, loc, container=_STAND_IN)
    for problem in check_complete(written.merged, ()):
        place = split_path(problem.field) or ()
        if _USER_LISTS.intersection(place):
            owner = written.find(place[:-1])
            if owner is not None:
                yield replace(problem, field=format_path((*owner, place[-1])))
