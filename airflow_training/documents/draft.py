"""A job from a document with mistakes, good enough to look for more of them. Never run.

So `unknown_role` is reported beside `unknown_key`, and a person mends a file once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from airflow_training.documents.paths import Loc, split_path
from airflow_training.documents.problems import branches, field_loc
from airflow_training.errors import Problem

__all__ = ["find_further"]

_M = TypeVar("_M", bound=BaseModel)

_COUNTS = frozenset({"replicas", "minReplicas", "maxReplicas"})
_ABOUT_COUNTS = frozenset(
    {"conflict", "min_available_too_large", "out_of_range", "unsatisfiable_policy"}
)
"""Codes that would only follow from a count that could not be read."""
_KEPT = frozenset({"bad_name", "name_too_long"})
"""A wrong name is still the name that other fields speak of."""


def find_further(
    model: type[_M], data: Any, error: ValidationError, look: Callable[[_M], Sequence[Problem]]
) -> list[Problem]:
    """Further problems of a document whose own fields have failed, without those that only follow from them.

    `look` gets a document of this model whose wrong fields have their defaults.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("spec"), Mapping):
        return []
    wrong: dict[Loc, str] = {}
    for details in error.errors(include_url=False, include_context=False, include_input=False):
        loc = field_loc(details["loc"], model)
        wrong.setdefault(loc, details["type"])
    draft: _M = _build(model, data, (), wrong)
    miscounted = any(loc and loc[-1] in _COUNTS for loc in wrong)
    return [
        problem
        for problem in look(draft)
        if not _is_covered(problem.field, wrong)
        and not (miscounted and problem.code in _ABOUT_COUNTS)
    ]


def _is_covered(path: str, wrong: Mapping[Loc, str]) -> bool:
    loc = split_path(path) or ()
    return any(loc[:length] in wrong for length in range(len(loc) + 1))


def _build(model: type[BaseModel], data: Any, loc: Loc, wrong: Mapping[Loc, str]) -> Any:
    """Return a model whose wrong fields have their default, or nothing where there is none."""
    values: dict[str, Any] = {}
    written = data if isinstance(data, Mapping) else {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        here = (*loc, key)
        if key in written and _is_usable(written[key], wrong.get(here)):
            values[name] = _value(field.annotation, written[key], here, wrong)
        elif field.is_required():
            values[name] = _nothing(field.annotation)
    return model.model_construct(_fields_set=set(values), **values)


def _is_usable(value: Any, mistake: str | None) -> bool:
    return mistake is None or (mistake in _KEPT and isinstance(value, str))


def _value(annotation: Any, data: Any, loc: Loc, wrong: Mapping[Loc, str]) -> Any:
    for branch in branches(annotation):
        if isinstance(branch, type) and issubclass(branch, BaseModel):
            if isinstance(data, Mapping):
                return _build(branch, data, loc, wrong)
        elif (
            get_origin(branch) is list and isinstance(data, Sequence) and not isinstance(data, str)
        ):
            return _items(get_args(branch)[0], data, loc, wrong)
        elif get_origin(branch) is dict and isinstance(data, Mapping):
            inner = get_args(branch)[1]
            return {
                key: _value(inner, item, (*loc, key), wrong)
                for key, item in data.items()
                if (*loc, key) not in wrong
            }
    return data


def _items(annotation: Any, data: Sequence[Any], loc: Loc, wrong: Mapping[Loc, str]) -> list[Any]:
    models = [b for b in branches(annotation) if isinstance(b, type) and issubclass(b, BaseModel)]
    if models:
        # an empty stand-in keeps the positions of the others what they are in the file
        return [_build(models[0], item, (*loc, i), wrong) for i, item in enumerate(data)]
    return [item for i, item in enumerate(data) if (*loc, i) not in wrong]


def _nothing(annotation: Any) -> Any:
    for branch in branches(annotation):
        if isinstance(branch, type) and issubclass(branch, BaseModel):
            return _build(branch, {}, (), {})
        if get_origin(branch) in (list, dict):
            return get_origin(branch)()
    return ""
