"""The template language: what it can, what it refuses, and that nothing gets out of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_training.documents.expressions import is_rendered
from airflow_training.documents.paths import split_path
from airflow_training.documents.templates import (
    Reference,
    check_template,
    has_template,
    references,
    render,
)
from airflow_training.errors import InputError

VARIABLES = {
    "params": {
        "lr": 0.1,
        "deep": {"er": [1, 2]},
        "flag": True,
        "none": None,
        "text": "{{ run_id }}",
    },
    "run_id": "manual__1",
    "logical_date": "2026-01-02T03:04:05+00:00",
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
        ("{{ logical_date }}", "2026-01-02T03:04:05+00:00"),
        ("{{ data_interval_start }}", "None"),
        ("{{ logical_date.year }}-{{ logical_date.month }}-{{ logical_date['day'] }}", "2026-1-2"),
        ("{{ logical_date.hour }}:{{ logical_date.minute }}:{{ logical_date.second }}", "3:4:5"),
        ("{{ logical_date.date() }}", "2026-01-02"),
        ("{{ logical_date.isoformat() }}", "2026-01-02T03:04:05+00:00"),
        ("{{ logical_date.strftime('%Y%m%d %H%M%S 100%%') }}", "20260102 030405 100%"),
        ("{{ logical_date.timestamp() }}", "1767323045.0"),
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
        "{{ params.lr.hex() }}",
        "{{ params.text.format(1) }}",
        "{{ params.deep.pop('er') }}",
        "{{ triggering_assets.append('a') }}",
        "{{ '%s'.format(1) }}",
        "{{ address('a', 0).upper() }}",
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
    ("expression", "message"),
    [
        ("logical_date.strftime", "'strftime' is a method: call it"),
        ("logical_date.years", "a date has no 'years' here"),
        ("logical_date.year.real", "a date has no 'real' here"),
        ("logical_date[0]", "a date has no '0' here"),
        ("logical_date.tzinfo", "a date has no 'tzinfo' here"),
        ("logical_date.replace(1)", "a date has no method 'replace' here"),
        ("logical_date.year()", "a date has no method 'year' here"),
        ("logical_date.format('{0.__class__}')", "a date has no method 'format' here"),
        ("logical_date.strftime()", "call it as strftime('%Y-%m-%d')"),
        ("logical_date.strftime(1)", "call it as strftime('%Y-%m-%d')"),
        ("logical_date.strftime('%Y', '%m')", "call it as strftime('%Y-%m-%d')"),
        ("logical_date.date(1)", "call it as date()"),
        ("logical_date.strftime('%s')", "strftime does not know '%s'"),
        ("logical_date.strftime('%999999999Y')", "strftime does not know '%9'"),
        ("logical_date.strftime('%')", "strftime does not know '%'"),
        ("logical_date.strftime(run_id)", "constant arguments"),
        ("logical_date.strftime(logical_date.strftime)", "constant arguments"),
        ("logical_date.strftime(*params.deep.er)", "constant arguments"),
        ("logical_date.strftime(**params)", "constant arguments"),
        ("logical_date.strftime(format='%Y')", "constant arguments"),
        ("logical_date.strftime('%Y').upper()", "only dates have methods"),
        ("logical_date.strftime('%Y').upper", "nothing can be taken from the answer"),
        ("logical_date.strftime('%Y')[0]", "nothing can be taken from the answer"),
        ("logical_date.date().isoformat()", "only dates have methods"),
        ("logical_date.strftime('%Y')('a')", "can be called here"),
        ("logical_date['strftime']('%Y')", "can be called here"),
        ("logical_date.year.bit_length()", "only dates have methods"),
        ("logical_date.__class__", "'__class__' is private"),
        ("logical_date['__class__']", "'__class__' is private"),
        ("logical_date.__class__()", "'__class__' is private"),
        ("logical_date.__format__('x')", "'__format__' is private"),
        ("logical_date.strftime.__globals__", "'__globals__' is private"),
        ("logical_date.strftime('%Y').__class__", "'__class__' is private"),
        ("logical_date('a')", "'logical_date' cannot be called"),
        ("logical_date | ds", "filters cannot be used here"),
        ("logical_date - data_interval_start", "arithmetic cannot be used here"),
    ],
)
def test_what_a_date_cannot_be_asked(expression, message):
    """Refused by `validate`, before there is any date, and by rendering."""
    (problem,) = check_template(f"{{{{ {expression} }}}}", field="spec.args[0]")
    assert (problem.code, problem.field) == ("bad_template", "spec.args[0]")
    assert message in problem.message
    assert problem.allowed
    with pytest.raises(InputError, match=r"spec\.args"):
        render(f"{{{{ {expression} }}}}", VARIABLES, FUNCTIONS, field="spec.args[0]")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("{{ logical_date.yaer }}", "did you mean 'year'?"),
        ("{{ logical_date.strtime('%Y') }}", "did you mean 'strftime'?"),
        ("{{ ds }}", "{{ logical_date.date() }}"),
        ("{{ ds_nodash }}", "{{ logical_date.strftime('%Y%m%d') }}"),
    ],
)
def test_who_asks_a_date_wrongly_is_told_how(text, hint):
    (problem,) = check_template(text)
    assert problem.hint == hint
    if "{{" in hint:
        assert check_template(hint) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ params.lrr }}", "params has no 'lrr', it has deep, flag, lr, none, text"),
        ("{{ params.deep.er[9] }}", "none is"),
        ("{{ params.lr.real }}", "params.lr has no 'real'"),
        ("{{ run_id.upper }}", "run_id has no 'upper'"),
        ("{{ params.items }}", "params has no 'items'"),
        ("{{ params.get }}", "params has no 'get'"),
        ("{{ data_interval_start.year }}", "data_interval_start has no value in this run"),
        ("{{ data_interval_end.strftime('%Y') }}", "data_interval_end has no value in this run"),
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
    text = "{{ params.lr }} and {{ address('master', 0).host }}{{ logical_date.date() }}"
    assert references(text) == (
        Reference(name="params", path=("lr",)),
        Reference(name="address", args=("master", 0), path=("host",)),
        Reference(name="logical_date", method="date", args=()),
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
