"""Every rule is right about how its operator can be split: parts put together give the whole."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from airflow_training.planning.reshard.distribution import Mesh
from airflow_training.planning.reshard.propagation import AxisSeed, OperatorPlacement, complete
from airflow_training.planning.view.computation import (
    ComputationView,
    Operator,
    Tensor,
    TensorKind,
    Unit,
)
from airflow_training.planning.view.rules import OperatorRule, kinds, rule, rule_of
from airflow_training.planning.view.rules import registry as registry_module
from tests.planning.execution import collect, distribute
from tests.planning.kernels import KERNELS, run_split, run_whole, values_for

Case = tuple[str, list[tuple[int, ...]], list[tuple[int, ...]], dict[str, Any]]

CASES: list[Case] = [
    ("matmul", [(4, 6), (6, 5)], [(4, 5)], {"equation": "mk,kn->mn"}),
    ("matmul", [(2, 3, 6), (6, 4, 5), (4, 5)], [(2, 3, 4, 5)], {"equation": "bsh,had,ad->bsad"}),
    ("matmul", [(2, 3, 4), (2, 4, 5)], [(2, 3, 5)], {"equation": "erh,ehf->erf"}),
    ("elementwise", [(4, 5), (5,)], [(4, 5)], {"function": "add"}),
    ("elementwise", [(3, 1, 5), (4, 5)], [(3, 4, 5)], {"function": "mul"}),
    ("elementwise", [(3, 4)], [(3, 4)], {"function": "square"}),
    ("reduce", [(3, 4, 5)], [(3, 5)], {"dims": (1,)}),
    ("reduce", [(3, 4)], [(3, 1)], {"dims": (-1,), "keep": True, "function": "max"}),
    ("sum_of", [(3, 4), (3, 4), (3, 4)], [(3, 4)], {}),
    ("transpose", [(2, 3, 4)], [(4, 2, 3)], {"order": (2, 0, 1)}),
    ("reshape", [(4, 3, 5)], [(12, 5)], {}),
    ("reshape", [(12, 1, 4)], [(4, 3, 2, 2)], {}),
    ("expand", [(3, 1, 5)], [(2, 3, 4, 5)], {}),
    ("split", [(3, 7)], [(3, 4), (3, 3)], {"dim": 1}),
    ("split", [(2, 12, 3)], [(2, 6, 3), (2, 3, 3), (2, 3, 3)], {"dim": 1, "interleaved": True}),
    ("concatenate", [(3, 2), (3, 5)], [(3, 7)], {"dim": 1}),
    ("softmax", [(2, 3, 4)], [(2, 3, 4)], {"dim": 1}),
    ("norm", [(2, 3, 4), (4,), (4,)], [(2, 3, 4)], {}),
    ("norm", [(2, 3, 4), (3, 4)], [(2, 3, 4)], {}),
    ("attention", [(2, 6, 4, 3)] * 3, [(2, 6, 4, 3)], {}),
    ("attention", [(2, 4, 6, 3)] * 3, [(2, 4, 6, 3)], {"heads_first": True}),
    ("attention", [(2, 5, 6, 3), (2, 5, 3, 3), (2, 5, 3, 3)], [(2, 5, 6, 3)], {}),
    ("gated", [(3, 2, 4)], [(3, 4)], {}),
    ("embedding", [(3, 4), (7, 5)], [(3, 4, 5)], {}),
    ("cross_entropy", [(3, 4, 7), (3, 4)], [(3, 4)], {}),
    ("conv", [(3, 4, 5, 5), (6, 4, 3, 2), (6,)], [(3, 6, 3, 4)], {}),
    ("conv", [(2, 4, 5, 5), (4, 1, 2, 2)], [(2, 4, 4, 4)], {"groups": 4}),
    ("pool", [(3, 4, 4, 6)], [(3, 4, 2, 3)], {}),
    ("group_norm", [(3, 4, 5), (4,)], [(3, 4, 5)], {}),
]
FOURIER: Case = ("fourier", [(4, 4)], [(4, 4)], {})
NUMBERS = {("embedding", 0), ("cross_entropy", 1)}
UNTESTED = {"adam", "batch_norm", "top_k", "dispatch", "combine", "hand_over"}
"""Element-wise in all their tensors, split only by what they do not mix, or not defined by numbers."""


def view_of(case: Case) -> ComputationView:
    kind, inputs, outputs, attributes = case
    tensors = {}
    for place, shape in enumerate([*inputs, *outputs]):
        name = f"x{place}" if place < len(inputs) else f"y{place - len(inputs)}"
        dtype = "int64" if (kind, place) in NUMBERS else "compute"
        role: TensorKind = "input" if place < len(inputs) else "output"
        axes = ("",) * len(shape)
        tensors[name] = Tensor(name=name, shape=shape, axes=axes, dtype=dtype, kind=role)
    operator = Operator(
        name="op",
        kind=kind,
        inputs=tuple(n for n in tensors if n.startswith("x")),
        outputs=tuple(n for n in tensors if n.startswith("y")),
        attributes=attributes,
    )
    return ComputationView(
        name=kind,
        tensors=tensors,
        operators=(operator,),
        units=(Unit(name="u", operators=("op",)),),
    )


def ids(case: Case) -> str:
    return f"{case[0]}-{'-'.join('x'.join(map(str, shape)) for shape in case[1])}"


@pytest.mark.parametrize("shares", [{}, {"a": (3, 1), "b": (0, 1, 2)}], ids=["even", "uneven"])
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_a_split_operator_computes_what_the_whole_one_does(case, shares):
    view = view_of(case)
    (operator,) = view.operators
    values = values_for(view)
    expected = run_whole(view, operator, values)
    places = [
        (name, dim) for name in operator.inputs for dim in range(len(view.tensors[name].shape))
    ]
    seen: set[str] = set()
    for one, other in product(places, places):
        mesh = Mesh.of({"a": 2, "b": 3})
        seeds = (AxisSeed(one[0], "a", one[1]), AxisSeed(other[0], "b", other[1]))
        (placed,) = [
            s
            for s in complete(view, mesh, seeds, shares=shares).steps
            if isinstance(s, OperatorPlacement)
        ]
        seen.update(placed.factors)
        inputs = [
            distribute(values[name], distribution)
            for name, distribution in zip(operator.inputs, placed.inputs, strict=True)
        ]
        for output, value in zip(run_split(placed, view, inputs), expected, strict=True):
            assert np.array_equal(collect(output), value), (one, other)
    found = rule_of(operator, view.tensors, {})
    boxes = [f for box in found.inputs for f in box]
    assert seen == {f for f in boxes if f} - found.whole, "a factor was never split"


def test_every_kind_is_tested_here_or_named_as_untested():
    tested = {case[0] for case in CASES}
    assert tested == set(KERNELS) - {"unheard_of"}
    assert set(kinds()) == tested | UNTESTED


def test_an_unknown_operator_runs_whole_and_warns():
    done = complete(view_of(FOURIER), Mesh.of({"a": 2}), [AxisSeed("x0", "a", 0)])
    (placed,) = [step for step in done.steps if isinstance(step, OperatorPlacement)]
    assert placed.inputs[0].dims == ((), ())
    assert placed.outputs[0].dims == ((), ())
    (reshard,) = done.reshards
    assert (reshard.tensor, reshard.source.dims) == ("x0", (("a",), ()))
    assert done.warnings == ("no rule for operators of kind 'fourier': every device runs all",)


def test_users_teach_it_a_kind_of_their_own(monkeypatch):
    monkeypatch.setattr(registry_module, "_MAKERS", dict(registry_module._MAKERS))

    @rule("fourier")
    def fourier(operator: Operator, tensors: object) -> OperatorRule:
        return OperatorRule(
            inputs=(("row", "wave"),), outputs=(("row", "wave"),), whole=frozenset({"wave"})
        )

    done = complete(view_of(FOURIER), Mesh.of({"a": 2}), [AxisSeed("x0", "a", 0)])
    assert not done.warnings
    assert not done.reshards
    assert done.tensors["y0"].dims == (("a",), ())
