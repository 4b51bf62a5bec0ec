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

from airflow_training.errors import InputError, Problem
from airflow_training.spec import dates

if TYPE_CHECKING:
    from jinja2 import Environment, nodes

__all__ = [
    "USER_FUNCTIONS",
    "USER_NAMES",
    "Call",
    "Method",
    "Name",
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
_MAX_LENGTH = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """`params.lr` is `name="params", path=("lr",)`."""

    name: str
    path: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """`address('master', 0)`, and what is taken from its answer."""

    function: str
    args: tuple[str | int | float | bool, ...] = ()
    kwargs: tuple[tuple[str, str | int | float | bool], ...] = ()
    path: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """`logical_date.strftime('%Y')`: a question to a date, by the name of the date."""

    name: str
    method: str
    args: tuple[str | int | float | bool, ...] = ()


Part = str | Name | Call | Method
"""A template is plain text, names and calls, one after the other."""


class _RefusedError(Exception):
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
    except _RefusedError as refusal:
        return [
            Problem(
                code="bad_template", field=field, value=text, message=str(refusal), allowed=exists
            )
        ]
    problems = []
    for part in parts:
        if isinstance(part, str):
            continue
        called = isinstance(part, Call)
        name = part.function if isinstance(part, Call) else part.name
        if name in (functions if called else allowed):
            if name in dates.DATE_NAMES:
                problems += _date_problems(part, field=field, text=text)
            continue
        problems.append(
            Problem(
                code="bad_template",
                field=field,
                value=text,
                message=_why_unknown(name, called=called, allowed=allowed, functions=functions),
                allowed=exists,
                hint=_AIRFLOWS.get(name) or _near(name, functions if called else allowed),
            )
        )
    return problems


def references(text: str) -> Sequence[Name | Call | Method]:
    """Return the names and calls of a template; nothing for one that does not parse."""
    if not has_template(text):
        return ()
    try:
        return tuple(part for part in _parse(text) if not isinstance(part, str))
    except _RefusedError:
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
    except _RefusedError as refusal:
        problem = Problem(code="bad_template", field=field, value=text, message=str(refusal))
        raise InputError(problems=(problem,)) from refusal


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

    if len(text) > _MAX_LENGTH:
        raise _RefusedError(f"a template has at most {_MAX_LENGTH} characters")
    try:
        tree = _environment().parse(text)
    except TemplateSyntaxError as error:
        raise _RefusedError(f"is no template: {error.message}") from error
    except RecursionError as error:
        raise _RefusedError("is no template: nested too deeply") from error
    return tuple(_parts(tree))


def _parts(tree: nodes.Template) -> Iterator[Part]:
    from jinja2 import nodes

    for statement in tree.body:
        if not isinstance(statement, nodes.Output):
            raise _RefusedError(
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
    whole = node
    while isinstance(node, nodes.Getattr | nodes.Getitem):
        key = node.attr if isinstance(node, nodes.Getattr) else _subscript(node.arg)
        if isinstance(key, str) and key.startswith("_"):
            raise _RefusedError(f"'{key}' is private")
        path.insert(0, key)
        node = node.node
    if isinstance(node, nodes.Name):
        if node.name.startswith("_"):
            raise _RefusedError(f"'{node.name}' is private")
        return Name(name=node.name, path=tuple(path))
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
        if node is not whole:
            raise _RefusedError("nothing can be taken from the answer of a method")
        return _method(node, node.node)
    if isinstance(node, nodes.Call):
        return _call(node, tuple(path))
    raise _RefusedError(
        f"{_SPOKEN.get(type(node).__name__, 'this expression')} cannot be used here"
    )


def _call(node: nodes.Call, path: tuple[str | int, ...]) -> Call:
    from jinja2 import nodes

    if not isinstance(node.node, nodes.Name):
        raise _RefusedError("only functions and methods of dates can be called here")
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        raise _RefusedError("a call takes constant arguments only")
    return Call(
        function=node.node.name,
        args=tuple(_constant(arg) for arg in node.args),
        kwargs=tuple((pair.key, _constant(pair.value)) for pair in node.kwargs),
        path=path,
    )


def _method(call: nodes.Call, method: nodes.Getattr) -> Method:
    from jinja2 import nodes

    if not isinstance(method.node, nodes.Name) or method.node.name not in dates.DATE_NAMES:
        raise _RefusedError(f"'{method.attr}' cannot be called: only dates have methods here")
    if method.attr.startswith("_"):
        raise _RefusedError(f"'{method.attr}' is private")
    if call.dyn_args is not None or call.dyn_kwargs is not None or call.kwargs:
        raise _RefusedError("a method takes constant arguments only, without names")
    return Method(
        name=method.node.name,
        method=method.attr,
        args=tuple(_constant(arg) for arg in call.args),
    )


def _date_problems(part: Name | Call | Method, *, field: str, text: str) -> list[Problem]:
    """Return why a date cannot be asked this; empty when it can."""
    allowed = [*dates.PARTS, *(shown for shown, _, _ in dates.METHODS.values())]
    message = hint = ""
    if isinstance(part, Name) and part.path:
        key = part.path[0]
        if key in dates.METHODS:
            shown = dates.METHODS[str(key)][0]
            message, hint = f"'{key}' is a method: call it", f"{part.name}.{shown}"
        elif len(part.path) > 1 or key not in dates.PARTS:
            wrong = str(part.path[-1] if key in dates.PARTS else key)
            message, hint = f"a date has no '{wrong}' here", _near(wrong, dates.PARTS)
    elif isinstance(part, Method):
        shown, count, _ = dates.METHODS.get(part.method, ("", 0, None))
        if not shown:
            message = f"a date has no method '{part.method}' here"
            hint = _near(part.method, dates.METHODS)
        elif len(part.args) != count or not all(isinstance(arg, str) for arg in part.args):
            message = f"call it as {shown}"
        elif part.args:
            message = dates.format_problem(str(part.args[0]))
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

    if isinstance(node, nodes.Neg):
        inner = _constant(node.node)
        if isinstance(inner, int):
            return -inner
    elif isinstance(node, nodes.Const) and type(node.value) in (str, int):
        return node.value  # type: ignore[no-any-return] # the line above says which types
    raise _RefusedError("a subscript must be a constant text or whole number")


def _constant(node: nodes.Node) -> str | int | float | bool:
    from jinja2 import nodes

    if isinstance(node, nodes.Const) and isinstance(node.value, str | int | float | bool):
        return node.value
    raise _RefusedError("a call takes constant arguments only")


_SPOKEN = {
    "Filter": "filters",
    "Test": "tests",
    "CondExpr": "conditions",
    "Compare": "comparisons",
    "List": "lists",
    "Dict": "dictionaries",
    "Tuple": "tuples",
    "Const": "constants other than text",
    "And": "'and'",
    "Or": "'or'",
    "Not": "'not'",
    "Concat": "'~'",
    "Add": "arithmetic",
    "Sub": "arithmetic",
    "Mul": "arithmetic",
    "Div": "arithmetic",
    "FloorDiv": "arithmetic",
    "Mod": "arithmetic",
    "Pow": "arithmetic",
    "Neg": "arithmetic",
    "Pos": "arithmetic",
}


# --- rendering ----------------------------------------------------------------------------------


def _value(
    part: Name | Call | Method,
    variables: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]],
) -> Any:
    if isinstance(part, Method) or (isinstance(part, Name) and part.name in dates.DATE_NAMES):
        return _date_value(part, variables[part.name])
    if isinstance(part, Name):
        shown, value = part.name, variables[part.name]
    else:
        shown = f"{part.function}(...)"
        try:
            value = functions[part.function](*part.args, **dict(part.kwargs))
        except (TypeError, LookupError, ValueError) as error:
            raise _RefusedError(f"{part.function}: {error}") from error
    for key in part.path:
        value = _inside(value, key, shown)
        shown += f".{key}" if isinstance(key, str) else f"[{key}]"
    return value


