"""A class is called as no other one is, so that a name in a message, a trace or a search means one thing."""

from __future__ import annotations

import re
from collections import Counter

from tests.docs.test_docstrings import modules

CLASS = re.compile(r"^class (\w+)", re.MULTILINE)


def test_no_two_classes_of_the_product_have_one_name() -> None:
    names = Counter(
        name for path in modules() for name in CLASS.findall(path.read_text(encoding="utf-8"))
    )
    assert [name for name, count in names.items() if count > 1] == []
