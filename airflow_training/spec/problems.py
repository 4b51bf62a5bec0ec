"""From pydantic's errors to our problems: one code, a field path, what is allowed, a hint.

Used only when something is wrong, so it may take its time.
"""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from airflow_training.errors import Problem
from airflow_training.spec.base import UNION_TAGS
from airflow_training.spec.paths import Loc, format_path

__all__ = ["branches", "did_you_mean", "field_loc", "kind_of", "problems_of", "unknown_keys"]

_RANGE = {
    "greater_than": ("gt", "must be greater than {}"),
    "greater_than_equal": ("ge", "must be at least {}"),
    "less_than": ("lt", "must be less than {}"),
    "less_than_equal": ("le", "must be at most {}"),
    "multiple_of": ("multiple_of", "must be a multiple of {}"),
    "too_short": ("min_length", "needs at least {} item(s)"),
    "too_long": ("max_length", "takes at most {} item(s)"),
    "string_too_short": ("min_length", "needs at least {} character(s)"),
    "string_too_long": ("max_length", "takes at most {} character(s)"),
}
_WANTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "mapping_type": "a mapping",
    "model_attributes_type": "a mapping",
    "model_type": "a mapping",
    "string_type": "text",
}
_OURS = frozenset({"bad_name", "name_too_long", "not_allowed", "out_of_range", "wrong_type"})
_NO_BOOLEAN = frozenset({"yes", "no", "on", "off", "y", "n", "True", "False"})


def problems_of(
    error: ValidationError, *, model: type[BaseModel], prefix: Loc = ()
) -> list[Problem]:
    """Return every mistake of a validation; `prefix` is where the validated value stands."""
    return [_problem(details, model, prefix) for details in error.errors(include_url=False)]


def did_you_mean(value: Any, allowed: Iterable[Any]) -> str:
    """Return `did you mean 'x'?` for the nearest allowed text, or nothing."""
    if not isinstance(value, str) or not value:
        return ""
    names = [name for name in allowed if isinstance(name, str)]
    folded = {name.lower().replace("_", "").replace("-", ""): name for name in names}
    wanted = value.lower().replace("_", "").replace("-", "")
    # of two letters, one right is near enough
    near = difflib.get_close_matches(wanted, folded, n=1, cutoff=0.5 if len(wanted) < 4 else 0.6)
    return f"did you mean '{folded[near[0]]}'?" if near else ""


def unknown_keys(
    given: Iterable[Any], known: Sequence[str], *, field: str, message: str
) -> list[Problem]:
    """Return a problem for each key of the mapping at `field` that nobody knows."""
    return [
        Problem(
            code="unknown_key",
            field=f"{field}.{key}",
            value=key,
            message=f"'{key}' {message}",
            allowed=known,
            hint=did_you_mean(key, known),
        )
        for key in given
        if key not in known
    ]


