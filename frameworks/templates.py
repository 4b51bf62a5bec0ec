"""Templates inside framework documents: a small, bounded part of Jinja over addresses and counts.

Every construct is checked by syntax tree before anything is rendered, so that a fetched document
can loop over the instances of a job but cannot reach Python, the disk, an endless loop or all memory.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from airflow_training.documents.templates import MAX_LENGTH

__all__ = [
    "RUN_NAMES",
    "STATIC_NAMES",
    "FrameworkTemplateError",
    "as_template",
    "check_expression",
    "check_static_template",
    "check_template",
    "holds",
    "parameters_read",
    "render",
    "why_refused",
]

STATIC_NAMES = frozenset(
    {
        "chief",
        "elastic",
        "files_dir",
        "parameters",
        "replicas",
        "role",
        "roles",
        "runs_here",
        "runtime",
        "total_replicas",
    }
)
"""Known before a run: what `when` and `commandPrefix` may use. `replicas` are those of the document."""
RUN_NAMES = STATIC_NAMES | frozenset(
    {
        "address",
        "addresses",
        "attempt",
        "cpus",
        "gpus",
        "host",
        "hosts",
        "index",
        "indexes",
        "instance_dir",
        "instances",
        "job",
        "job_attempt",
        "live",
        "max_instances",
        "min_instances",
        "name",
        "namespace",
        "port",
        "rank",
        "run",
        "world_size",
    }
)
"""Known when an instance is rendered: what `env`, `files` and `path` may use."""

_LISTS = frozenset({"addresses", "hosts", "indexes", "live"})
_FUNCTIONS = _LISTS | frozenset({"address", "host", "name", "port"})
"""What can be called; a loop goes over `roles` or what a function of `_LISTS` returns."""
_ALLOWED_NODES = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.Name,
    nodes.Const,
    nodes.Getattr,
    nodes.Getitem,
    nodes.Call,
    nodes.Filter,
    nodes.For,
    nodes.If,
    nodes.CondExpr,
    nodes.Compare,
    nodes.Operand,
    nodes.And,
    nodes.Or,
    nodes.Not,
    nodes.Add,
    nodes.Sub,
    nodes.Mul,
    nodes.FloorDiv,
    nodes.Neg,
    nodes.Concat,
    nodes.List,
    nodes.Tuple,
    nodes.Dict,
    nodes.Pair,
)
_FILTERS = frozenset({"join", "json", "length", "max", "min"})
_MAX_LOOP_DEPTH = 2
_MAX_RENDERED = 16 * 1024 * 1024


class FrameworkTemplateError(Exception):
    """A template that is not allowed, not valid, or cannot be rendered."""


class _Environment(ImmutableSandboxedEnvironment):
    """Nothing has attributes but a loop: dots reach keys of mappings and positions of lists."""

    intercepted_binops = frozenset({"*"})

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, LoopContext):
            return super().getattr(obj, argument)
        if isinstance(obj, Mapping | list | tuple):
            with contextlib.suppress(LookupError, TypeError):
                return obj[argument]
        return self.undefined(obj=obj, name=argument)

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self.getitem(obj, attribute)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        # `"x" * 10**9` would fill the memory: only numbers multiply
        if not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise SecurityError("only numbers can be multiplied")
        return super().call_binop(context, operator, left, right)


def _compact_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=False)


@lru_cache(maxsize=1)
def _environment() -> _Environment:
    environment = _Environment(
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["json"] = _compact_json
    return environment


def _loaded_names(tree: nodes.Template) -> set[str]:
    """Return the names a template reads and does not make itself (in a loop)."""
    used = list(tree.find_all(nodes.Name))
    made = {name.name for name in used if name.ctx == "store"}
    return {name.name for name in used if name.ctx == "load"} - made


def _depth(node: nodes.Node) -> int:
    deepest = max((_depth(child) for child in node.iter_child_nodes()), default=0)
    return deepest + isinstance(node, nodes.For)


def check_template(source: str, *, names: frozenset[str] = RUN_NAMES) -> None:
    """Raise FrameworkTemplateError unless `source` uses only what framework templates may use."""
    if len(source) > MAX_LENGTH:
        raise FrameworkTemplateError(f"a template has at most {MAX_LENGTH} characters")
    try:
        tree = _environment().parse(source)
        for node in tree.find_all(nodes.Node):
            if problem := _refused(node):
                raise FrameworkTemplateError(problem)
    except TemplateSyntaxError as error:
        raise FrameworkTemplateError(str(error.message)) from None
    except RecursionError as error:
        raise FrameworkTemplateError("nested too deeply") from error
    if _depth(tree) > _MAX_LOOP_DEPTH:
        raise FrameworkTemplateError(f"loops may be nested {_MAX_LOOP_DEPTH} deep")
    unknown = _loaded_names(tree) - names - {"loop"}
    if unknown:
        raise FrameworkTemplateError(
            f"nothing is called '{sorted(unknown)[0]}' here; there are: {', '.join(sorted(names))}"
        )


def _refused(node: nodes.Node) -> str:
    """Return what is wrong with one node of a syntax tree, seen by itself; empty when nothing."""
    if not isinstance(node, _ALLOWED_NODES):
        return f"{type(node).__name__} is not allowed in a framework template"
    if isinstance(node, nodes.Filter) and node.name not in _FILTERS:
        return f"no filter '{node.name}' here; there are: {', '.join(sorted(_FILTERS))}"
    if isinstance(node, nodes.Getattr) and node.attr.startswith("_"):
        return f"'{node.attr}' is private"
    if isinstance(node, nodes.Call) and _called(node) not in _FUNCTIONS:
        return f"only these can be called: {', '.join(sorted(_FUNCTIONS))}"
    if isinstance(node, nodes.For):
        over = node.iter.name if isinstance(node.iter, nodes.Name) else _called(node.iter)
        if node.recursive or over not in _LISTS | {"roles"}:
            lists = ", ".join(f"{name}(role)" for name in sorted(_LISTS))
            return f"a loop goes over one of these: roles, {lists}"
    return ""


def _called(node: nodes.Node) -> str:
    """Return the name of the function that a call calls; empty where it is no such call."""
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name):
        return node.node.name
    return ""


def check_expression(source: str) -> None:
    """Raise FrameworkTemplateError unless `source` is a `when` condition."""
    check_template(as_template(source), names=STATIC_NAMES)


def check_static_template(source: str) -> None:
    """Raise FrameworkTemplateError unless `source` is a template over what is known before a run."""
    check_template(source, names=STATIC_NAMES)


def as_template(condition: str) -> str:
    """Return the template that a condition stands for."""
    return "{{ (" + condition + ") }}"


def parameters_read(source: str) -> set[str]:
    """Return the names that a valid template reads from `parameters`."""
    tree = _environment().parse(source)
    return {
        node.attr
        for node in tree.find_all(nodes.Getattr)
        if isinstance(node.node, nodes.Name) and node.node.name == "parameters"
    }


def why_refused(check: Callable[[str], None], source: str) -> str:
    """The objection of one of the checks above to `source`; empty without one."""
    try:
        check(source)
    except FrameworkTemplateError as error:
        return str(error)
    return ""


@lru_cache(maxsize=2048)
def _compiled(source: str) -> Callable[[Mapping[str, Any]], Iterator[str]]:
    check_template(source)
    return _environment().from_string(source).generate


def render(source: str, context: Mapping[str, Any]) -> str:
    """Return `source` rendered once; raises FrameworkTemplateError."""
    if "{" not in source:
        return source
    pieces, length = [], 0
    try:
        for piece in _compiled(source)(context):
            pieces.append(piece)
            length += len(piece)
            if length > _MAX_RENDERED:
                raise FrameworkTemplateError(f"becomes more than {_MAX_RENDERED} characters")
        return "".join(pieces)
    except TemplateError as error:
        raise FrameworkTemplateError(str(error.message or error)) from error
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError) as error:
        raise FrameworkTemplateError(f"{type(error).__name__}: {error}") from error


@lru_cache(maxsize=512)
def _condition(source: str) -> Callable[..., Any]:
    check_expression(source)
    return _environment().compile_expression(source, undefined_to_none=False)


def holds(condition: str, context: Mapping[str, Any]) -> bool:
    """Return whether a `when` condition is true; an empty one is."""
    if not condition:
        return True
    try:
        return bool(_condition(condition)(context))
    except (TemplateError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise FrameworkTemplateError(str(error)) from error
