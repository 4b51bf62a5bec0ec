"""Nothing outside a runtime's own folder knows which runtime it is, or what its engine's reasons mean."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from airflow_training.builtin_runtimes import runtime_names
from airflow_training.control.reason_facts import OWN_REASONS
from airflow_training.runtimes.registry import every_reason
from tests.test_rooms import NAME, PACKAGE, imports, modules

FOLDERS = {each.parent for each in (PACKAGE / "runtimes").glob("*/adapter.py")}
WORDS = {*runtime_names()} | (every_reason().keys() - OWN_REASONS.keys())
"""What would be a leak. `memory`, the simulation, is a word of resources too, and is left out."""

ALLOWED = {
    "agent": "gives these reasons; its room stands on the adapters' side of the port",
    "planning/sources/kubernetes_nodes.py": "reads nodes as documents, from files too",
    "preload.py": "imports before a fork what local instances need",
    "builtin_runtimes.py": "the one table of the runtimes that come with us",
    "runtimes/agent_reasons.py": "what the reasons of our own agent say",
    "runtimes/memory.py": "an adapter of one file: it plays what engines say",
    "triggers/access.py": "only Airflow's hook reads its connections, and runtimes import no Airflow",
}
"""Module or folder -> why it may."""


def outside() -> Iterator[tuple[str, Path]]:
    """Yield all modules that may know no runtime."""
    for path in modules():
        name = path.relative_to(PACKAGE)
        if FOLDERS.isdisjoint(path.parents) and ALLOWED.keys().isdisjoint(
            map(Path.as_posix, (name, *name.parents))
        ):
            yield name.as_posix(), path


def leaks(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that name a runtime or an engine's reason; sentences for people are none."""
    tree = ast.parse(source)
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in WORDS and id(node) not in said:
            yield node.lineno, repr(node.value)


def test_no_runtime_and_no_reason_of_an_engine_is_named_elsewhere():
    found = [
        f"{name}:{line}: {what}"
        for name, path in outside()
        for line, what in leaks(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_nobody_else_imports_from_the_folder_of_a_runtime():
    inside = tuple(f"{NAME}.runtimes.{folder.name}" for folder in FOLDERS)
    found = [
        f"{name}:{line}: {module}"
        for name, path in outside()
        for line, module in imports(path)
        if module.startswith(inside)
    ]
    assert found == []


def test_leaks_would_be_found():
    assert {folder.name for folder in FOLDERS} == {*runtime_names()}
    source = """'''On kubernetes.'''\nif job.runtime == "kubernetes" and why in ("Evicted",): ..."""
    assert list(leaks(source)) == [(2, "'kubernetes'"), (2, "'Evicted'")]


def test_every_exception_is_needed():
    assert all((PACKAGE / name).exists() for name in ALLOWED)
