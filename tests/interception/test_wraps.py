"""Readers that no audit event tells of are changed after their import, and nothing else is."""

from __future__ import annotations

import copy
import importlib
import sys
import types
from importlib.machinery import SourceFileLoader

import pytest

from airflow_training.interception import wraps
from airflow_training.interception.module_changes import watch_modules


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A library with a reader of each kind, and the finder on it."""
    (tmp_path / "fakereader.py").write_text(
        "def read(source):\n    return source\n\n"
        "class File:\n    def __init__(self, name):\n        self.name = name\n\n"
        "class Plain(str):\n    pass\n"
    )
    (tmp_path / "fakeother.py").write_text("def read(source):\n    return source\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    readers = {"read": ("source",), "File": ("name",), "Plain": ("object",), "missing": ()}
    monkeypatch.setattr(wraps, "READERS", {"fakereader": readers})
    told: list[tuple[object, str]] = []
    wraps.watch_imports(lambda path, api: told.append((path, api)))
    yield told
    for name in ("fakereader", "fakeother"):
        sys.modules.pop(name, None)


def test_a_reader_tells_before_it_reads(library):
    module = importlib.import_module("fakereader")
    assert module.read("a") == "a"
    assert module.read(source=["b", "c"]) == ["b", "c"]
    assert module.File("d").name == "d"
    assert module.Plain("e") == "e"
    assert library == [
        ("a", "fakereader.read"),
        ("b", "fakereader.read"),
        ("c", "fakereader.read"),
        ("d", "fakereader.File"),
        ("e", "fakereader.Plain"),
    ]


def test_a_module_that_two_of_us_change_is_changed_by_both(library):
    """As the loader of PyTorch is, where both parameters and data are asked for."""
    changed: list[str] = []
    watch_modules({"fakeother": lambda _: changed.append("first")})
    watch_modules({"fakeother": lambda _: changed.append("second")})
    module = importlib.import_module("fakeother")
    assert sorted(changed) == ["first", "second"]
    assert module.read("a") == "a"
    assert isinstance(module.__loader__, SourceFileLoader)
    assert isinstance(module.__spec__.loader, SourceFileLoader)


def test_a_class_stays_the_class_it_is(library):
    module = importlib.import_module("fakereader")
    assert isinstance(module.File, type)
    assert isinstance(module.File("a"), module.File)


def test_a_class_of_another_language_can_be_asked_for_and_built_on(library):
    module = importlib.import_module("fakereader")
    made = module.Plain("a")
    assert isinstance(made, module.Plain)
    assert not isinstance("a", module.Plain)
    assert isinstance(made, (int, module.Plain))
    assert module.Plain.__name__ == "Plain"
    assert copy.deepcopy(module.Plain) is module.Plain

    assert issubclass(types.new_class("Finer", (module.Plain,)), module.Plain)


def test_what_a_module_loads_when_it_is_asked_for_stays_unloaded(library, tmp_path):
    (tmp_path / "fakereader.py").write_text(
        "asked = []\ndef __getattr__(name):\n    asked.append(name)\n    raise AttributeError(name)\n"
    )
    module = importlib.import_module("fakereader")
    assert not {"read", "File", "missing"} & set(module.asked)


def test_the_module_looks_as_if_nobody_had_changed_it(library):
    module = importlib.import_module("fakereader")
    other = importlib.import_module("fakeother")
    assert type(module.__loader__) is type(other.__loader__)
    assert module.__spec__.loader is module.__loader__
    assert module.__spec__.name == "fakereader"
    assert module.read.__name__ == "read"


def test_a_reload_is_changed_once_more_and_once_only(library):
    module = importlib.import_module("fakereader")
    importlib.reload(module)
    module.read("a")
    assert library == [("a", "fakereader.read")]


def test_other_modules_are_left_alone(library):
    importlib.import_module("fakeother").read("a")
    assert library == []


def test_what_is_imported_already_is_changed_too(library, monkeypatch):
    module = importlib.import_module("fakereader")
    monkeypatch.setattr(module, "read", module.read.__wrapped__)
    wraps.watch_imports(lambda path, api: library.append((path, "later")))
    module.read("a")
    assert library == [("a", "later")]
