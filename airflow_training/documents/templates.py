"""The template language of documents: `{{ params.lr }}`, `{{ address('master', 0) }}`, no more.

Names, attributes, constant subscripts, and calls with constant arguments. The syntax tree is
checked before anything is rendered, a rendered text is never rendered again, and no attribute of
a Python object can be reached: only keys of mappings, positions of lists, and of dates what
`dates` lists.
A constant text is allowed too, so that `{{ '{{' }}` writes the braces themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_training.documents import dates
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem

if TYPE_CHECKING:
    from jinja2 import Environment, nodes

__all__ = [
    "MAX_LENGTH",
    "USER_FUNCTIONS",
    "USER_NAMES",
    "Reference",
    "check_template",
    "has_template",
    "references",
    "render",
]

USER_NAMES: tuple[str, ...] = (
    "params",
    "run_id",
    "logical_date",
    "data_interval_start",
    "data_interval_end",
    "triggering_assets",
)
"""What a job's templates may name. Frameworks are given more."""
USER_FUNCTIONS: tuple[str, ...] = ("address", "addresses")
"""What a job's templates may call."""
MAX_LENGTH = 64 * 1024
"""Of a template, in characters."""
Constant = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What an expression names: `params.lr`, `address('master', 0).host`, `logical_date.strftime('%Y')`."""

    name: str
    path: tuple[str | int, ...] = ()
    """What is taken from the value, or from the answer of a call."""
    args: tuple[Constant, ...] | None = None
    """Of the call; None where nothing is called."""
    method: str = ""
    """What a date is asked by the call."""

    @property
    def calls(self) -> bool:
        """Return whether a function is called, not a method."""
        return self.args is not None and not self.method


Part = str | Reference
"""A template is plain text and references, one after the other."""


class _ExpressionError(Exception):
    """Raised inside this module for an expression that the language does not have."""


def has_template(text: str) -> bool:
    """Return whether a text holds an expression or something that looks like one."""
    return "{{" in text or "{%" in text


def check_template(
    text: str,
    *,
    field: str = "",
    allowed: Collection[str] = USER_NAMES,
    functions: Collection[str] = USER_FUNCTIONS,
) -> list[Problem]:
    """Return why `text` is no template that may be rendered; empty when it is."""
    if not has_template(text):
        return []
    exists = _what_exists(allowed, functions)
    try:
        parts = _parse(text)
    except _ExpressionError as refusal:
        return [
            Problem(
                code="bad_template", field=field, value=text, message=str(refusal), allowed=exists
            )
        ]
    problems = []
    for part in parts:
        if isinstance(part, str):
            continue
        name, known = part.name, functions if part.calls else allowed
        if name in known:
            if name in dates.DATE_NAMES:
                problems += _date_problems(part, field=field, text=text)
            continue
        problems.append(
            Problem(
                code="bad_template",
                field=field,
                value=text,
                message=_why_unknown(part, allowed=allowed, functions=functions),
                allowed=exists,
                hint=_AIRFLOWS.get(name) or did_you_mean(name, known),
            )
        )
    return problems


def references(text: str) -> Sequence[Reference]:
    """Names and calls in a template; empty for one that does not parse."""
    if not has_template(text):
        return ()
    try:
        return tuple(part for part in _parse(text) if not isinstance(part, str))
    except _ExpressionError:
        return ()


def render(
    text: str,
    variables: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]] | None = None,
    *,
    field: str = "",
) -> str:
    """Return the text with its expressions replaced; raises `InputError` for what is undefined.

    Values become text as `str` does it; lists become their items with commas between.
    """
    if not has_template(text):
        return text
    functions = functions or {}
    problems = check_template(text, field=field, allowed=variables, functions=functions)
    if problems:
        raise InputError(problems=problems)
    try:
        return "".join(
            part if isinstance(part, str) else _as_text(_value(part, variables, functions))
            for part in _parse(text)
        )
    except _ExpressionError as refusal:
        raise InputError.of(
            code="bad_template", field=field, value=text, message=str(refusal)
        ) from refusal


# --- reading ------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment

    # Comments have no business here, and `${#array[@]}` is everyday shell.
    return Environment(  # noqa: S701 - nothing is compiled, nothing is HTML
        keep_trailing_newline=True,
        comment_start_string="\0{#",
        comment_end_string="#}\0",
    )


@lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[Part, ...]:
    from jinja2 import TemplateSyntaxError

    if len(text) > MAX_LENGTH:
        raise _ExpressionError(f"a template has at most {MAX_LENGTH} characters")
    try:
        tree = _environment().parse(text)
    except TemplateSyntaxError as error:
        raise _ExpressionError(f"is no template: {error.message}") from error
    except RecursionError as error:
        raise _ExpressionError("is no template: nested too deeply") from error
    return tuple(_parts(tree))


def _parts(tree: nodes.Template) -> Iterator[Part]:
    from jinja2 import nodes

    for statement in tree.body:
        if not isinstance(statement, nodes.Output):
            raise _ExpressionError(
                "blocks such as {% if %} and {% set %} do not exist here, only {{ }}"
            )
        for node in statement.nodes:
            if isinstance(node, nodes.TemplateData):
                yield str(node.data)
            else:
                yield _expression(node)


def _expression(node: nodes.Node) -> Part:
    from jinja2 import nodes

    if isinstance(node, nodes.Const) and isinstance(node.value, str):
        return node.value
    path: list[str | int] = []
    while isinstance(node, nodes.Getattr | nodes.Getitem):
        key = node.attr if isinstance(node, nodes.Getattr) else _subscript(node.arg)
        path.insert(0, _public(key) if isinstance(key, str) else key)
        node = node.node
    if isinstance(node, nodes.Name):
        return Reference(name=_public(node.name), path=tuple(path))
    if not isinstance(node, nodes.Call):
        raise _ExpressionError(f"{_spoken(node)} cannot be used here")
    called = node.node
    if isinstance(called, nodes.Name):
        return Reference(name=called.name, path=tuple(path), args=_arguments(node))
    if not isinstance(called, nodes.Getattr):
        raise _ExpressionError("only functions and methods of dates can be called here")
    if path:
        raise _ExpressionError("nothing can be taken from the answer of a method")
    if not isinstance(called.node, nodes.Name) or called.node.name not in dates.DATE_NAMES:
        raise _ExpressionError(f"'{called.attr}' cannot be called: only dates have methods here")
    return Reference(name=called.node.name, method=_public(called.attr), args=_arguments(node))


def _public(name: str) -> str:
    if name.startswith("_"):
        raise _ExpressionError(f"'{name}' is private")
    return name


def _arguments(call: nodes.Call) -> tuple[Constant, ...]:
    from jinja2 import nodes

    values = [arg.value for arg in call.args if isinstance(arg, nodes.Const)]
    constants = [value for value in values if isinstance(value, str | int | float | bool)]
    if call.kwargs or call.dyn_args or call.dyn_kwargs or len(constants) < len(call.args):
        raise _ExpressionError("a call takes constant arguments only, without names")
    return tuple(constants)


def _date_problems(part: Reference, *, field: str, text: str) -> list[Problem]:
    """Return why a date cannot be asked this; empty when it can."""
    allowed = [*dates.PARTS, *(shown for shown, _, _ in dates.METHODS.values())]
    message = hint = ""
    if part.path:
        key = part.path[0]
        if key in dates.METHODS:
            shown = dates.METHODS[str(key)][0]
            message, hint = f"'{key}' is a method: call it", f"{part.name}.{shown}"
        elif len(part.path) > 1 or key not in dates.PARTS:
            wrong = str(part.path[-1] if key in dates.PARTS else key)
            message, hint = f"a date has no '{wrong}' here", did_you_mean(wrong, dates.PARTS)
    elif part.method:
        args = part.args or ()
        shown, count, _ = dates.METHODS.get(part.method, ("", 0, None))
        if not shown:
            message = f"a date has no method '{part.method}' here"
            hint = did_you_mean(part.method, dates.METHODS)
        elif len(args) != count or not all(isinstance(arg, str) for arg in args):
            message = f"call it as {shown}"
        elif args:
            message = dates.format_problem(str(args[0]))
    if not message:
        return []
    return [
        Problem(
            code="bad_template",
            field=field,
            value=text,
            message=message,
            allowed=allowed,
            hint=hint,
        )
    ]


def _subscript(node: nodes.Node) -> str | int:
    from jinja2 import nodes

    sign = -1 if isinstance(node, nodes.Neg) else 1
    constant = node.node if isinstance(node, nodes.Neg) else node
    value = constant.value if isinstance(constant, nodes.Const) else None
    if type(value) is int:
        return sign * value
    if isinstance(value, str) and sign == 1:
        return value
    raise _ExpressionError("a subscript must be a constant text or whole number")


def _spoken(node: nodes.Node) -> str:
    from jinja2 import nodes

    if isinstance(node, nodes.BinExpr | nodes.UnaryExpr):
        return f"'{node.operator}'" if node.operator in ("and", "or", "not") else "arithmetic"
    return _SPOKEN.get(type(node).__name__, "this expression")


_SPOKEN = {
    "Filter": "filters",
    "Test": "tests",
    "CondExpr": "conditions",
    "Compare": "comparisons",
    "List": "lists",
    "Dict": "dictionaries",
    "Tuple": "tuples",
    "Const": "constants other than text",
    "Concat": "'~'",
}


# --- rendering ----------------------------------------------------------------------------------


def _value(
    part: Reference, variables: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]
) -> Any:
    shown = f"{part.name}(...)" if part.calls else part.name
    try:
        if part.name in dates.DATE_NAMES and (part.path or part.method):
            return _of_date(part, variables[part.name])
        value = functions[part.name](*part.args or ()) if part.calls else variables[part.name]
    except (TypeError, LookupError, ValueError) as error:
        raise _ExpressionError(f"{part.name}: {error}") from error
    for key in part.path:
        value = _inside(value, key, shown)
        shown += f".{key}" if isinstance(key, str) else f"[{key}]"
    return value


def _of_date(part: Reference, value: Any) -> Any:
    if not value:
        raise _ExpressionError(
            f"{part.name} has no value in this run: one triggered by hand or by an asset has no dates"
        )
    if part.method:
        return dates.call_method(str(value), part.method, part.args or ())
    return dates.part(str(value), str(part.path[0]))


def _inside(value: Any, key: str | int, shown: str) -> Any:
    if isinstance(value, Mapping):
        if key in value:
            return value[key]
        known = ", ".join(sorted(str(name) for name in value)) or "nothing"
        raise _ExpressionError(f"{shown} has no '{key}', it has {known}")
    if isinstance(key, int) and isinstance(value, list | tuple):
        if -len(value) <= key < len(value):
            return value[key]
        raise _ExpressionError(f"{shown} has {len(value)} items, none is [{key}]")
    raise _ExpressionError(f"{shown} has no '{key}'")


def _as_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


# --- speaking -----------------------------------------------------------------------------------


_AIRFLOWS = {
    "ds": "{{ logical_date.date() }}",
    "ds_nodash": "{{ logical_date.strftime('%Y%m%d') }}",
    "ts": "{{ logical_date }}",
    "ts_nodash": "{{ logical_date.strftime('%Y%m%dT%H%M%S') }}",
}
"""What people used to Airflow's templates type, and what there is instead."""


def _what_exists(allowed: Collection[str], functions: Collection[str]) -> list[str]:
    shown = {"address": "address('role', 0)", "addresses": "addresses('role')"}
    names = ["params.*" if name == "params" else name for name in allowed]
    return names + [shown.get(name, f"{name}(...)") for name in functions]


def _why_unknown(part: Reference, *, allowed: Collection[str], functions: Collection[str]) -> str:
    name = part.name
    if part.calls:
        return f"'{name}' cannot be called" if name in allowed else f"no function '{name}' exists"
    return f"'{name}' is a function: call it" if name in functions else f"no name '{name}' exists"
