"""A view survives being written down, and reads well."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from airflow_training.errors import InputError
from airflow_training.planning.view.serial import from_json, text, to_json
from airflow_training.planning.view.strategy import TransformerModel
from airflow_training.planning.view.training import with_backward
from airflow_training.planning.view.transformer import computation
from tests.examples import examples
from tests.planning import networks
from tests.planning.views import views

MODEL = TransformerModel(
    hidden=16, layers=2, heads=2, seq=8, vocab=40, experts=4, experts_per_token=2
)


@settings(max_examples=examples(50), deadline=None)
@given(views())
def test_any_view_comes_back_as_it_was(drawn):
    view, _ = drawn
    assert from_json(json.loads(json.dumps(to_json(view)))) == view


def test_a_whole_step_comes_back_as_it_was():
    step = with_backward(computation(MODEL))
    assert from_json(json.loads(json.dumps(to_json(step)))) == step


def test_a_view_prints_a_line_per_operator():
    lines = text(networks.mlp(784, 300, 10)).splitlines()
    assert lines == [
        "mlp, written for a batch of 32",
        "layer0",
        "  y0[32, 300] = matmul(x, w0, b0)",
        "  relu0[32, 300] = relu(y0)",
        "head",
        "  y1[32, 10] = matmul(relu0, w1, b1)",
        "  loss[32] = cross_entropy(y1, labels)",
    ]
    assert "layer x 2" in text(computation(MODEL)).splitlines()


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"version": 7}, "version: this version of a view cannot be read\n  allowed: 1"),
        ({"operators": [{"name": "x"}]}, "view: 'kind' is missing"),
        ({"operators": 3}, "view: it is not laid out as a view is"),
        ({"tensors": []}, "tensors: operator 'fc0' uses a tensor that the view does not hold"),
        ({"units": [{"name": "u", "operators": ["fc9"]}]}, "units: unit 'u' names an operator"),
    ],
)
def test_a_broken_document_says_what_is_wrong(broken, words):
    with pytest.raises(InputError) as caught:
        from_json({**to_json(networks.mlp(8, 6, 4)), **broken})
    assert words in str(caught.value)
