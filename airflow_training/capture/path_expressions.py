"""Paths that a script computes from constants and its own place, known without running it. Pure."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Mapping

__all__ = ["PathExpressions"]

_SAME = frozenset({"resolve", "absolute", "expanduser", "as_posix"})
"""Methods of a path that change nothing which matters here."""


class PathExpressions:
    """Evaluates what `__file__`, `Path` and `os.path` make of constants; anything else is unknown, None."""

    def __init__(self, *, file: str, working_dir: str, assigned: Mapping[str, ast.expr]) -> None:
        """`assigned` are the module's own names, so that `ROOT = Path(__file__).parent` can be followed."""
        self.file = file
        self.working_dir = working_dir
        self.assigned = assigned
        self._open: set[str] = set()

    def value(self, node: ast.expr) -> str | None:
        """The text or path that an expression means."""
        match node:
            case ast.Constant(value=str() as text):
                return text
            case ast.Name(id=name):
                return self._name(name)
            case ast.JoinedStr(values=parts):
                return self._joined("", parts)
            case ast.FormattedValue(value=inner, conversion=-1, format_spec=None):
                return self.value(inner)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._joined("/", [left, right])
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._joined("", [left, right])
            case ast.Attribute(value=inner, attr="parent"):
                return self._parent(inner, 1)
            case ast.Attribute(
                value=ast.Attribute(value=ast.Name(id="os"), attr="path"), attr="sep"
            ):
                return "/"
            case ast.Attribute(value=ast.Name(id="os"), attr="pardir"):
                return ".."
            case ast.Subscript(
                value=ast.Attribute(value=inner, attr="parents"),
                slice=ast.Constant(value=int() as number),
            ):
                return self._parent(inner, number + 1)
            case ast.Call(func=function, args=arguments):
                return self._call(function, arguments)
        return None

    def _name(self, name: str) -> str | None:
        if name == "__file__":
            return self.file
        if name not in self.assigned or name in self._open:
            return None
        self._open.add(name)
        try:
            return self.value(self.assigned[name])
        finally:
            self._open.discard(name)

    def _joined(self, separator: str, parts: list[ast.expr]) -> str | None:
        values = [self.value(part) for part in parts]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        return posixpath.join(*known) if separator and known else "".join(known)

    def _parent(self, inner: ast.expr, times: int) -> str | None:
        path = self.value(inner)
        if path is None:
            return None
        path = posixpath.join(self.working_dir, path)
        for _ in range(times):
            path = posixpath.dirname(path)
        return path

    def _call(self, function: ast.expr, arguments: list[ast.expr]) -> str | None:
        match function:
            case ast.Name(id="Path" | "PurePath" | "str") | ast.Attribute(attr="Path" | "fspath"):
                return self._joined("/", arguments) if arguments else "."
            case ast.Attribute(attr="getcwd" | "cwd"):
                return self.working_dir
            case ast.Attribute(attr="dirname") if len(arguments) == 1:
                path = self.value(arguments[0])
                return None if path is None else posixpath.dirname(path)
            case ast.Attribute(attr="abspath" | "realpath" | "normpath") if arguments:
                path = self.value(arguments[0])
                if path is None:
                    return None
                return posixpath.normpath(posixpath.join(self.working_dir, path))
            case ast.Attribute(value=ast.Attribute(attr="path"), attr="join"):
                return self._joined("/", arguments)
            case ast.Attribute(value=inner, attr="joinpath"):
                return self._joined("/", [inner, *arguments])
            case ast.Attribute(value=inner, attr=method) if method in _SAME:
                return self.value(inner)
        return None
