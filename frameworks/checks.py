"""Every mistake of a Framework document at once: shape, names, templates, parameter schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from airflow_training.documents.loading import LoadedDocument, load_documents
from airflow_training.documents.paths import Loc, format_path
from airflow_training.documents.spelling import did_you_mean
from airflow_training.documents.templates import check_template as check_user_template
from airflow_training.errors import Problem
from airflow_training.frameworks.model import Framework, FrameworkSpec
from airflow_training.frameworks.templates import (
    as_template,
    check_expression,
    check_static_template,
    check_template,
    parameters_read,
    why_refused,
)

__all__ = ["check_document"]

RESERVED_PREFIX = "TRAINING_"
_OWN_NAMES = frozenset({"TRAINING_OUTPUT_COMMAND", "TRAINING_UPDATE_INTERVAL"})
"""`TRAINING_` names that a framework may set."""


def check_document(text: str, *, path: str = "") -> tuple[Framework | None, Sequence[Problem]]:
    """Return the only framework of a text (None where its shape is wrong) and all its mistakes."""
    documents = load_documents(text, path)
    if len(documents) != 1:
        message = f"holds {len(documents)} documents where one framework is wanted"
        return None, (Problem(code="syntax", field="", message=message),)
    document = documents[0]
    if document.problems:
        return None, tuple(document.problems)
    if not isinstance(document.data, Mapping):
        return None, (Problem(code="wrong_type", field="", message="must be a mapping"),)
    try:
        framework = Framework.__pydantic_validator__.validate_python(dict(document.data))
    except ValidationError as error:
        from airflow_training.documents.problems import problems_of

        return None, _with_lines(problems_of(error, model=Framework), document)
    return framework, _with_lines(list(_problems(framework.spec)), document)


def _with_lines(problems: Sequence[Problem], document: LoadedDocument) -> Sequence[Problem]:
    return tuple(
        problem if problem.line else replace(problem, line=document.lines.of(problem.field))
        for problem in problems
    )


def _problems(spec: FrameworkSpec) -> Iterator[Problem]:
    yield from _role_names(spec)
    yield from _templates(spec)
    yield from _pods(spec)
    yield from _parameters(spec)
    for i, env in enumerate(spec.env):
        if env.name.startswith(RESERVED_PREFIX) and env.name not in _OWN_NAMES:
            yield Problem(
                code="reserved_env",
                field=f"spec.env[{i}].name",
                value=env.name,
                message=f"names that begin with {RESERVED_PREFIX} are set for every framework",
            )


def _role_names(spec: FrameworkSpec) -> Iterator[Problem]:
    if spec.any_role:
        return
    known = [role.name for role in spec.roles]
    named: list[tuple[str, str]] = []
    for i, role in enumerate(spec.roles):
        named += [
            (f"spec.roles[{i}].dependsOn[{j}].role", dependency.role)
            for j, dependency in enumerate(role.depends_on)
        ]
    for kind, entries in (("env", spec.env), ("files", spec.files)):
        named += [
            (f"spec.{kind}[{i}].roles[{j}]", name)
            for i, entry in enumerate(entries)
            for j, name in enumerate(entry.roles)
        ]
    for kind, policy in (
        ("successPolicy", spec.success_policy),
        ("failurePolicy", spec.failure_policy),
    ):
        named += [
            (f"spec.{kind}.targetRoles[{i}]", name) for i, name in enumerate(policy.target_roles)
        ]
    if spec.elastic:
        named += [(f"spec.elastic.roles[{i}]", name) for i, name in enumerate(spec.elastic.roles)]
    if spec.output_role:
        named.append(("spec.outputRole", spec.output_role))
    if spec.single_role:
        named.append(("spec.singleRole", spec.single_role))
    if spec.other_roles:
        named.append(("spec.otherRoles", spec.other_roles))
    for field, name in named:
        if name not in known:
            yield Problem(
                code="unknown_role",
                field=field,
                value=name,
                message=f"no role is called '{name}'",
                allowed=known,
                hint=did_you_mean(name, known),
            )


def _templates(spec: FrameworkSpec) -> Iterator[Problem]:
    texts = [(f"spec.env[{i}].value", env.value) for i, env in enumerate(spec.env)]
    for i, file in enumerate(spec.files):
        texts += [(f"spec.files[{i}].path", file.path), (f"spec.files[{i}].content", file.content)]
    conditions = [(f"spec.env[{i}].when", env.when) for i, env in enumerate(spec.env)]
    conditions += [(f"spec.files[{i}].when", file.when) for i, file in enumerate(spec.files)]
    conditions += [
        (f"spec.roles[{i}].templates[{j}].when", layer.when)
        for i, role in enumerate(spec.roles)
        for j, layer in enumerate(role.templates)
    ]
    prefixes = [
        (f"spec.roles[{i}].commandPrefix[{j}]", word)
        for i, role in enumerate(spec.roles)
        for j, word in enumerate(role.command_prefix)
    ]
    for check, sources in (
        (check_template, texts),
        (check_static_template, prefixes),
        (check_expression, conditions),
    ):
        for field, source in sources:
            if not source:
                continue
            refused = why_refused(check, source)
            if not refused:
                template = as_template(source) if check is check_expression else source
                unknown = sorted(parameters_read(template) - set(spec.parameters))
                refused = f"there is no parameter '{unknown[0]}'" if unknown else ""
            if refused:
                yield Problem(code="bad_template", field=field, value=source, message=refused)


def _pods(spec: FrameworkSpec) -> Iterator[Problem]:
    from airflow_training.documents.podmodel.check import check_layer

    for i, role in enumerate(spec.roles):
        layers: list[tuple[Loc, Mapping[str, Any]]] = [
            (("spec", "roles", i, "template"), role.template)
        ]
        for j, conditional in enumerate(role.templates):
            layers.append((("spec", "roles", i, "templates", j, "template"), conditional.template))
        for name, template in role.template_for.items():
            layers.append((("spec", "roles", i, "templateFor", name), template))
        for loc, layer in layers:
            yield from check_layer(layer, loc)
            for place, text in _texts(layer, loc):
                # merged with the user's layers, so it speaks the user's language
                yield from check_user_template(text, field=format_path(place))


def _texts(value: Any, loc: Loc) -> Iterator[tuple[Loc, str]]:
    if isinstance(value, str):
        yield loc, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, (*loc, str(key)))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _texts(inner, (*loc, i))


def _parameters(spec: FrameworkSpec) -> Iterator[Problem]:
    if not spec.parameters:
        return
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.exceptions import ValidationError as Invalid

    for name, schema in spec.parameters.items():
        field = f"spec.parameters.{name}"
        if not isinstance(schema, Mapping):
            yield Problem(code="wrong_type", field=field, message="must be a JSON Schema")
            continue
        try:
            Draft202012Validator.check_schema(schema)
            if "default" in schema:
                Draft202012Validator(schema).validate(schema["default"])
        except SchemaError as error:
            yield Problem(
                code="bad_parameter", field=field, message=f"is no JSON Schema: {error.message}"
            )
        except Invalid as error:
            yield Problem(
                code="bad_parameter",
                field=f"{field}.default",
                value=_plain(error.instance),
                message=f"does not fit its own schema: {error.message}",
            )


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
