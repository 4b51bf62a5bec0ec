"""Nothing outside a runtime's own folder knows which runtime it is, what its engine's reasons mean, or its gangs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from airflow_training.builtin_runtimes import HERE, OURS, gang_kinds
from airflow_training.control.reason_facts import OWN_REASONS
from airflow_training.runtimes.registry import every_reason
from tests.test_rooms import NAME, PACKAGE, imports, modules

FOLDERS = {each.parent for each in (PACKAGE / "runtimes").glob("*/adapter.py")}
REASONS = every_reason().keys() - OWN_REASONS.keys()
NAMES = {*OURS, *gang_kinds()} - {HERE, "none"}
"""Of runtimes and kinds of gangs. That of this machine is an everyday word and `memory`, the simulation, one
of resources: the first counts as a whole text or beside the word runtime, the second does not."""


def _any_of(words: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))


# kubernetes.io is the domain of labels that any cluster has, and names no runtime
IN_TEXTS = re.compile(
    rf"(?<![A-Za-z])(?:(?:(?i:{_any_of(NAMES)}))(?!\.io\b)|{_any_of(REASONS)})(?![A-Za-z])"
    rf"|^{HERE}$|\b{HERE} runtime\b|\bruntime\W+{HERE}\b"
)
"""The words inside a text, between what is no letter."""
ANYWHERE = [word.lower() for word in (HERE, *NAMES, *REASONS)]
"""What most modules have nothing of, and need no closer look then."""
IN_IDENTIFIERS = re.compile(_any_of(NAMES), re.IGNORECASE)
IN_FRAMEWORKS = re.compile(rf"\b(?:{_any_of({*OURS, *NAMES})}|runtime|templateFor)\b")
"""Of its facts only, never by its name, do ours ask a runtime."""

ALLOWED = {
    "agent": "gives these reasons; its room stands on the adapters' side of the port",
    "builtin_runtimes.py": "the one table of the runtimes that come with us",
    "cloud/__init__.py": "a mode of scripts has an everyday word for its name",
    "documents/podmodel/generate.py": "reads what a pod is from the library of that name",
    "interchange": "reads the documents of other systems, which name their engines",
    "planning/sources/kubernetes_nodes.py": "reads nodes as documents, from files too",
    "preload.py": "imports before a fork what instances on this machine need",
    "runtimes/folders": "reads the files of our own agent, and with them its reasons",
    "runtimes/agent_reasons.py": "what the reasons of our own agent say",
    "runtimes/simulation.py": "it plays what engines say",
    "settings.py": "options of ours are called after our runtimes in the files of administrators",
    "state/migrations/versions/0009_gangs_of_fixed_size.py": "what stores of before mean",
    "triggers/access.py": "only Airflow's hook reads its connections, and runtimes import no Airflow",
}
"""Module or folder -> why it may."""


def exceptions(path: Path) -> set[str]:
    """Return the rows of ALLOWED by which a module may."""
    name = path.relative_to(PACKAGE)
    return ALLOWED.keys() & set(map(Path.as_posix, (name, *name.parents)))


def outside() -> Iterator[tuple[str, Path]]:
    """Yield all modules that may know no runtime."""
    for path in modules():
        if FOLDERS.isdisjoint(path.parents) and not exceptions(path):
            yield path.relative_to(PACKAGE).as_posix(), path


def leaks(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that name a runtime, a gang or an engine's reason; docstrings and comments may."""
    lowered = source.lower()
    if not any(word in lowered for word in ANYWHERE):
        return
    tree = ast.parse(source)
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        # the pieces of an f-string are constants too
        text = node.value if isinstance(node, ast.Constant) and id(node) not in said else None
        if isinstance(text, str) and IN_TEXTS.search(text):
            yield getattr(node, "lineno", 0), repr(text)
        for name in identifiers(node):
            if IN_IDENTIFIERS.search(name):
                yield getattr(node, "lineno", 0), name


def identifiers(node: ast.AST) -> Iterator[str]:
    """Yield what a node calls by a name; from which module it has it is the rooms' matter."""
    for field in ("id", "arg", "attr", "name", "asname"):
        name = getattr(node, field, None)
        if isinstance(name, str):
            yield name


def framework_leaks(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a framework that depend on which runtime it is; comments may."""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.lstrip().startswith("#") and IN_FRAMEWORKS.search(line):
            yield number, line.strip()


def test_no_runtime_and_no_reason_of_an_engine_is_named_elsewhere():
    found = [
        f"{name}:{line}: {what}"
        for name, path in outside()
        for line, what in leaks(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_no_module_is_called_after_a_runtime():
    assert [name for name, _ in outside() if IN_IDENTIFIERS.search(name)] == []


def test_no_framework_of_ours_names_a_runtime():
    found = [
        f"{path.name}:{number}: {line}"
        for path in sorted((PACKAGE / "frameworks").glob("*.yaml"))
        for number, line in framework_leaks(path.read_text(encoding="utf-8"))
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
    assert {folder.name for folder in FOLDERS} == {*OURS}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("'''On kubernetes.'''  # kubernetes", []),
        ("job.runtime == 'kubernetes' and why in ('Evicted',)", ["'kubernetes'", "'Evicted'"]),
        ("job.runtime in ('local',)", ["'local'"]),
        ("help = 'local or kubernetes.'", ["'local or kubernetes.'"]),
        ("f'the local runtime ends {name}'", ["'the local runtime ends '"]),
        ("f'{name}: Evicted by {node}'", ["': Evicted by '"]),
        ("gang = 'kueue'", ["'kueue'"]),
        ("why = 'a Kueue group keeps its size'", ["'a Kueue group keeps its size'"]),
        ("settings.kubernetes_connection", ["kubernetes_connection"]),
        ("def start(*, kueue_queue): ...", ["kueue_queue"]),
        ("class KubernetesLabels: ...", ["KubernetesLabels"]),
        ("from engines import kubernetes_client", ["kubernetes_client"]),
        ("'node.kubernetes.io/name', local_rank, 'a local path', 'Evictedness'", []),
    ],
)
def test_leaks_of_python(source, found):
    assert [what for _, what in leaks(source)] == found


@pytest.mark.parametrize(
    ("line", "leaks_"),
    [
        ("  - {name: A, value: b, when: runtime == 'stranger'}", True),
        ("  templateFor: {stranger: {}}", True),
        ("  - {name: A, value: kubernetes}", True),
        ("  # on kubernetes the runtime mounts it", False),
        ("  - {name: LOCAL_RANK, value: b, when: runs_here}", False),
    ],
)
def test_leaks_of_frameworks(line, leaks_):
    assert bool(list(framework_leaks(line))) == leaks_


def test_every_exception_is_needed():
    used = {
        name
        for path in modules()
        for name in exceptions(path)
        if any(leaks(path.read_text(encoding="utf-8")))
    }
    assert used == ALLOWED.keys()
