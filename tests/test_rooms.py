"""Which room may import which: one table for the whole project, checked in the source."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "airflow_training"
NAME = PACKAGE.name

# A room may import itself and the rooms of the lines above its own.
LINES: tuple[tuple[str, ...], ...] = (
    ("errors", "settings"),
    ("spec",),
    ("frameworks",),
    ("planning", "control"),
    ("state", "runtimes", "checkpoints", "logs", "agent"),
    ("supervise",),
    ("triggers", "operators", "sensors", "compiler", "capture"),
    ("web", "cli"),
    ("preload", "listener"),
    ("plugin", "provider"),
)
TOGETHER = frozenset({"triggers", "operators", "sensors", "compiler", "capture"})
"""The shells around Airflow build on each other; they are one layer."""

MAY_ALSO = frozenset({("runtimes", "agent"), ("checkpoints", "agent")})
"""The local runtime reads the files that its agents write; checkpoints report progress as scripts do."""

FORBIDDEN: dict[str, tuple[str, ...]] = {
    "spec": ("airflow", "kubernetes", "sqlalchemy"),
    "frameworks": ("airflow", "kubernetes", "sqlalchemy"),
    "planning": ("airflow", "kubernetes", "sqlalchemy"),
    "control": ("airflow", "kubernetes", "sqlalchemy"),
    "state": ("airflow", "kubernetes"),
    "runtimes": ("airflow", "sqlalchemy"),
    "supervise": ("airflow", "kubernetes", "sqlalchemy"),
    "cli": ("airflow", "kubernetes", "sqlalchemy"),
}
"""Distributions that a room never imports, not even inside a function."""

CLOCKS = ("time", "random", "logging")
"""A pure room is told the time and returns what it has to say."""

EXEMPT = {"__init__", "__main__", "examples"}
"""The package's lazy front door, and examples that only use what users use."""


def modules() -> list[Path]:
    """Return every module of the package, those behind the symlinked folders too."""
    found: list[Path] = []
    folders = [PACKAGE]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            if path.is_dir():
                folders.append(path)
            elif path.suffix == ".py":
                found.append(path)
    return sorted(found)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of everything a module imports, at any depth, types too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: relative import"
            module = node.module or ""
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def place(room: str) -> int | None:
    return next((number for number, line in enumerate(LINES) if room in line), None)


def allowed(room: str, other: str) -> bool:
    """Return whether the arrow from `room` to `other` is in the table."""
    if room == other:
        return True
    if room in TOGETHER and other in TOGETHER:
        return True
    if (room, other) in MAY_ALSO:
        return True
    mine, theirs = place(room), place(other)
    return mine is not None and theirs is not None and theirs < mine


MODULES = [path for path in modules() if room_of(path) not in EXEMPT]


def test_every_module_belongs_to_a_room():
    unknown = {room_of(path) for path in MODULES if place(room_of(path)) is None}
    assert unknown == set(), "a new room needs a place in the table"


def test_imports_follow_the_arrows():
    wrong = []
    for path in MODULES:
        room = room_of(path)
        for line, name in imports(path):
            parts = name.split(".")
            if parts[0] != NAME or len(parts) == 1 or parts[1].startswith("__"):
                continue
            if not allowed(room, parts[1]):
                wrong.append(f"{path.relative_to(PACKAGE.parent)}:{line}: {room} -> {parts[1]}")
    assert wrong == []


def test_folders_are_imported_by_their_package_name_only():
    """`import operators.run` would work too, as a second module."""
    wrong = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {name}"
        for path in MODULES
        for line, name in imports(path)
        if name.split(".")[0] in ("operators", "sensors", "frameworks")
    ]
    assert wrong == []


@pytest.mark.parametrize("room", sorted(FORBIDDEN))
def test_a_room_keeps_heavy_company_out(room):
    wrong = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {name}"
        for path in MODULES
        if room_of(path) == room and "kubernetes" not in path.relative_to(PACKAGE).parts[1:-1]
        for line, name in imports(path)
        if name.split(".")[0] in FORBIDDEN[room]
    ]
    assert wrong == []


@pytest.mark.parametrize("room", ["control", "planning"])
def test_a_pure_room_has_no_clock_and_no_dice(room):
    wrong = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {name}"
        for path in MODULES
        if room_of(path) == room
        for line, name in imports(path)
        if name.split(".")[0] in CLOCKS
    ]
    assert wrong == []


def test_the_agent_starts_with_nothing_but_python():
    """It is packed as one file and runs in images that know nothing of this project."""
    wrong = []
    for path in MODULES:
        if room_of(path) != "agent":
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
            top = (module or "").split(".")[0]
            if top not in sys.stdlib_module_names and not (module or "").startswith(
                f"{NAME}.agent"
            ):
                wrong.append(f"{path.relative_to(PACKAGE.parent)}:{node.lineno}: {module}")
    assert wrong == []


@pytest.mark.parametrize(
    ("room", "other", "expected"),
    [
        ("control", "spec", True),
        ("control", "errors", True),
        ("spec", "control", False),
        ("control", "planning", False),
        ("state", "runtimes", False),
        ("supervise", "triggers", False),
        ("operators", "triggers", True),
        ("cli", "operators", True),
        ("cli", "web", False),
    ],
)
def test_the_table_says_what_the_architecture_says(room, other, expected):
    assert allowed(room, other) is expected
