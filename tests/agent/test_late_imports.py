"""What an agent imports late is there when it starts: its archive may be deleted meanwhile."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import airflow_training
from airflow_training.agent import main

PACKAGE = "airflow_training.agent"
FOLDER = Path(airflow_training.__file__).parent / "agent"


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules of the agent that are imported anywhere below a node."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{each.name}" for each in node.names] + [str(node.module)]
        else:
            continue
        for name in names:
            module = name.removeprefix(f"{PACKAGE}.")
            if (FOLDER / f"{module}.py").is_file():
                yield module


def early_and_late(module: str) -> tuple[set[str], set[str]]:
    """Return what a module imports with itself, and what its functions import."""
    tree = ast.parse((FOLDER / f"{module}.py").read_text())
    early = {
        name
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in imported(node)
    }
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return early, {name for each in functions for name in imported(each)}


def loaded_with(*modules: str) -> set[str]:
    """Return these modules and all that are imported with them."""
    found: set[str] = set()
    wanted = set(modules)
    while wanted - found:
        module = (wanted - found).pop()
        found.add(module)
        wanted |= early_and_late(module)[0]
    return found


def test_all_that_an_agent_imports_late_is_loaded_when_it_starts():
    tree = ast.parse(Path(main.__file__).read_text())
    named = next(
        set(imported(node))
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == "_import_what_may_be_needed"
    )
    loaded = loaded_with("main", *named)
    late = {name for each in loaded - {"main"} for name in early_and_late(each)[1]}
    assert named <= late, "nothing is loaded for nobody"
    assert late <= loaded
