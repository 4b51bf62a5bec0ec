"""Values of parameters against what a job declares."""

from __future__ import annotations

import pytest

from airflow_training.documents.dag import Param
from airflow_training.documents.params import check_params, check_value


@pytest.mark.parametrize(
    ("schema", "good", "bad", "code"),
    [
        ({"type": "number"}, [1, 1.5], ["1", True, None], "wrong_type"),
        ({"type": "integer"}, [1, 2.0], [1.5, True, "1"], "wrong_type"),
        ({"type": "string"}, ["a"], [1], "wrong_type"),
        ({"type": "boolean"}, [True], [1, "true"], "wrong_type"),
        ({"type": "array"}, [[], (1,)], [{}, "a"], "wrong_type"),
        ({"type": "object"}, [{}], [[]], "wrong_type"),
        ({"type": ["null", "integer"]}, [None, 1], ["a"], "wrong_type"),
        ({}, [None, 1, "a", []], [], ""),
        ({"minimum": 0}, [0, 1, "text"], [-1], "out_of_range"),
        ({"maximum": 1}, [1], [1.1], "out_of_range"),
        ({"exclusiveMinimum": 0}, [0.1], [0], "out_of_range"),
        ({"exclusiveMaximum": 1}, [0.9], [1], "out_of_range"),
        ({"multipleOf": 0.1}, [0.3, 1], [0.25], "out_of_range"),
        ({"minLength": 2}, ["ab"], ["a"], "out_of_range"),
        ({"maxLength": 2}, ["ab"], ["abc"], "out_of_range"),
        ({"pattern": "^a+$"}, ["aa"], ["b"], "out_of_range"),
        ({"minItems": 1}, [[1]], [[]], "out_of_range"),
        ({"maxItems": 1}, [[1]], [[1, 2]], "out_of_range"),
        ({"enum": ["sgd", "adam", 1]}, ["sgd", 1], ["adm", True], "not_allowed"),
        ({"const": 3}, [3], [4], "not_allowed"),
        ({"items": {"type": "integer"}}, [[1, 2]], [["a"]], "not_allowed"),
        ({"uniqueItems": True}, [[1, 2]], [[1, 1]], "not_allowed"),
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, [{"a": "b"}], [{}, {"a": 1}], "not_allowed"),
    ],
)  # fmt: skip
def test_a_value_fits_or_has_a_code(schema, good, bad, code):
    param = Param(**schema)
    for value in good:
        assert check_value(param, value, ("lr",)) == [], value
    for value in bad:
        problems = check_value(param, value, ("lr",))
        assert [problem.code for problem in problems] == [code], value
        assert problems[0].field.startswith("lr")


@pytest.mark.parametrize(
    ("value", "loc", "hint"),
    [
        (12, ("params", "text"), "-p 'text=\"12\"'"),
        (True, ("params", "text"), "-p 'text=\"true\"'"),
        (12, ("space", "text", 0), 'write it in quotes: "12"'),
        ([1], ("params", "text"), ""),
    ],
)
def test_a_number_for_a_text_is_told_with_its_quotes(value, loc, hint):
    (problem,) = check_value(Param(type="string"), value, loc)
    assert problem.hint.endswith(hint)
    assert bool(problem.hint) == bool(hint)


def test_given_values_lie_over_the_defaults():
    declared = {"lr": Param(default=0.1, minimum=0), "epochs": Param(type="integer", default=3)}
    values, problems = check_params(declared, {"lr": 0.5, "extra": "x"})
    assert values == {"lr": 0.5, "epochs": 3, "extra": "x"}
    assert problems == []


def test_every_wrong_value_is_named():
    declared = {"lr": Param(default=0.1, minimum=0), "epochs": Param(type="integer")}
    _, problems = check_params(declared, {"lr": -1})
    assert [(p.code, p.field) for p in problems] == [
        ("out_of_range", "params.lr"),
        ("missing", "params.epochs"),
    ]
