"""Docstrings of public names say what a name is for, and do not only repeat that something is returned."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("airflow_training", "frameworks", "operators", "sensors")
EMPTY_WORDS = re.compile(r"Return (what|it|them)\b")


def modules() -> Iterator[Path]:
    """All modules of the product; packages of npm are left out, they are many."""
    for folder in FOLDERS:
        for parent, folders, files in os.walk(ROOT / folder):
            folders[:] = sorted(set(folders) - {"node_modules", "__pycache__"})
            yield from (Path(parent, name) for name in sorted(files) if name.endswith(".py"))


def public_names(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Qualified name and docstring of each public class and function below `node`."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if child.name.startswith("_") and not child.name.endswith("__"):
            continue
        yield prefix + child.name, ast.get_docstring(child) or ""
        yield from public_names(child, f"{prefix}{child.name}.")


def test_docstrings_say_what_a_name_is_for():
    empty = [
        f"{path.relative_to(ROOT)}: {name}: {docstring.splitlines()[0]}"
        for path in modules()
        if EMPTY_WORDS.search(source := path.read_text(encoding="utf-8"))
        for name, docstring in public_names(ast.parse(source))
        if EMPTY_WORDS.match(docstring)
    ]
    assert not empty, "\n".join(empty)
