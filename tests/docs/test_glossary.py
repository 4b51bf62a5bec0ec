"""The glossary's names of code and fields are those that exist, and a word stands once in its part."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ELSEWHERE = {
    "TrainJob",
    "PyTorchJob",
    "--nnodes=MIN:MAX",
    "--max-restarts",
    ".metadata",
    "async_save",
}
"""Words of other projects."""
_PARTS = PAGE.split("\n## ")[1:]


@cache
def _product() -> str:
    folders = ("airflow_training", "frameworks", "operators", "sensors")
    files = [each for name in folders for each in (ROOT / name).rglob("*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(files))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([^`]+)`", PAGE)) - ELSEWHERE))
def test_a_name_of_the_glossary_is_one_of_the_product(name: str) -> None:
    word = re.sub(r"<\w+>", "", name).strip("._") or name
    for part in word.split("."):
        snake = re.sub(r"(?<=[a-z])([A-Z])", lambda upper: "_" + upper[0].lower(), part)
        assert re.search(rf"\b(?:{re.escape(part)}|{re.escape(snake)})", _product()), part


@pytest.mark.parametrize("part", _PARTS, ids=lambda part: part.splitlines()[0])
def test_a_word_is_explained_once_in_its_part(part: str) -> None:
    words = re.findall(r"^\| ([^|]+?) \|", part, re.MULTILINE)
    assert len(words) > 5
    assert len(set(words)) == len(words)
