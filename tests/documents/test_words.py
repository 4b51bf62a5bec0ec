"""Long texts as lines that fit, and texts of others that do nothing to a terminal."""

from __future__ import annotations

import pytest

from airflow_training.documents.words import wrap_lines

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
