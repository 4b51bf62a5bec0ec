"""Where a job's template expressions stand, and whether what they name exists. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from airflow_training.documents.models import TrainingJobSpec
from airflow_training.documents.paths import Loc, format_path
from airflow_training.documents.spelling import did_you_mean
from airflow_training.documents.templates import Reference, check_template, has_template, references
from airflow_training.documents.text import counted
from airflow_training.errors import Problem

__all__ = [
    "TEMPLATE_FIELDS",
    "check_expressions",
    "is_rendered",
    "named_params",
    "shell_warnings",
]

TEMPLATE_FIELDS = ("command", "args", "env values", "data", "checkpoint.uri", "output.uri")
"""Where expressions work, as people say it."""
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})


def check_expressions(
    document: Mapping[str, Any], *, spec: TrainingJobSpec, params: Collection[str] | None
) -> Iterator[Problem]:
    """Yield the mistakes of every expression of a document."""
    declared = set(spec.dag.params) if spec.dag is not None else set()
    for loc, text in _expressions(document, ()):
        if is_rendered(loc):
            problems = check_template(text, field=format_path(loc))
            yield from problems
            if not problems:
                yield from _check_references(loc, text, spec, params, declared)
        elif not _is_free_text(loc):
            yield Problem(
                code="bad_template",
                field=format_path(loc),
                value=text,
                message="expressions do not work here",
                allowed=TEMPLATE_FIELDS,
            )


def is_rendered(loc: Loc) -> bool:
    """Return whether expressions work in the field at `loc` of a document."""
    if loc[:1] != ("spec",):
        return False
    rest = loc[1:]
    if rest[:1] == ("data",) or rest in (("checkpoint", "uri"), ("output", "uri")):
        return True
    if len(rest) > 2 and rest[0] == "roles":
        rest = rest[2:]
        if rest[:2] == ("template", "spec") and len(rest) > 4:
            if rest[2] not in ("containers", "initContainers"):
                return False
            rest = rest[4:]
    if rest[:1] in (("command",), ("args",)):
        return len(rest) == 2
    return rest[:1] == ("env",) and len(rest) == 3 and rest[2] == "value"


def named_params(document: Mapping[str, Any]) -> set[str]:
    """Return the parameters that expressions of a document name."""
    return {
        str(reference.path[0])
        for loc, text in _expressions(document, ())
        if is_rendered(loc)
        for reference in references(text)
        if reference.name == "params" and not reference.calls and reference.path
    }


def shell_warnings(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a warning for every expression whose value becomes part of a shell script."""
    warned: set[Loc] = set()
    for words in _command_lines(document):
        for shell, option, script in zip(words, words[1:], words[2:], strict=False):
            loc, text = script
            if not _starts_script(shell[1], option[1]) or loc in warned or not references(text):
                continue
            warned.add(loc)
            yield Problem(
                code="shell_template",
                field=format_path(loc),
                value=text,
                message="the value becomes part of a shell script and can change it",
                hint='give it to the script: in env, or after the script as "$1"',
            )


def _is_free_text(loc: Loc) -> bool:
    """Return whether braces are nobody's business here: annotations, descriptions, plans."""
    if "annotations" in loc or loc[:2] in (("spec", "dag"), ("spec", "plan")):
        return True
    return loc[-1:] == ("onMessagePattern",)


def _expressions(value: Any, loc: Loc) -> Iterator[tuple[Loc, str]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in inside:
        if isinstance(inner, str):
            if has_template(inner):
                yield (*loc, key), inner
        elif isinstance(inner, dict | list | tuple):
            yield from _expressions(inner, (*loc, key))


def _check_references(
    loc: Loc,
    text: str,
    spec: TrainingJobSpec,
    params: Collection[str] | None,
    declared: Collection[str],
) -> Iterator[Problem]:
    for reference in references(text):
        if reference.calls:
            yield from _check_address(reference, loc, text, spec)
        elif reference.name == "params" and params is not None:
            yield from _check_param(reference, loc, text, {*declared, *params})


def _check_param(name: Reference, loc: Loc, text: str, known: Collection[str]) -> Iterator[Problem]:
    if name.path and name.path[0] not in known:
        yield Problem(
            code="bad_template",
            field=format_path(loc),
            value=text,
            message=f"no parameter '{name.path[0]}' is declared in spec.dag.params",
            allowed=sorted(known),
            hint=did_you_mean(name.path[0], known),
        )


def _check_address(
    call: Reference, loc: Loc, text: str, spec: TrainingJobSpec
) -> Iterator[Problem]:
    args = call.args or ()
    most = 2 if call.name == "address" else 1
    numbers = args[1:]
    if (
        not 1 <= len(args) <= most
        or not isinstance(args[0], str)
        or any(type(number) is not int or number < 0 for number in numbers)
    ):
        shown = "address('role', 0)" if most == 2 else "addresses('role')"
        message = f"call it as {shown}"
        yield Problem(code="bad_template", field=format_path(loc), value=text, message=message)
        return
    roles = {role.name: role for role in spec.roles}
    role = roles.get(args[0])
    if role is None:
        yield Problem(
            code="unknown_role",
            field=format_path(loc),
            value=args[0],
            message=f"no role is called '{args[0]}'",
            allowed=list(roles),
            hint=did_you_mean(args[0], roles),
        )
        return
    size = max(role.replicas, role.max_replicas or 0)
    for number in numbers:
        if int(number) >= size:
            message = f"'{role.name}' has {counted(size, 'instance')}, counted from 0"
            yield Problem(code="bad_template", field=format_path(loc), value=text, message=message)


# --- shells -------------------------------------------------------------------------------------


def _starts_script(shell: str, option: str) -> bool:
    short = option.startswith("-") and not option.startswith("--")
    return short and option.endswith("c") and PurePosixPath(shell).name in _SHELLS


def _command_lines(document: Mapping[str, Any]) -> Iterator[list[tuple[Loc, str]]]:
    """Yield each effective command line as its words, with where each stands."""
    spec = document.get("spec")
    if not isinstance(spec, Mapping):
        return
    roles = spec.get("roles")
    for i, role in enumerate(roles if isinstance(roles, list | tuple) else ()):
        if not isinstance(role, Mapping):
            continue
        owners: list[tuple[Loc, Mapping[str, Any]]] = [
            (("spec",), spec),
            (("spec", "roles", i), role),
        ]
        yield _words(owners)
        for loc, container in _containers(role, ("spec", "roles", i)):
            yield _words([*owners, (loc, container)])


def _containers(role: Mapping[str, Any], loc: Loc) -> Iterator[tuple[Loc, Mapping[str, Any]]]:
    template = role.get("template")
    pod = template.get("spec") if isinstance(template, Mapping) else None
    for field in ("initContainers", "containers"):
        found = pod.get(field) if isinstance(pod, Mapping) else None
        for i, container in enumerate(found if isinstance(found, list | tuple) else ()):
            if isinstance(container, Mapping):
                yield (*loc, "template", "spec", field, i), container


def _words(owners: Sequence[tuple[Loc, Mapping[str, Any]]]) -> list[tuple[Loc, str]]:
    words: list[tuple[Loc, str]] = []
    for key in ("command", "args"):
        for loc, owner in reversed(owners):
            given = owner.get(key)
            if key in owner:
                listed = given if isinstance(given, list | tuple) else ()
                words += [
                    ((*loc, key, i), word) for i, word in enumerate(listed) if isinstance(word, str)
                ]
                break
    return words
