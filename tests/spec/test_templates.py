"""The template language: what it can, what it refuses, and that nothing gets out of it."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_training.errors import InputError
from airflow_training.spec.expressions import is_rendered
from airflow_training.spec.paths import split_path
from airflow_training.spec.templates import (
    Call,
    Name,
    check_template,
    has_template,
    references,
    render,
)

VARIABLES = {
    "params": {
        "lr": 0.1,
        "deep": {"er": [1, 2]},
        "flag": True,
        "none": None,
        "text": "{{ run_id }}",
    },
    "run_id": "manual__1",
    "logical_date": dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc),
    "data_interval_start": None,
    "data_interval_end": None,
    "triggering_assets": ["s3://a", "s3://b"],
}
FUNCTIONS: dict[str, Any] = {
    "address": lambda role, index=0: f"{role}-{index}:1234",
    "addresses": lambda role: [f"{role}-0:1", f"{role}-1:2"],
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        ("--lr={{ params.lr }}", "--lr=0.1"),
        ("{{params.lr}}{{ run_id }}", "0.1manual__1"),
        ("{{ params['lr'] }}", "0.1"),
        ("{{ params.deep.er[1] }}", "2"),
        ("{{ params.deep.er[-1] }}", "2"),
        ("{{ params.flag }} {{ params.none }}", "True None"),
        ("{{ logical_date }}", "2026-01-02 00:00:00+00:00"),
        ("{{ logical_date.year }}", "2026"),
        ("{{ address('master', 0) }}", "master-0:1234"),
        ("{{ address('master') }}", "master-0:1234"),
        ("{{ addresses('worker') }}", "worker-0:1,worker-1:2"),
        ("{{ addresses('worker')[1] }}", "worker-1:2"),
        ("{{ triggering_assets }}", "s3://a,s3://b"),
        ("${#array[@]} {{ run_id }}", "${#array[@]} manual__1"),
        ("{{ '{{' }}", "{{"),
        ("a\n{{ run_id }}\n", "a\nmanual__1\n"),
        ("{{ params.text }}", "{{ run_id }}"),
    ],
)
def test_what_templates_can(text, expected):
    assert check_template(text) == []
    assert render(text, VARIABLES, FUNCTIONS) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{{ params.lr | upper }}",
        "{{ params.lr is defined }}",
        "{{ 1 + 1 }}",
        "{{ params.lr * 2 }}",
        "{{ params.a ~ 'b' }}",
        "{{ -params.lr }}",
        "{{ not params.lr }}",
        "{{ params.a and params.b }}",
        "{{ params.a == 1 }}",
        "{{ 'a' if params.a else 'b' }}",
        "{{ [1, 2] }}",
        "{{ {'a': 1} }}",
        "{{ (1, 2) }}",
        "{{ 1 }}",
        "{{ params[run_id] }}",
        "{{ params.deep.er[0:1] }}",
        "{{ run_id.upper() }}",
        "{{ address(run_id) }}",
        "{{ address(*params.a) }}",
        "{{ address('a', **params) }}",
        "{{ address(['a']) }}",
        "{{ address('a')('b') }}",
        "{{ params.__class__ }}",
        "{{ params._private }}",
        "{{ params['__class__'] }}",
        "{{ _private }}",
        "{{ __import__('os') }}",
        "{{ self }}",
        "{{ loop }}",
        "{{ conn.my_db }}",
        "{{ var.value.secret }}",
        "{{ open('/etc/passwd') }}",
        "{{ params('a') }}",
        "{{ address }}",
        "{% if params.a %}x{% endif %}",
        "{% set a = 1 %}{{ a }}",
        "{% for a in params %}{{ a }}{% endfor %}",
        "{% raw %}{{ x }}{% endraw %}{% include 'a' %}",
        "{{ params.lr",
        "{{ }}",
        "{{ params..lr }}",
        "{{ '%s' % params.lr }}",
        "{{" + "(" * 2000 + "run_id" + ")" * 2000 + "}}",
        "{{ run_id }}" + "x" * 70_000,
    ],
)
def test_what_templates_cannot(text):
    problems = check_template(text, field="spec.args[0]")
    assert problems
    assert {problem.code for problem in problems} == {"bad_template"}
    assert problems[0].field == "spec.args[0]"
    assert "params.*" in problems[0].allowed
    assert "address('role', 0)" in problems[0].allowed
    with pytest.raises(InputError):
        render(text, VARIABLES, FUNCTIONS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ params.lrr }}", "params has no 'lrr', it has deep, flag, lr, none, text"),
        ("{{ params.deep.er[9] }}", "none is"),
        ("{{ params.lr.real }}", "params.lr has no 'real'"),
        ("{{ run_id.upper }}", "run_id has no 'upper'"),
        ("{{ params.items }}", "params has no 'items'"),
        ("{{ params.get }}", "params has no 'get'"),
        ("{{ logical_date.strftime }}", "has no 'strftime'"),
        ("{{ address('a', 'b', 'c') }}", "address:"),
    ],
)
def test_what_is_not_there_is_said_when_rendering(text, message):
    with pytest.raises(InputError) as caught:
        render(text, VARIABLES, FUNCTIONS, field="spec.args[0]")
    (problem,) = caught.value.problems
    assert problem.field == "spec.args[0]"
    assert message in problem.message


def test_a_rendered_text_is_never_rendered_again():
    once = render("{{ params.text }}", VARIABLES)
    assert once == "{{ run_id }}"


def test_frameworks_may_allow_other_names():
    assert check_template("{{ rank }} {{ join('a') }}", allowed=["rank"], functions=["join"]) == []
    assert check_template("{{ rank }}")
    assert render("{{ rank }}-{{ join('a') }}", {"rank": 3}, {"join": str.upper}) == "3-A"


def test_references_tell_what_a_template_reads():
    text = "{{ params.lr }} and {{ address('master', 0).host }}"
    assert references(text) == (
        Name(name="params", path=("lr",)),
        Call(function="address", args=("master", 0), path=("host",)),
    )
    assert references("plain") == ()
    assert references("{{ broken") == ()


@given(st.text(alphabet="{}%#'\"()[].|~+- abparms_10\n", max_size=60))
def test_any_text_is_a_template_or_a_problem(text):
    problems = check_template(text)
    if not problems and not has_template(text):
        assert render(text, VARIABLES, FUNCTIONS) == text
    for problem in problems:
        assert problem.code == "bad_template"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("spec.command[0]", True),
        ("spec.args[1]", True),
        ("spec.env[0].value", True),
        ("spec.env[0].name", False),
        ("spec.env[0].valueFrom.fieldRef.fieldPath", False),
        ("spec.image", False),
        ("spec.workingDir", False),
        ("spec.data.uri", True),
        ("spec.data.files[0]", True),
        ("spec.checkpoint.uri", True),
        ("spec.checkpoint.watch", False),
        ("spec.output.uri", True),
        ("spec.output.role", False),
        ("spec.roles[0].command[0]", True),
        ("spec.roles[0].env[3].value", True),
        ("spec.roles[0].image", False),
        ("spec.roles[0].template.spec.containers[0].args[0]", True),
        ("spec.roles[0].template.spec.initContainers[0].env[0].value", True),
        ("spec.roles[0].template.spec.containers[0].image", False),
        ("spec.roles[0].template.spec.volumes[0].name", False),
        ("spec.roles[0].template.spec.containers[0].lifecycle.preStop.exec.command[0]", False),
        ("metadata.name", False),
        ("spec.parameters.command[0]", False),
    ],
)
def test_where_templates_work(path, expected):
    loc = split_path(path)
    assert loc is not None
    assert is_rendered(loc) is expected
