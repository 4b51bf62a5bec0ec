"""One change of a function's syntax tree: it does not care how the code is laid out, or what else is in the file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

__all__ = ["change", "change_file", "definitions"]


def change_file(name: str, source: str, definition: str, old: str, new: str) -> str:
    """Return a file with `old` changed in exactly one place: a module by `change`, any other as text.

    Raises ValueError where `old` is not in exactly one place.
    """
    if name.endswith(".py"):
        return change(source, definition, old, new)
    places = source.count(old)
    if places != 1:
        raise ValueError(f"{name}: {old!r} is there {places} times, not once")
    return source.replace(old, new)


def change(source: str, definition: str, old: str, new: str) -> str:
    """Return a module in which `old` became `new` in one function or class, by its qualified name.

    Both are an expression, or statements; no statement at all leaves `old` out. An empty
    `definition` is the whole module. Raises ValueError where `old` is not in exactly one place.
    """
    tree = ast.parse(source)
    scopes = dict(definitions(tree)) | {"": tree}
    if definition not in scopes:
        raise ValueError(f"there is no {definition}")
    gone, come = ast.parse(old).body, ast.parse(new).body
    if (
        len(gone) == len(come) == 1
        and isinstance(gone[0], ast.Expr)
        and isinstance(come[0], ast.Expr)
    ):
        places = _change_expressions(scopes[definition], gone[0].value, come[0].value)
    else:
        places = _change_statements(scopes[definition], gone, come)
    if places != 1:
        raise ValueError(f"{definition}: {old!r} is there {places} times, not once")
    return ast.unparse(ast.fix_missing_locations(tree))


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield qualified name and node of every function and class."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name, node
            yield from definitions(node, f"{prefix}{node.name}.")
        else:
            yield from definitions(node, prefix)


def _change_expressions(scope: ast.AST, old: ast.expr, new: ast.expr) -> int:
    places = 0
    for node in list(ast.walk(scope)):
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                found = [i for i, each in enumerate(value) if _same(each, old)]
                for i in found:
                    value[i] = new
                places += len(found)
            elif _same(value, old):
                setattr(node, name, new)
                places += 1
    return places


def _change_statements(scope: ast.AST, old: list[ast.stmt], new: list[ast.stmt]) -> int:
    places = 0
    for node in list(ast.walk(scope)):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            for i in range(len(block) - len(old), -1, -1):
                if all(map(_same, block[i : i + len(old)], old)):
                    block[i : i + len(old)] = new
                    places += 1
            if name == "body" and not block:
                block.append(ast.Pass())
    return places


def _same(one: object, other: ast.AST) -> bool:
    return (
        isinstance(one, ast.AST) and type(one) is type(other) and ast.dump(one) == ast.dump(other)
    )
