"""The backward pass of a view computes the gradients of its forward pass."""

from __future__ import annotations

import numpy as np
import pytest

from airflow_training.planning.view.builder import ViewBuilder
from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.strategy import TransformerModel
from airflow_training.planning.view.training import gradient, with_backward
from airflow_training.planning.view.transformer import computation
from tests.planning import networks
from tests.planning.kernels import run_whole, values_for

SMALL = TransformerModel(hidden=16, layers=2, heads=2, seq=8, vocab=40, attention="unfused")


def products() -> ComputationView:
    """Return two linear layers with a bias, a residual connection and one weight used twice."""
    build = ViewBuilder("products", batch=3)
    dims = (("batch", 3), ("", 4))
    x = build.tensor("x", dims, kind="input")
    weight, bias = build.parameter("w", ("", 4), ("", 4)), build.parameter("b", ("", 4))
    for name in ("y", "z", "twice", "out"):
        build.tensor(name, dims, kind="output" if name == "out" else "activation")
    build.operator("first", "matmul", (x, weight, bias), ("y",), equation="bm,mn,n->bn")
    build.operator("second", "matmul", ("y", weight), ("z",), equation="bm,mn->bn")
    build.operator("join", "elementwise", ("z", "y"), ("twice",), function="add")
    build.operator("double", "elementwise", ("twice", "twice"), ("out",), function="add")
    build.unit("all")
    return build.view()


def run(view: ComputationView, values):
    values = dict(values)
    for operator in view.operators:
        if operator.phase != "optimizer" or operator.kind == "sum_of":
            values.update(zip(operator.outputs, run_whole(view, operator, values), strict=True))
    return values


@pytest.mark.parametrize("name", ["w", "b"])
def test_gradients_are_those_of_small_changes(name):
    view = products()
    values = values_for(view)
    step = with_backward(view)
    found = run(step, {**values, gradient("out"): np.ones((3, 4), dtype=np.int64)})
    for place in np.ndindex(values[name].shape):
        change = np.zeros_like(values[name])
        change[place] = 1
        up, down = (
            run(view, {**values, name: values[name] + sign * change})["out"].sum()
            for sign in (1, -1)
        )
        assert 2 * found[gradient(name)][place] == up - down, "twice: the terms of order 2 cancel"


def test_a_product_with_itself_has_two_gradients_that_add_up():
    build = ViewBuilder("gram", batch=1)
    weight = build.parameter("w", ("", 3), ("", 4))
    out = build.tensor("out", (("", 3), ("", 3)), kind="output")
    build.operator("gram", "matmul", (weight, weight), (out,), equation="ak,bk->ab")
    build.unit("all")
    values = values_for(build.view())
    ones = np.ones((3, 3), dtype=np.int64)
    found = run(with_backward(build.view()), {**values, gradient("out"): ones})
    assert np.array_equal(found["d:w"], 2 * ones @ values["w"])


def test_every_parameter_is_updated_once_in_its_unit():
    step = with_backward(computation(SMALL))
    parameters = {name for name, tensor in step.tensors.items() if tensor.kind == "parameter"}
    updates = [operator for operator in step.operators if operator.kind == "adam"]
    assert sorted(operator.inputs[0] for operator in updates) == sorted(parameters)
    units = {name: unit.name for unit in step.units for name in unit.operators}
    assert len(units) == len(step.operators)
    assert units["embedding.weight.adam"] == "embedding"
    assert units["mlp.up.weight.adam"] == "layer"


def test_tied_weights_are_summed_where_the_optimizer_runs():
    step = with_backward(computation(SMALL))
    (total,) = [op for op in step.operators if op.outputs == ("d:embedding.weight",)]
    assert (total.kind, total.phase) == ("sum_of", "optimizer")
    assert set(total.inputs) == {
        "d:embedding.weight@logits.right",
        "d:embedding.weight@embedding.backward",
    }


def test_inputs_and_whole_numbers_have_no_gradient():
    step = with_backward(networks.mlp(8, 6, 4))
    assert not {"d:x", "d:labels"} & step.tensors.keys()
    assert "fc0.left" not in {operator.name for operator in step.operators}


def test_a_frozen_start_of_a_network_has_no_backward_pass():
    build = ViewBuilder("frozen", batch=2)
    dims = (("batch", 2), ("", 4))
    x = build.tensor("x", dims, kind="input")
    frozen = build.tensor("frozen", (("", 4), ("", 4)), kind="buffer")
    trained = build.parameter("trained", ("", 4), ("", 4))
    y, z = build.tensor("y", dims), build.tensor("z", dims, kind="output")
    build.operator("a", "matmul", (x, frozen), (y,), equation="bm,mn->bn")
    build.operator("b", "matmul", (y, trained), (z,), equation="bm,mn->bn")
    build.unit("all")
    backward = [op.name for op in with_backward(build.view()).operators if op.phase == "backward"]
    assert backward == ["b.right"]


def test_convolutions_have_a_kernel_per_gradient():
    step = with_backward(networks.cnn(4, 8))
    names = {operator.name for operator in step.operators if operator.kind == "conv_backward"}
    assert "block0.a.backward.block0.a.weight" in names
    assert "block0.a.backward.stem.relu" in names
    assert "stem.backward.x" not in names


def test_a_step_is_not_differentiated_again():
    step = with_backward(networks.mlp(8, 6, 4))
    assert with_backward(step) is step
