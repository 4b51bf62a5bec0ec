"""Whether the parameters of one layer are what its type takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from airflow_training.documents.problems import kind_of, unknown_keys
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import Problem
from airflow_training.networks.catalogue import LayerType, ParamType

__all__ = ["params_problems"]

_WORDS = {
    "count": "a whole number from 1",
    "size": "a whole number from 0",
    "integer": "a whole number",
    "dim": "a whole number",
    "flag": "true or false",
    "number": "a number",
    "share": "a number from 0 to 1",
    "word": "one of its words",
    "dims": "a list of whole numbers from 0",
    "shape": "a list of whole numbers from 1",
    "sizes": "a whole number from 0, or a list with one for each dimension",
    "strides": "a whole number from 1, or a list with one for each dimension",
}
_LEAST = {"count": 1, "size": 0, "dims": 0, "shape": 1, "sizes": 0, "strides": 1}

_WHOLE = frozenset({*_LEAST, "integer", "dim"})


def params_problems(
    params: Mapping[str, Any], kind: LayerType, type_name: str, field: str
) -> list[Problem]:
    """Return every mistake of the parameters of a layer that needs no shapes to be seen."""
    where = f"{field}.params"
    known = [*kind.params]
    message = f"is no parameter of {type_name}"
    problems = unknown_keys(params, known, field=where, message=message)
    for name, wanted in kind.params.items():
        if name in params:
            if not _fits(params[name], wanted):
                problems.append(_unfit(params[name], wanted, f"{where}.{name}"))
        elif not (wanted.infer or wanted.fill or wanted.has_default):
            problems.append(
                Problem(
                    code="missing",
                    field=f"{where}.{name}",
                    message=f"{type_name} needs it",
                    allowed=wanted.choices,
                    hint=f"{_WORDS[wanted.type]}",
                )
            )
    return problems


def _fits(value: Any, wanted: ParamType) -> bool:
    if value is None:
        return wanted.has_default and wanted.default is None
    if isinstance(value, str | int) and value in wanted.choices and type(value) is not bool:
        return True
    match wanted.type:
        case "flag":
            return isinstance(value, bool)
        case "word":
            return False
        case "number" | "share":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return number and math.isfinite(value) and (wanted.type == "number" or 0 <= value <= 1)
        case "dims" | "shape" | "sizes" | "strides":
            if not isinstance(value, list):
                return wanted.type in ("sizes", "strides") and _is_whole(value, wanted)
            return (wanted.type == "shape" or bool(value)) and all(
                _is_whole(each, wanted) or (type(each) is int and each in wanted.choices)
                for each in value
            )
        case _:
            return _is_whole(value, wanted)


def _is_whole(value: Any, wanted: ParamType) -> bool:
    least = _LEAST.get(wanted.type, -wanted.most)
    return type(value) is int and least <= value <= wanted.most


def _is_too_large(value: Any, most: int) -> bool:
    numbers = value if isinstance(value, list) else [value]
    return any(type(each) is int and abs(each) > most for each in numbers)


def _unfit(value: Any, wanted: ParamType, where: str) -> Problem:
    words = [each for each in wanted.choices if isinstance(each, str)]
    if wanted.type == "word":
        message = "is none of its words"
    else:
        message = f"must be {_WORDS[wanted.type]}" + (f", or {' or '.join(words)}" if words else "")
        if not isinstance(value, int | float) or isinstance(value, bool):
            message += f", not {kind_of(value)}"
        if wanted.type in _WHOLE and _is_too_large(value, wanted.most):
            message += f"; the largest is {wanted.most}"
    hint = did_you_mean(value, words)
    if not hint and isinstance(value, str) and value.lstrip("-").isdigit():
        hint = "write it without quotes"
    return Problem(
        code="wrong_type", field=where, value=value, message=message, allowed=words, hint=hint
    )
