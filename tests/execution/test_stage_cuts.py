"""Stages begin where their first unit reads its first parameter, and parameters split as the planner says."""

from __future__ import annotations

import pytest

from airflow_training.errors import InputError
from airflow_training.execution.parameter_splits import match_splits, split_dimensions
from airflow_training.execution.stage_cuts import UnitParameters, find_stage_starts, unit_parameters
from airflow_training.planning.view.computation import ComputationView, Operator, Tensor, Unit
from airflow_training.planning.view.strategy import TransformerModel
from airflow_training.planning.view.transformer import computation


def chain(*units, repeats=None):
    """Return a view whose units read the parameters given, one operator each."""
    repeats = repeats or [1] * len(units)
    names = dict.fromkeys(name for unit in units for name in unit)
    tensors = {name: Tensor(name=name, shape=(2,), axes=("",), kind="parameter") for name in names}
    tensors |= {
        f"x{place}": Tensor(name=f"x{place}", shape=(2,), axes=("",))
        for place in range(len(units) + 1)
    }
    operators = [
        Operator(
            name=f"o{place}", kind="any", inputs=(f"x{place}", *unit), outputs=(f"x{place + 1}",)
        )
        for place, unit in enumerate(units)
    ]
    return ComputationView(
        name="chain",
        tensors=tensors,
        operators=tuple(operators),
        units=tuple(
            Unit(name=f"u{place}", operators=(each.name,), repeat=repeats[place])
            for place, each in enumerate(operators)
        ),
    )


def test_even_stages_begin_with_their_first_parameter():
    view = chain(("a", "b"), ("c",), ("d",), ("e",))
    assert find_stage_starts(view, list("abcde"), stages=2) == [3]
    assert find_stage_starts(view, list("abcde"), stages=4) == [2, 3, 4]


def test_a_unit_that_repeats_counts_each_of_its_copies():
    view = chain(("in",), ("w", "b"), ("out",), repeats=[1, 3, 1])
    reads = ["in", "w0", "b0", "w1", "b1", "w2", "b2", "out"]
    assert unit_parameters(view)[1] == UnitParameters(own=2, shared=())
    assert find_stage_starts(view, reads, stages=3) == [3, 5]
    assert find_stage_starts(view, reads, stages=2, stage_layers=(1, 2)) == [3]


def test_a_stage_of_a_shared_parameter_begins_where_it_is_read_again():
    view = chain(("table",), ("a",), ("b",), ("table",))
    assert find_stage_starts(view, ["table", "a", "b", "table"], stages=4) == [1, 2, 3]


def test_a_unit_without_parameters_goes_with_the_stage_before():
    view = chain(("a",), (), ("b",), ())
    assert find_stage_starts(view, ["a", "b"], stages=2) == [1]


def test_a_stage_without_parameters_is_refused():
    view = chain(("a",), (), ("b",), ())
    with pytest.raises(InputError, match="would hold no parameter"):
        find_stage_starts(view, ["a", "b"], stages=4)


def test_more_stages_than_layers_are_refused():
    with pytest.raises(InputError, match="3 stages are more than the 2 layers"):
        find_stage_starts(chain(("a",), ("b",)), ["a", "b"], stages=3)


def test_a_module_that_reads_other_parameters_than_its_view_is_refused():
    with pytest.raises(InputError, match="reads 3 parameters, its view 2"):
        find_stage_starts(chain(("a",), ("b",)), ["a", "b", "c"], stages=2)


def test_parameters_of_equal_layers_split_alike():
    known = {"layers.0.up": ((4, 2), 0), "layers.0.norm": ((2,), None), "head": ((8, 2), 0)}
    shapes = {"layers.0.up": (4, 2), "layers.7.up": (4, 2), "layers.7.norm": (2,), "other": (4, 2)}
    assert match_splits(known, shapes) == {
        "layers.0.up": 0,
        "layers.7.up": 0,
        "layers.7.norm": None,
        "other": None,
    }


def test_the_planners_seeds_split_the_parameters_of_a_transformer():
    view = computation(TransformerModel(hidden=64, layers=2, heads=4, seq=16, vocab=128))
    shapes = {
        name: tensor.shape for name, tensor in view.tensors.items() if tensor.kind == "parameter"
    }
    found = split_dimensions(view, shapes, sequence_parallel=False)
    assert found["mlp.up.weight"] is not None
    assert {name for name in found if "norm" in name and found[name] is not None} == set()
