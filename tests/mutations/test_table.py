"""The table of mutations does not rot: what it breaks is there, who must notice exists."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.mutations.change import change, change_file, definitions
from tests.mutations.table import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
GUARANTEES = range(1, 12)
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.why)
def test_what_a_mutation_breaks_is_found_exactly_once(mutation: Mutation):
    text = (ROOT / mutation.file).read_text(encoding="utf-8")
    broken = change_file(mutation.file, text, mutation.definition, mutation.old, mutation.new)
    if mutation.file.endswith(".py"):
        assert broken != ast.unparse(ast.parse(text))
        compile(broken, mutation.file, "exec")
    else:
        assert broken != text


CLASS = """
class A:
    def method(self):
        if self.ready and self.open:
            return 1  # by luck
        return 2
"""


@pytest.mark.parametrize(
    ("old", "new", "broken"),
    [
        ("self.ready and self.open", "self.open", "if self.open:"),
        ("return 1", "", "pass"),
        ("return 2", "self.close()\nreturn 3", "self.close()\n        return 3"),
    ],
)
def test_a_change_is_one_of_the_syntax_tree(old: str, new: str, broken: str):
    assert broken in change(CLASS, "A.method", old, new)


@pytest.mark.parametrize(
    ("definition", "old"), [("A.method", "self"), ("A.other", "return 1"), ("A", "3")]
)
def test_a_change_in_no_place_or_several_is_refused(definition: str, old: str):
    with pytest.raises(ValueError, match=r"times, not once|there is no A\.other"):
        change(CLASS, definition, old, "None")


def test_a_file_that_is_no_module_changes_as_text():
    assert change_file("a.yaml", "b: 1\nc: 2\n", "", "c: 2", "c: 3") == "b: 1\nc: 3\n"
    with pytest.raises(ValueError, match="there 2 times, not once"):
        change_file("a.yaml", "b: 1\nc: 1\n", "", ": 1", ": 2")


def test_every_test_of_the_table_exists():
    for file, _, name in (each.test.partition("::") for each in MUTATIONS):
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name.partition("[")[0].replace("::", ".") in dict(definitions(tree)), (
            f"{file}: {name}"
        )


def test_every_test_of_the_table_is_one_of_make_test():
    for file, _, name in (each.test.partition("::") for each in MUTATIONS):
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        found = dict(definitions(tree))[name.partition("[")[0].replace("::", ".")]
        marks = map(ast.unparse, getattr(found, "decorator_list", []))
        assert "pytest.mark.soak" not in marks, f"{file}: {name}"


def test_every_guarantee_is_broken_in_at_least_three_places():
    rows = Counter(each.guarantee for each in MUTATIONS)
    assert [*rows] == [*GUARANTEES], "in the order of the guarantees"
    assert min(rows.values()) >= 3


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_the_page_names_the_tests_of_each_guarantee(guarantee: int):
    section = re.split(r"^## (?=\d)", PAGE, flags=re.MULTILINE)[guarantee]
    assert section.startswith(f"{guarantee}. ")
    tests = {each.test for each in MUTATIONS if each.guarantee == guarantee}
    names = {test.rpartition("::")[2].partition("[")[0] for test in tests}
    assert {name for name in names if f"`{name}`" not in section} == set()


def test_every_test_on_the_page_exists():
    code = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/*.py"))
    assert [name for name in re.findall(r"`(test_\w+)`", PAGE) if f"def {name}(" not in code] == []
    assert all((ROOT / name).is_file() for name in re.findall(r"`(tests/\S+\.py)`", PAGE))
