"""What users import says what it is for, and gives an example that runs as it stands."""

from __future__ import annotations

import doctest
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

import airflow_training

MODULES = [
    "airflow_training",
    "airflow_training.compiler.dag",
    "airflow_training.compiler.group",
    "airflow_training.compiler.search_space",
    "airflow_training.compiler.tuning",
    "airflow_training.documents.parsing",
    *(
        f"airflow_training.operators.{name}"
        for name in ("best", "cleanup", "plan", "reconcile", "role", "rollup", "sweep")
    ),
    "airflow_training.provider",
    "airflow_training.sensors.dependency",
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    module = import_module(name)
    found = doctest.DocTestFinder().find(module)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    for each in found:
        runner.run(each, out=said.append)
    assert runner.tries
    assert not runner.failures, "".join(said)


def _public() -> list[tuple[str, Any]]:
    """Return the exported names that are documented things, and every operator and sensor."""
    exported = [(name, getattr(airflow_training, name)) for name in airflow_training.__all__]
    modules: list[ModuleType] = [
        import_module(name) for name in MODULES if ".operators." in name or ".sensors." in name
    ]
    classes = [(name, getattr(each, name)) for each in modules for name in each.__all__]
    return [(name, thing) for name, thing in (*exported, *classes) if name != "__version__"]


@pytest.mark.parametrize("thing", [pytest.param(thing, id=name) for name, thing in _public()])
def test_what_users_import_gives_an_example(thing: Any) -> None:
    text = thing.__doc__ or ""
    assert ">>> " in text
    assert len(text.splitlines()[0].split()) > 4, "the first line says what it is for"
