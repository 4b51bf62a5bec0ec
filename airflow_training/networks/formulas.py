"""The small language in which the catalogue says shapes, checks and counts: Python's arithmetic, and nothing else.

Types may come from others, so a formula reaches no attribute, no builtin and no import.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from types import CodeType
from typing import Any

from airflow_training.networks.shapes import SHAPE_FUNCTIONS

__all__ = ["FUNCTIONS", "INSERTED", "evaluate", "forbidden_in"]

INSERTED = re.compile(r"\{(.+?)\}")
"""A formula in a message, whose value stands there."""

_ALLOWED = (
    ast.Expression, ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop,
    ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Constant, ast.Name,
    ast.List, ast.Starred, ast.Subscript, ast.Slice, ast.Call,
)  # fmt: skip
FUNCTIONS = {**SHAPE_FUNCTIONS, "all": all, "len": len, "max": max, "min": min, "sum": sum}


def evaluate(formula: str, names: Mapping[str, Any]) -> Any:
    """Return the value of a formula; raises ShapeError where a function of it does."""
    return eval(_compiled(formula), {"__builtins__": {}, **FUNCTIONS, **names})  # noqa: S307 - only what `_ALLOWED` lists


def forbidden_in(formula: str) -> str:
    """The first construct that a formula may not hold; empty where it is good."""
    try:
        tree = ast.parse(formula, mode="eval")
    except SyntaxError as error:
        return f"is no expression: {error.msg}"
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED) or isinstance(node, ast.Pow):
            return f"may not use {type(node).__name__}"
        if isinstance(node, ast.Call) and not (
            isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
        ):
            return (
                f"calls {ast.unparse(node.func)}, which is none of {', '.join(sorted(FUNCTIONS))}"
            )
    return ""


@cache
def _compiled(formula: str) -> CodeType:
    if reason := forbidden_in(formula):
        raise ValueError(f"{formula!r} {reason}")
    return compile(formula, "<formula>", "eval")
