"""Long texts as lines that fit, and texts of others that do nothing to a terminal."""

from __future__ import annotations

import pytest

from airflow_training.documents.text import headline, without_name, wrap_lines

ADDRESS = "s3://models/digits/u/0"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param("one two", ["one two"], id="fits"),
        pytest.param("one two three", ["one two", "  three"], id="goes-on-indented"),
        pytest.param("  one two three", ["  one two", "    three"], id="below-its-own-margin"),
        pytest.param("one\n\ntwo", ["one", "two"], id="lines-of-its-own"),
        pytest.param(f"in {ADDRESS}", ["in", f"  {ADDRESS}"], id="an-address-stays-whole"),
        pytest.param("a\x1b[2J\rb", [r"a\u001b[2J", "b"], id="control-characters"),
        pytest.param("a-word-or-two", ["a-word-or-two"], id="hyphens-do-not-break"),
    ],
)
def test_a_text_becomes_lines(text: str, lines: list[str]):
    assert wrap_lines(text, width=10) == lines


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        pytest.param("worker-0 found no place", "found no place", id="subject"),
        pytest.param("worker-0: exit code 1", "exit code 1", id="prefix"),
        pytest.param("worker-01 found no place", "worker-01 found no place", id="another"),
        pytest.param("no place for worker-0", "no place for worker-0", id="inside"),
        pytest.param("worker-0", "worker-0", id="nothing-else"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_a_name_is_said_once(text: str, rest: str):
    assert without_name(text, "worker-0") == rest


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("one\ntwo\n\n", "two", id="last"),
        pytest.param("\x1b[1;31mERROR\x1b[0m no seat\x1b[0m", "ERROR no seat", id="colours"),
        pytest.param("bad\n\x1b[0m\x1b[K\n", "bad", id="colours-alone-say-nothing"),
        pytest.param("\x1b]8;;http://x\x07link\x1b]8;;\x07 gone", "link gone", id="link"),
        pytest.param(" 10%|#  |\r100%|###|\rdone", "done", id="progress-bar"),
        pytest.param("failed\n-----\n}\n", "failed", id="rulers-say-nothing"),
        pytest.param("-----\n\n", "-----", id="nothing-but-a-ruler"),
        pytest.param("a\x08b\x00c", "abc", id="control-characters"),
    ],
)
def test_the_last_line_is_told_as_a_person_has_seen_it(text: str, line: str):
    assert headline(text) == line


def test_a_hint_is_no_headline_of_the_problem_above_it():
    problem = "metadata.name: ConfigMap digits-env belongs to somebody else"
    assert headline(f"{problem}\n  hint: choose another run id") == problem
    assert headline("hint: choose another run id") == "hint: choose another run id"
