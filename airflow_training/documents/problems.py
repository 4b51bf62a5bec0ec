"""From pydantic's errors to our problems: one code, a field path, what is allowed, a hint.

Used only when something is wrong, so it may take its time.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from airflow_training.documents.paths import Loc, format_path
from airflow_training.documents.right_places import right_place, seconds_meant
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import Problem

if TYPE_CHECKING:
    from airflow_training.documents.loading import FieldLines

__all__ = [
    "MOST_FINDINGS",
    "UNION_TAGS",
    "branches",
    "distinct",
    "field_loc",
    "first_of",
    "how_many",
    "key_meant",
    "kind_of",
    "overflows",
    "problem_of_more",
    "problems_of",
    "right_form",
    "unknown_keys",
    "with_lines",
]

MOST_FINDINGS = 100
"""Of one document; what is beyond is counted."""
_MORE = "too_many"
UNION_TAGS = frozenset({"<flag>", "<list>", "<number>", "<object>", "<text>"})
"""Tags of the unions made with `base.discriminate_by_kind`; never part of a field path that a person sees."""

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
_OURS = frozenset(
    {"bad_name", "bad_quantity", "name_too_long", "not_allowed", "out_of_range", "wrong_type"}
)
_OTHERS_WORDS = {
    "completed": "Complete",
    "completedsuccessfully": "Complete",
    "failjobset": "FailJob",
    "finished": "Complete",
    "healthy": "Ready",
    "restartjobset": "RestartJob",
    "restartjobsetandignoremaxrestarts": "RestartJobAndIgnoreMaxRestarts",
    "servicecompletedsuccessfully": "Complete",
    "servicehealthy": "Ready",
    "servicestarted": "Running",
    "started": "Running",
    "succeeded": "Complete",
    "success": "Complete",
}
"""What other systems, and the states of runs, call a value: in small letters, without underscores."""
_NO_BOOLEAN = frozenset({"yes", "no", "on", "off", "y", "n", "True", "False"})


def problems_of(
    error: ValidationError, *, model: type[BaseModel], prefix: Loc = ()
) -> list[Problem]:
    """Return every mistake of a validation; `prefix` is where the validated value stands."""
    found = error.errors(include_url=False)
    problems = [_problem(details, model, prefix) for details in found[:MOST_FINDINGS]]
    return problems + problem_of_more(len(found) - len(problems))


def problem_of_more(count: int) -> list[Problem]:
    """Return the finding that stands for `count` further ones; nothing for none."""
    if count <= 0:
        return []
    message = f"{count} more, which are not shown: mend these first"
    return [Problem(code=_MORE, field="", value=count, message=message)]


def overflows(problems: Iterable[Problem]) -> bool:
    """Return whether a document is too large or too wrong for anybody to look for more mistakes."""
    return any(problem.code in (_MORE, "too_large") for problem in problems)


def first_of(problems: Sequence[Problem]) -> list[Problem]:
    """Return the first hundred problems, and one that counts the rest."""
    shown = [problem for problem in problems if problem.code != _MORE]
    return shown[:MOST_FINDINGS] + problem_of_more(how_many(problems) - len(shown[:MOST_FINDINGS]))


def distinct(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems without further reports of one mistake: same code, same field."""
    found: dict[tuple[str, str], Problem] = {}
    for problem in problems:
        found.setdefault((problem.code, problem.field), problem)
    return list(found.values())


def with_lines(problems: Iterable[Problem], lines: FieldLines) -> list[Problem]:
    """Return the first problems with the line of their field, in the order of the file.

    A value that was given beside the document (`params.lr`) is on none of its lines.
    """
    placed = [
        problem
        if problem.line is not None or problem.field.startswith("params.")
        else replace(problem, line=lines.of(problem.field))
        for problem in problems
    ]
    return first_of(sorted(placed, key=lambda problem: problem.line or 0))