def _date_value(part: Name | Method, value: Any) -> Any:
    if isinstance(part, Name) and not part.path:
        return value
    if not value:
        raise _RefusedError(
            f"{part.name} has no value in this run: one triggered by hand or by an asset has no dates"
        )
    try:
        if isinstance(part, Method):
            return dates.ask(str(value), part.method, part.args)
        return dates.part(str(value), str(part.path[0]))
    except ValueError as error:
        raise _RefusedError(f"{part.name}: {error}") from error


def _inside(value: Any, key: str | int, shown: str) -> Any:
    if isinstance(value, Mapping):
        if key in value:
            return value[key]
        known = ", ".join(sorted(str(name) for name in value)) or "nothing"
        raise _RefusedError(f"{shown} has no '{key}', it has {known}")
    if isinstance(key, int) and isinstance(value, list | tuple):
        if -len(value) <= key < len(value):
            return value[key]
        raise _RefusedError(f"{shown} has {len(value)} items, none is [{key}]")
    raise _RefusedError(f"{shown} has no '{key}'")


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


def _why_unknown(
    name: str, *, called: bool, allowed: Collection[str], functions: Collection[str]
) -> str:
    if called:
        return f"'{name}' cannot be called" if name in allowed else f"no function '{name}' exists"
    return f"'{name}' is a function: call it" if name in functions else f"no name '{name}' exists"


def _near(name: str, choices: Collection[str]) -> str:
    from airflow_training.spec.problems import did_you_mean

    return did_you_mean(name, choices)
