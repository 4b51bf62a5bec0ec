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


@pytest.mark.parametrize(
    ("path", "value", "hint"),
    [
        ("roles", [], "it belongs to 'spec'"),
        ("name", "x", "it belongs to 'metadata'"),
        ("spec.keepFailedSeconds", 30, "it belongs to 'spec.restart'"),
        (
            "spec.maxRestarts",
            3,
            "'maxRestarts' itself belongs to 'spec.roles[0]' or 'spec.restart'",
        ),
        ("spec.schedule", "@daily", "it belongs to 'spec.dag'"),
        ("spec.roles.0.neverFits", "Fail", "it belongs to 'spec.schedulingPolicy'"),
        ("spec.roles.0.activeDeadlineSeconds", 5, "it belongs to 'spec'"),
        ("spec.activeDeadlineSeconds", "10m", "in seconds: 600"),
        ("spec.restart.keepFailedSeconds", "1h30m", "in seconds: 5400"),
        ("spec.roles.0.dependsOn", ["a"], "write it as {role: a}"),
        ("spec.roles.0.dependsOn", "a", "write it as [{role: a}]"),
        (
            "spec.failurePolicy",
            {"rules": [{"action": "FailJob", "onExitCodes": [3]}]},
            "write it as {values: [3]}",
        ),
        (
            "spec.failurePolicy",
            {"rules": [{"action": "FailJob", "onExitCodes": 3}]},
            "write it as {values: [3]}",
        ),
    ],
)
def test_a_mistake_is_told_with_its_likely_fix(path: str, value: Any, hint: str) -> None:
    found = parsed(edited(path, value)).problems
    assert any(problem.hint.endswith(hint) for problem in found), found


@pytest.mark.parametrize("text", ["soon", "10 parsecs", "", "m", "1.5x"])
def test_what_is_no_duration_gets_no_guess(text: str) -> None:
    found = parsed(edited("spec.activeDeadlineSeconds", text)).problems
    assert [problem.hint for problem in found] == [""]


@pytest.mark.parametrize(("replicas", "warned"), [(0, True), (1, False)])
def test_a_job_that_trains_nothing_is_told(replicas: int, warned: bool) -> None:
    told = parsed(edited("spec.roles", [{"name": "w", "replicas": replicas}])).warnings
    assert warned == any("trains nothing" in problem.message for problem in told)


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        ({"limits": {"nvidia.com/gpu": 0.5}}, "must be a whole number of devices"),
        ({"requests": {"example.com/nic": "500m"}}, "must be a whole number of devices"),
        (
            {"limits": {"cpu": 2}, "requests": {"cpu": "2500m"}},
            "must be at most its limit, which is 2",
        ),
        (
            {"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 1}},
            "must be its limit, which is 2",
        ),
        ({"limits": {"cpu": 2, "nvidia.com/gpu": 1}, "requests": {"cpu": 1}}, ""),
    ],
)
@pytest.mark.parametrize("owner", ["spec", "spec.roles.0"])
def test_resources_that_nothing_can_give_are_refused(owner, resources, told):
    problems = parsed(edited(f"{owner}.resources", resources)).problems
    assert {problem.message for problem in problems} == ({told} if told else set())