def how_many(problems: Iterable[Problem]) -> int:
    """Return the number of mistakes, also of those that are only counted."""
    return sum(int(problem.value) if problem.code == _MORE else 1 for problem in problems)


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
        return _unknown_key(loc, model, path)
    if kind in ("literal_error", "enum"):
        return _not_allowed(value, context.get("allowed") or _literals(_at(model, loc)), path)
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
    if kind == "string_pattern_mismatch":
        wanted = _description(loc, model) or f"of the form {context['pattern']}"
        message = f"must be {wanted}"
        return Problem(code="bad_name", field=path, value=_plain(value), message=message)
    message = details["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return Problem(code="wrong_type", field=path, value=_plain(value), message=message)


def _description(loc: Loc, model: type[BaseModel]) -> str:
    """Return what a field says of itself; empty where it says nothing."""
    for candidate in _models(_at(model, loc[:-1])):
        for name, field in candidate.model_fields.items():
            if loc[-1] in (name, field.alias):
                return field.description or ""
    return ""


def _unknown_key(loc: Loc, model: type[BaseModel], path: str) -> Problem:
    key = loc[-1]
    allowed: Sequence[str] = ()
    for candidate in _models(_at(model, loc[:-1])):
        allowed = [f.alias or name for name, f in candidate.model_fields.items()]
    return Problem(
        code="unknown_key",
        field=path,
        value=key,
        message=f"'{key}' is no key here",
        allowed=allowed,
        hint=key_meant(key, allowed, model=model),
    )


def key_meant(key: Any, allowed: Sequence[str], *, model: type[BaseModel]) -> str:
    """Return which key was meant that nobody knows here: one that is called nearly so, or has another place."""
    near, place = did_you_mean(key, allowed), right_place(key, model, branches)
    if near and place:
        return f"{near} '{key}' itself belongs to {place}"
    return near or (f"it belongs to {place}" if place else "")


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
        hint=did_you_mean(value, allowed) or _same_meaning(value, allowed),
    )


def _same_meaning(value: Any, allowed: Sequence[Any]) -> str:
    """Return `did you mean 'x'?` for a word by which other systems call one of the values."""
    ours = _OTHERS_WORDS.get(value.lower().replace("_", "")) if isinstance(value, str) else None
    return f"did you mean '{ours}'?" if ours in allowed else ""


def _wrong_type(value: Any, wanted: str, path: str, allowed: Sequence[Any] = ()) -> Problem:
    hint = ""
    if wanted == "must be true or false" and isinstance(value, str) and value in _NO_BOOLEAN:
        hint = "YAML 1.2 knows only true and false"
    elif wanted == "must be text" and isinstance(value, bool | int | float):
        hint = f'write it in quotes: "{str(value).lower() if isinstance(value, bool) else value}"'
    elif isinstance(value, str) and "number" in wanted and value.strip().replace(".", "").isdigit():
        hint = "write it without quotes"
    elif isinstance(value, str) and "number" in wanted and path.endswith("Seconds"):
        hint = f"in seconds: {seconds}" if (seconds := seconds_meant(value)) else ""
    elif wanted == "must be a list" and isinstance(value, str) and "\n" not in value:
        hint = f"write it as a list: [{', '.join(json.dumps(word) for word in value.split())}]"
    if path.endswith(".onExitCodes") and (codes := _exit_codes(value)):
        hint = f"write it as {{values: {codes}}}"
    hint = right_form(path, value) or hint
    return Problem(
        code="wrong_type",
        field=path,
        value=_plain(value),
        message=f"{wanted}, not {kind_of(value)}",
        allowed=allowed,
        hint=hint,
    )


def _exit_codes(value: Any) -> list[int]:
    """Return the codes that are written without their operator, one or a list of them."""
    codes = list(value) if isinstance(value, list | tuple) else [value]
    return codes if all(type(code) is int for code in codes) else []


def right_form(path: str, value: Any) -> str:
    """Return how a variable, a port or a dependency is written, where `value` shows what was meant; else nothing."""
    found = re.search(r"(?:^|\.)(env|ports|dependsOn)(\[\d+\])?$", path)
    if found is None:
        return ""
    items = [_meant(found[1], each) for each in _single(value)]
    if not items or "" in items or len(items) > _MOST_SHOWN:
        return ""
    one_of_several = found[2] is not None and len(items) == 1
    return "write it as " + (items[0] if one_of_several else f"[{', '.join(items)}]")


_MOST_SHOWN = 5


def _single(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [{key: inner} for key, inner in value.items()]
    return list(value) if isinstance(value, list | tuple) else [value]


def _meant(kind: str, value: Any) -> str:
    if kind == "dependsOn":
        return f"{{role: {value}}}" if isinstance(value, str) and value else ""
    if kind == "ports":
        return f"{{containerPort: {value}}}" if type(value) is int else ""
    if isinstance(value, str) and "=" in value:
        name, _, text = value.partition("=")
        value = {name: text}
    if not isinstance(value, Mapping) or len(value) != 1:
        return ""
    ((name, inner),) = value.items()
    if not isinstance(inner, str | int | float):
        return ""
    text = inner if isinstance(inner, str) else json.dumps(inner)
    return f"{{name: {name}, value: {json.dumps(text, ensure_ascii=False)}}}"


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
