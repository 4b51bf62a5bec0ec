"""A class is called as no other one is, so that a name in a message, a trace or a search means one thing."""

from __future__ import annotations

import ast
from collections import Counter

from tests.docs.test_docstrings import modules


def test_no_two_classes_of_the_product_have_one_name() -> None:
    names = Counter(
        node.name
        for path in modules()
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []
