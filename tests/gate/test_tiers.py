"""The lists of the gate name what is there, and stay short."""

from __future__ import annotations

import ast

import pytest

from tests.gate.tiers import FIRST_HALF, MOST_SCENARIOS, PURE, ROOT, SCENARIOS, SLOW
from tests.mutations.change import definitions


def test_every_pure_module_is_there():
    assert [each for each in PURE if not (ROOT / each).is_file()] == []


@pytest.mark.parametrize("test", sorted(SCENARIOS | SLOW))
def test_every_test_of_the_lists_is_there(test: str):
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name.partition("[")[0].replace("::", ".") in dict(definitions(tree))


def test_to_add_a_scenario_one_is_taken_out():
    assert len(SCENARIOS) <= MOST_SCENARIOS


def test_every_room_of_the_first_half_is_one_of_pure_tests():
    assert {each.split("/")[1] for each in PURE} >= FIRST_HALF


def test_what_is_listed_as_slow_would_be_pure():
    assert {each.partition("::")[0] for each in SLOW} <= PURE
