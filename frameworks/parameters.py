"""A framework's parameters: what the user gave checked against its schema, defaults filled in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_training.documents.paths import format_path
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import Problem

__all__ = ["fill_parameters"]


def fill_parameters(
    schemas: Mapping[str, Any], given: Mapping[str, Any], *, framework: str
) -> tuple[dict[str, Any], list[Problem]]:
    """Return every parameter with its value (None: not set) and the mistakes (`bad_parameter`)."""
    values = {name: schema.get("default") for name, schema in schemas.items()}
    problems = []
    for name, value in given.items():
        field = format_path(("spec", "parameters", name))
        if name not in schemas:
            problems.append(_unknown(name, schemas, framework, field))
            continue
        mistakes = [
            Problem(
                code="bad_parameter",
                field=field + inside,
                value=value,
                message=message,
                allowed=allowed,
            )
            for inside, message, allowed in _violations(value, schemas[name])
        ]
        problems += mistakes
        if not mistakes:
            values[name] = value
    return values, problems


def _unknown(name: str, schemas: Mapping[str, Any], framework: str, field: str) -> Problem:
    return Problem(
        code="bad_parameter",
        field=field,
        value=name,
        message=f"the framework {framework} has no parameter '{name}'",
        allowed=sorted(schemas),
        hint=did_you_mean(name, schemas),
    )


def _violations(value: Any, schema: Mapping[str, Any]) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield (path inside the value, message, allowed) per violation."""
    # Loading jsonschema takes longer than everything else here: only for who gives parameters.
    from jsonschema import Draft202012Validator

    for error in Draft202012Validator(schema).iter_errors(value):
        inside = format_path(("v", *error.absolute_path))[1:]
        allowed: list[Any] = list(error.validator_value) if error.validator == "enum" else []
        yield inside, _sentence(error), allowed


_SENTENCES = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be greater than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "needs at least {} characters",
    "maxLength": "takes at most {} characters",
    "pattern": "must match {}",
    "enum": "is not one of the values that exist",
}
_KINDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}


def _sentence(error: Any) -> str:
    wanted: Any = error.validator_value
    if error.validator == "type":
        kinds = wanted if isinstance(wanted, list) else [wanted]
        return "must be " + " or ".join(str(_KINDS.get(kind, kind)) for kind in kinds)
    if error.validator in _SENTENCES:
        return str(_SENTENCES[error.validator]).format(wanted)
    return str(error.message)
