"""What is nearly right is answered with how it is written."""

from __future__ import annotations

from typing import Any

import pytest

from tests.documents.documents import edited, parsed


@pytest.mark.parametrize(
    ("field", "value", "form"),
    [
        ("env", {"LR": 0.1}, '[{name: LR, value: "0.1"}]'),
        ("env", {"A": "b", "ON": True}, '[{name: A, value: "b"}, {name: ON, value: "true"}]'),
        ("env", [{"LR": 0.1}], '{name: LR, value: "0.1"}'),
        ("env", ["LR=0.1"], '{name: LR, value: "0.1"}'),
        ("env", "LR=0.1", '[{name: LR, value: "0.1"}]'),
        ("ports", 8080, "[{containerPort: 8080}]"),
        ("ports", [8080], "{containerPort: 8080}"),
        ("resources", {"nvidia.com/gpu": 1}, "limits: {nvidia.com/gpu: 1}"),
        ("resources", {"memory": "1Gi"}, "limits: {memory: 1Gi}"),
        ("command", "python train.py", '["python", "train.py"]'),
    ],
)
@pytest.mark.parametrize("owner", ["spec", "spec.roles.0"])
def test_a_near_miss_shows_the_right_form(owner: str, field: str, value: Any, form: str) -> None:
    found = parsed(edited(f"{owner}.{field}", value)).problems
    assert any(problem.hint.endswith(form) for problem in found), found
