"""`--set spec.roles.worker.replicas=4`: one value of a document replaced, all else kept. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NoReturn, get_args, get_origin

from pydantic import BaseModel

from airflow_training.documents.loading import load_documents
from airflow_training.documents.paths import Loc, format_path, split_path
from airflow_training.documents.problems import branches, key_meant
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import Problem

__all__ = ["apply_overrides"]


class _AssignmentError(Exception):
    """Carries the problem of one assignment to the place that collects them."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def apply_overrides(
    data: Any, assignments: Iterable[str], *, model: type[BaseModel]
) -> tuple[Any, list[Problem]]:
    """Return a copy of a document of this model with `path=value` applied in order, and what went wrong.

    Items of a list are addressed by position (`roles[0]`, `roles.0`) or by their name
    (`roles.worker`). The value is YAML: `4`, `true`, `[a, b]`, `null`, or else text.
    """
    changed = copy.deepcopy(data)
    problems: list[Problem] = []
    for assignment in assignments:
        try:
            _apply(changed, assignment, model)
        except _AssignmentError as refusal:  # noqa: PERF203 - each mistake is reported
            problem = refusal.problem
            if problem.message.endswith("is no key here"):
                hint = key_meant(problem.value, problem.allowed, model=model)
                problem = replace(problem, hint=hint)
            problems.append(problem)
    return changed, problems


def _apply(document: Any, assignment: str, model: type[BaseModel]) -> None:
    path, equals, text = assignment.partition("=")
    steps = split_path(path.strip())
    if not equals or steps is None:
        _refuse("syntax", assignment, assignment, "write it as path=value", "spec.suspend=true")
    value = _parse_value(path.strip(), text)
    here: Any = document
    annotation: Any = model
    walked: Loc = ()
    for step in steps[:-1]:
        here, annotation, part = _enter(here, annotation, step, walked, steps)
        walked = (*walked, part)
    _assign(here, annotation, steps[-1], walked, value)


def _parse_value(path: str, text: str) -> Any:
    loaded = load_documents(text)
    if not loaded:
        return None if text.strip() in ("~", "null", "Null", "NULL") else text.strip()
    if len(loaded) > 1 or loaded[0].problems:
        message = loaded[0].problems[0].message if loaded[0].problems else "is more than one value"
        _refuse("syntax", path, text, message, "quote it as YAML text")
    return loaded[0].data


def _enter(
    here: Any, annotation: Any, step: str | int, walked: Loc, steps: Loc
) -> tuple[Any, Any, str | int]:
    """Return what stands at `step`, its type, and the key or position that leads there."""
    if isinstance(here, list):
        at = _position(here, step, walked)
        return here[at], _item_type(annotation), at
    if not isinstance(here, dict):
        _refuse("unknown_key", format_path(walked), step, "holds no further keys", "")
    key = str(step)
    inner = _known(annotation, key, walked)
    if here.get(key) is None:
        if _holds_list(inner):
            message = f"'{format_path((*walked, key))}' is empty, so '{steps[-1]}' is not in it"
            _refuse("unknown_key", format_path((*walked, key)), key, message, "")
        here[key] = {}
    return here[key], inner, key


def _assign(here: Any, annotation: Any, step: str | int, walked: Loc, value: Any) -> None:
    if isinstance(here, list):
        here[_position(here, step, walked)] = value
    elif isinstance(here, dict):
        _known(annotation, str(step), walked)
        here[str(step)] = value
    else:
        _refuse("unknown_key", format_path(walked), step, "holds no further keys", "")


def _position(items: list[Any], step: str | int, walked: Loc) -> int:
    names = [item.get("name") for item in items if isinstance(item, dict)]
    if isinstance(step, str) and not step.isdigit():
        for i, item in enumerate(items):
            if isinstance(item, dict) and item.get("name") == step:
                return i
    elif int(step) < len(items):
        return int(step)
    known: list[Any] = [name for name in names if isinstance(name, str)]
    known = known or list(range(len(items)))
    code = "unknown_role" if walked == ("spec", "roles") else "unknown_key"
    path = format_path((*walked, step))
    raise _AssignmentError(
        Problem(
            code=code,
            field=path,
            value=step,
            message=f"nothing is called '{step}' here",
            allowed=known,
            hint=did_you_mean(step, known),
        )
    )


def _known(annotation: Any, key: str, walked: Loc) -> Any:
    """Return the type of a key, or None inside free mappings; refuses keys that do not exist."""
    allowed: list[str] = []
    for branch in branches(annotation):
        if isinstance(branch, type) and issubclass(branch, BaseModel):
            for name, field in branch.model_fields.items():
                allowed.append(field.alias or name)
                if key == allowed[-1]:
                    return field.annotation
        elif get_origin(branch) is dict:
            return get_args(branch)[1]
        elif branch is Any or branch is None:
            return None
    if not allowed:
        _refuse("unknown_key", format_path(walked), key, "holds no further keys", "")
    raise _AssignmentError(
        Problem(
            code="unknown_key",
            field=format_path((*walked, key)),
            value=key,
            message=f"'{key}' is no key here",
            allowed=allowed,
        )
    )


def _item_type(annotation: Any) -> Any:
    for branch in branches(annotation):
        if get_origin(branch) is list:
            return get_args(branch)[0]
    return None


def _holds_list(annotation: Any) -> bool:
    kinds: Sequence[Any] = branches(annotation)
    return any(get_origin(kind) is list for kind in kinds)


def _refuse(code: str, field: str, value: Any, message: str, hint: str) -> NoReturn:
    raise _AssignmentError(Problem(code=code, field=field, value=value, message=message, hint=hint))
