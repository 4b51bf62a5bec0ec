"""The table of mutations does not rot: what it breaks is there, who must notice exists."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.mutations.table import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
GUARANTEES = range(1, 10)
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.why)
def test_what_a_mutation_breaks_is_found_exactly_once(mutation: Mutation):
    text = (ROOT / mutation.file).read_text(encoding="utf-8")
    assert text.count(mutation.old) == 1
    assert mutation.new != mutation.old
    compile(text.replace(mutation.old, mutation.new), mutation.file, "exec")


def test_every_test_of_the_table_exists():
    tests = sorted({each.test for each in MUTATIONS})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *tests], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


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
