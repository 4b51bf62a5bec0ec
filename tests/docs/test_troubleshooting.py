"""Every message of the page on troubleshooting is one that the product still has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from airflow_training.runtimes.registry import every_reason
from tests.docs.pages import ROOT

ROOMS = ("airflow_training", "frameworks", "operators", "sensors")
_VARIABLE = "\0"
_FIELD = re.compile(r"\b[a-z]+[A-Z]\w*")


def _spoken(node: ast.AST) -> str | None:
    """Return a text of the code, with a mark where a value is filled in."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else _VARIABLE for part in node.values
        )
    return None


@cache
def _texts() -> frozenset[str]:
    files: set[Path] = set()
    for room in ROOMS:
        files |= set((ROOT / room).rglob("*.py"))
    nodes = (
        node for path in sorted(files) for node in ast.walk(ast.parse(path.read_text("utf-8")))
    )
    return frozenset(text for node in nodes if (text := _spoken(node)))


def _messages() -> Iterator[str]:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    return (match[1] for match in re.finditer(r"^\| `([^`]+)` \|", page, re.MULTILINE))


@pytest.mark.parametrize("message", list(_messages()))
def test_a_message_is_one_of_the_product(message: str) -> None:
    if re.fullmatch(r"[A-Z]\w+", message):  # a reason stands alone, not within other words
        assert message in _texts()
        return
    parts = re.split(r"'?\.\.\.'?", message)
    longest = max(parts, key=len)
    wanted = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
    assert any(longest in text and wanted.search(text) for text in _texts())


def _reasons_of_ends() -> set[str]:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    table = page.partition("## How an instance ended")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}


@pytest.mark.parametrize("reason", sorted(every_reason()))
def test_a_reason_that_an_instance_can_end_with_has_a_row(reason: str) -> None:
    assert reason in _reasons_of_ends()


def test_a_reason_in_a_row_is_one_of_the_product() -> None:
    assert _reasons_of_ends() - _texts() == set()


def test_a_row_says_why_and_what_to_do() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    rows = [
        re.split(r" \| ?", line.strip("| ")) for line in page.splitlines() if line.startswith("| `")
    ]
    assert len(rows) > 80
    assert [row for row in rows if len(row) != 3 or not row[2].strip()] == []


def test_the_fields_that_it_names_are_on_the_page_of_the_document() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    fields = (ROOT / "docs" / "job.md").read_text(encoding="utf-8")
    named = {word for code in re.findall(r"`([^`]+)`", page) for word in _FIELD.findall(code)}
    assert len(named) > 10
    assert [word for word in sorted(named) if not re.search(rf"\b{word}\b", fields)] == []