def kind_of(value: Any) -> str:
    """Return how a person calls the type of a value in a document."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return "a whole number"
    if isinstance(value, float):
        return "a number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, Sequence):
        return "a list"
    return f"a {type(value).__name__}"


def _problem(details: ErrorDetails, model: type[BaseModel], prefix: Loc) -> Problem:
    kind, value = details["type"], details["input"]
    loc = field_loc(details["loc"], model)
    context = details.get("ctx", {})
    path = format_path((*prefix, *loc))
    if kind == "missing":
        return Problem(code="missing", field=path, message="is required")
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return _unknown_key(loc, _at(model, loc[:-1]), path)
    if kind in ("literal_error", "enum"):
        return _not_allowed(value, _literals(_at(model, loc)), path)
    if kind in _RANGE:
        key, sentence = _RANGE[kind]
        shown = value if isinstance(value, int | float | str) else None
        message = sentence.format(f"{context.get(key):g}" if key != "min_length" else context[key])
        return Problem(code="out_of_range", field=path, value=shown, message=message)
    if kind == "finite_number":
        return Problem(code="out_of_range", field=path, value=str(value), message="must be finite")
    if kind in _WANTED:
        return _wrong_type(value, f"must be {_WANTED[kind]}", path)
    if kind in _OURS:
        allowed = context.get("allowed", ())
        hint = context.get("hint") or did_you_mean(value, allowed)
        if kind == "wrong_type":
            return _wrong_type(value, details["msg"], path)
        return Problem(
            code=kind,
            field=path,
            value=_plain(value),
            message=details["msg"],
            allowed=allowed,
            hint=hint,
        )
    return Problem(code="wrong_type", field=path, value=_plain(value), message=details["msg"])


def _unknown_key(loc: Loc, owner: Any, path: str) -> Problem:
    key = loc[-1]
    allowed: Sequence[str] = ()
    for candidate in _models(owner):
        allowed = [f.alias or name for name, f in candidate.model_fields.items()]
    return Problem(
        code="unknown_key",
        field=path,
        value=key,
        message=f"'{key}' is no key here",
        allowed=allowed,
        hint=did_you_mean(key, allowed),
    )


def _not_allowed(value: Any, allowed: Sequence[Any], path: str) -> Problem:
    if allowed and not isinstance(value, tuple(type(choice) for choice in allowed)):
        wanted = "must be one of " + ", ".join(str(choice) for choice in allowed)
        return _wrong_type(value, wanted, path, allowed)
    return Problem(
        code="not_allowed",
        field=path,
        value=_plain(value),
        message=f"must be {allowed[0]}"
        if len(allowed) == 1
        else "is not one of the values that exist",
        allowed=allowed,
        hint=did_you_mean(value, allowed),
    )


def _wrong_type(value: Any, wanted: str, path: str, allowed: Sequence[Any] = ()) -> Problem:
    hint = ""
    if wanted == "must be true or false" and isinstance(value, str) and value in _NO_BOOLEAN:
        hint = "YAML 1.2 knows only true and false"
    elif wanted == "must be text" and isinstance(value, bool | int | float):
        hint = f'write it in quotes: "{str(value).lower() if isinstance(value, bool) else value}"'
    elif isinstance(value, str) and "number" in wanted and value.strip().replace(".", "").isdigit():
        hint = "write it without quotes"
    elif wanted == "must be a list" and isinstance(value, str) and "\n" not in value:
        hint = f"write it as a list: [{', '.join(json.dumps(word) for word in value.split())}]"
    return Problem(
        code="wrong_type",
        field=path,
        value=_plain(value),
        message=f"{wanted}, not {kind_of(value)}",
        allowed=allowed,
        hint=hint,
    )


def _plain(value: Any) -> Any:
    """Return a value that fits into an answer: no models, nothing long."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= 200 else value[:197] + "..."
    return None


def field_loc(loc: Loc, model: type[BaseModel]) -> Loc:
    """Return where the field stands, without the tags of the unions on the way."""
    if UNION_TAGS.isdisjoint(loc):
        return loc
    kept: list[str | int] = []
    after_tag = False
    for part in loc:
        # a user may have a key that is spelled like a tag
        if part in UNION_TAGS and not after_tag and _is_tagged(_at(model, tuple(kept))):
            after_tag = True
        else:
            kept.append(part)
            after_tag = False
    return tuple(kept)


def _is_tagged(annotation: Any) -> bool:
    return len([branch for branch in branches(annotation) if branch is not type(None)]) > 1


# --- what the model says about a place ----------------------------------------------------------


def _at(model: type[BaseModel], loc: Loc) -> Any:
    """Return the annotation of the place `loc`, or None where nobody knows."""
    here: list[Any] = [model]
    for part in loc:
        here = [inner for outer in here for inner in _step(outer, part)]
    return Union[tuple(here)] if here else None  # noqa: UP007 - made at run time


def _step(annotation: Any, part: str | int) -> list[Any]:
    """Return what may stand under `part`, one entry per branch of a union."""
    found: list[Any] = []
    for branch in branches(annotation):
        if isinstance(branch, type) and issubclass(branch, BaseModel):
            found += [
                f.annotation for name, f in branch.model_fields.items() if part in (f.alias, name)
            ]
        elif get_origin(branch) is list and isinstance(part, int):
            found += get_args(branch)
        elif get_origin(branch) is dict and isinstance(part, str):
            found.append(get_args(branch)[1])
    return found


def branches(annotation: Any) -> list[Any]:
    """Return the types that an annotation allows, without `Annotated` and unions around them."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return branches(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [leaf for arg in get_args(annotation) for leaf in branches(arg)]
    return [annotation]


def _models(annotation: Any) -> list[type[BaseModel]]:
    return [
        leaf
        for leaf in branches(annotation)
        if isinstance(leaf, type) and issubclass(leaf, BaseModel)
    ]


def _literals(annotation: Any) -> list[Any]:
    return [
        choice
        for leaf in branches(annotation)
        if get_origin(leaf) is Literal
        for choice in get_args(leaf)
    ]
