"""What a person reads of a mistake: the value that was refused, where it may be shown."""

from __future__ import annotations

import pytest

from airflow_training.errors import Problem


def told(message: str, value: object, *, field: str = "params.lr", code: str = "out_of_range"):
    return str(Problem(code=code, field=field, message=message, value=value, line=3))


@pytest.mark.parametrize(
    ("code", "message", "value", "shown"),
    [
        ("out_of_range", "must be at most 1", 5, "5"),
        ("out_of_range", "must be at most 10", 1, "1"),
        ("out_of_range", "must be greater than 0", 0, "0"),
        ("wrong_type", "must be of type number, not text", "high", "'high'"),
        ("not_allowed", "is not one of the values that exist", "rmsprop", "'rmsprop'"),
        ("bad_quantity", "is no quantity", "4 GB", "'4 GB'"),
    ],
)
def test_a_refused_value_is_shown(code, message, value, shown):
    assert told(message, value, code=code) == f"params.lr: {message}, given: {shown} (line 3)"


@pytest.mark.parametrize(
    ("message", "value", "field"),
    [
        pytest.param("'fast' is no number", "fast", "params.lr", id="said"),
        pytest.param("must be true or false, not true", True, "params.lr", id="kind-says-it"),
        pytest.param("is no name", "x" * 41, "metadata.name", id="long"),
        pytest.param("is no name", "a\nb", "metadata.name", id="lines"),
        pytest.param("is no address", "s3://me:word@host/a", "spec.output.uri", id="address"),
        pytest.param("must be a list", {"a": 1}, "spec.roles", id="mapping"),
        pytest.param("must be text", 4711, "spec.roles[0].env.PIN", id="variable"),
        pytest.param("must be text", 4711, "spec.env[0].value", id="list-of-variables"),
        pytest.param("must be text", 4711, "params.api_key", id="key"),
        pytest.param("is no key", "abc", "--key", id="option"),
        pytest.param("must be text", 4711, "spec.parameters.dbPassword", id="password"),
    ],
)
def test_what_is_said_secret_or_long_is_not_shown(message, value, field):
    assert told(message, value, field=field) == f"{field}: {message} (line 3)"


def test_a_value_that_something_else_is_about_is_not_shown():
    assert told("is required", "lr", code="missing") == "params.lr: is required (line 3)"
