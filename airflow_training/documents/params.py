"""Values of a job's parameters against what `dag.params` declares. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from airflow_training.documents.dag import Param
from airflow_training.documents.paths import Loc, format_path
from airflow_training.documents.problems import kind_of
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import Problem

__all__ = ["check_params", "check_value"]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (Mapping,),
    "null": (type(None),),
}


def check_params(
    declared: Mapping[str, Param], given: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values a run sees (what was given over the defaults) and what is wrong with them.

    Names that were not declared are taken as they are: a caller in Python may add its own.
    """
    values = {name: param.default for name, param in declared.items()}
    values.update(given)
    problems = [
        problem
        for name, param in declared.items()
        if name in given or "default" in param.model_fields_set
        for problem in check_value(param, values[name], ("params", name))
    ]
    problems += [
        Problem(
            code="missing", field=format_path(("params", name)), message="has no default: give it"
        )
        for name, param in declared.items()
        if name not in given and "default" not in param.model_fields_set
    ]
    return values, problems


def check_value(param: Param, value: Any, loc: Loc) -> list[Problem]:
    """Problems with one value of a parameter; empty when it fits."""
    types = [param.type] if isinstance(param.type, str) else list(param.type or ())
    if types and not any(_is(value, name) for name in types):
        message = f"must be of type {' or '.join(types)}, not {kind_of(value)}"
        return [
            replace(_problem("wrong_type", loc, value, message), hint=_as_text(types, value, loc))
        ]
    if param.enum is not None and not any(_equal(value, choice) for choice in param.enum):
        return [
            Problem(
                code="not_allowed",
                field=format_path(loc),
                value=value,
                message="is not one of the values that exist",
                allowed=param.enum,
                hint=did_you_mean(value, param.enum),
            )
        ]
    if "const" in param.model_fields_set and not _equal(value, param.const):
        return [_problem("not_allowed", loc, value, f"must be {param.const}")]
    messages = [*_number(param, value), *_text(param, value), *_list(param, value)]
    problems = [_problem("out_of_range", loc, value, message) for message in messages]
    return problems or list(_nested(param, value, loc))


def _as_text(types: Collection[str], value: Any, loc: Loc) -> str:
    """Return how a value that YAML takes for a number is written as text: a shell takes one pair of quotes away."""
    if "string" not in types or not isinstance(value, bool | int | float):
        return ""
    text = json.dumps(json.dumps(value))
    if loc[0] == "params":
        return f"text is in quotes: -p '{loc[-1]}={text}'"
    return f"write it in quotes: {text}"


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _equal(left: Any, right: Any) -> bool:
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def _number(param: Param, value: Any) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if param.minimum is not None and value < param.minimum:
        yield f"must be at least {param.minimum:g}"
    if param.maximum is not None and value > param.maximum:
        yield f"must be at most {param.maximum:g}"
    if param.exclusive_minimum is not None and value <= param.exclusive_minimum:
        yield f"must be greater than {param.exclusive_minimum:g}"
    if param.exclusive_maximum is not None and value >= param.exclusive_maximum:
        yield f"must be less than {param.exclusive_maximum:g}"
    if param.multiple_of is not None and not _divides(param.multiple_of, value):
        yield f"must be a multiple of {param.multiple_of:g}"


def _divides(step: float, value: float) -> bool:
    parts = value / step
    return abs(parts - round(parts)) < 1e-9


def _text(param: Param, value: Any) -> Iterator[str]:
    if not isinstance(value, str):
        return
    if param.min_length is not None and len(value) < param.min_length:
        yield f"needs at least {param.min_length} character(s)"
    if param.max_length is not None and len(value) > param.max_length:
        yield f"takes at most {param.max_length} character(s)"
    if param.pattern is not None and not re.search(param.pattern, value):
        yield f"must match {param.pattern}"


def _list(param: Param, value: Any) -> Iterator[str]:
    if not isinstance(value, list | tuple):
        return
    if param.min_items is not None and len(value) < param.min_items:
        yield f"needs at least {param.min_items} item(s)"
    if param.max_items is not None and len(value) > param.max_items:
        yield f"takes at most {param.max_items} item(s)"


def _nested(param: Param, value: Any, loc: Loc) -> Iterator[Problem]:
    """What lies inside lists and mappings is left to jsonschema, which is slow to import."""
    schema = param.model_dump(
        by_alias=True,
        exclude_unset=True,
        include={"items", "properties", "required", "additional_properties", "unique_items"},
    )
    if not schema or not isinstance(value, list | tuple | Mapping):
        return
    import jsonschema

    validator = jsonschema.Draft202012Validator(schema)
    try:
        for error in validator.iter_errors(value):
            yield _problem("not_allowed", (*loc, *error.absolute_path), None, error.message)
    except jsonschema.SchemaError as error:
        yield _problem("not_allowed", loc, None, f"its schema is wrong: {error.message}")


def _problem(code: str, loc: Loc, value: Any, message: str) -> Problem:
    return Problem(code=code, field=format_path(loc), value=value, message=message)
