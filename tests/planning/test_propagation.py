"""A partial annotation is completed to the same fixed point from whatever side it comes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.errors import InputError
from airflow_training.planning.reshard.distribution import Mesh
from airflow_training.planning.reshard.propagation import OperatorPlacement, complete
from airflow_training.planning.view.builder import ViewBuilder
from airflow_training.planning.view.computation import Operator
from airflow_training.planning.view.labels import AxisSeed, Labels, resolve_labels
from airflow_training.planning.view.rules import rule_of
from airflow_training.planning.view.training import with_backward
from tests.examples import examples
from tests.planning import networks
from tests.planning.distributions import meshes
from tests.planning.views import partial_annotations, views


@st.composite
def problems(draw):
    view, _ = draw(views())
    mesh = draw(meshes())
    return view, mesh, draw(partial_annotations(view, mesh))


def rules_of(view):
    known = {operator.name: operator for operator in view.operators}
    return {name: rule_of(operator, view.tensors, known) for name, operator in known.items()}


@settings(max_examples=examples(60), deadline=None)
@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_the_seeds_does_not_matter(problem, random):
    view, mesh, seeds = problem
    shuffled = list(seeds)
    random.shuffle(shuffled)
    assert complete(view, mesh, shuffled) == complete(view, mesh, seeds)


@settings(max_examples=examples(60), deadline=None)
@given(problems())
def test_what_is_known_stays(problem):
    view, mesh, seeds = problem
    done = complete(view, mesh, seeds)
    for seed in seeds:
        dims = done.tensors[seed.tensor].dims
        split = [dim for dim, axes in enumerate(dims) if seed.axis in axes]
        assert split == ([] if seed.dim is None else [seed.dim])


@settings(max_examples=examples(60), deadline=None)
@given(problems())
def test_nothing_is_left_to_fill_in(problem):
    view, mesh, seeds = problem
    rules = rules_of(view)
    closed = {(seed.tensor, seed.axis) for seed in seeds if seed.dim is None}
    for axis, labels in resolve_labels(view, rules, mesh.axes, seeds).items():
        for operator, name, dim, factor in edges(view, rules):
            runs_split = labels.operators.get(operator)
            if labels.tensors.get(name) == dim:
                assert runs_split, f"{operator} could follow {name}"
            if runs_split == factor and view.tensors[name].shape[dim] > 1:
                assert name in labels.tensors or (name, axis) in closed, f"{name}: {operator}"


def edges(view, rules):
    """Yield every dimension that an operator could be split along."""
    for operator in view.operators:
        rule = rules[operator.name]
        names = (*operator.inputs, *operator.outputs)
        for name, box in zip(names, (*rule.inputs, *rule.outputs), strict=True):
            for dim, factor in enumerate(box):
                if factor and factor not in rule.whole:
                    yield operator.name, name, dim, factor


@settings(max_examples=examples(60), deadline=None)
@given(problems())
def test_completing_what_is_complete_changes_nothing(problem):
    view, mesh, seeds = problem
    rules = rules_of(view)
    once = resolve_labels(view, rules, mesh.axes, seeds)
    known = [
        AxisSeed(name, axis, dim, 9)
        for axis, labels in once.items()
        for name, dim in labels.tensors.items()
    ]
    assert resolve_labels(view, rules, mesh.axes, [*known, *seeds]) == once


@settings(max_examples=examples(60), deadline=None)
@given(problems())
def test_the_axes_of_a_mesh_do_not_disturb_each_other(problem):
    view, mesh, seeds = problem
    rules = rules_of(view)
    together = resolve_labels(view, rules, mesh.axes, seeds)
    for axis in mesh.axes:
        alone = [seed for seed in seeds if seed.axis == axis]
        assert resolve_labels(view, rules, (axis,), alone) == {axis: together[axis]}


def test_a_backward_pass_mirrors_the_forward_pass():
    view = with_backward(networks.mlp(8, 12, 6, 4, batch=6))
    known = {operator.name: operator for operator in view.operators}
    seeds = [AxisSeed("w0", "tp", 1), AxisSeed("x", "dp", 0)]
    for labels in resolve_labels(view, rules_of(view), ("dp", "tp"), seeds).values():
        for name, factor in labels.operators.items():
            of = known[name].of
            if of in labels.operators and known[name].kind != "reduce":
                assert factor == labels.operators[of]
        for name, dim in labels.tensors.items():
            gradient = f"d:{name}"
            if gradient in view.tensors:
                assert labels.tensors[gradient] == dim


def test_columns_then_rows_cost_one_reduction():
    view = networks.mlp(8, 12, 6, batch=4)
    done = complete(view, Mesh.of({"tp": 2}), [AxisSeed("w0", "tp", 1)])
    assert done.tensors["b0"].dims == (("tp",),)
    assert done.tensors["w1"].dims == (("tp",), ())
    (reshard,) = done.reshards
    assert (reshard.tensor, reshard.source.partial, reshard.target.dims) == (
        "y1",
        ("tp",),
        ((), ()),
    )


def test_a_split_that_leaves_a_sum_is_the_last_resort():
    build = ViewBuilder("either", batch=1)
    a, b = build.parameter("a", ("", 4), ("", 6)), build.parameter("b", ("", 6), ("", 8))
    out = build.tensor("out", (("", 4), ("", 8)))
    build.operator("product", "matmul", (a, b), (out,), equation="mk,kn->mn")
    build.unit("all")
    seeds = [AxisSeed("a", "tp", 1), AxisSeed("out", "tp", 0)]
    done = complete(build.view(), Mesh.of({"tp": 2}), seeds)
    assert [(r.tensor, r.target.dims) for r in done.reshards] == [("a", (("tp",), ()))]


def test_a_sum_of_partial_sums_is_reduced_once():
    build = ViewBuilder("sums", batch=4)
    dims = (("batch", 4), ("", 6))
    x = build.tensor("x", dims, kind="input")
    parts = []
    for name in "abc":
        weight = build.parameter(f"w{name}", ("", 6), ("", 6))
        parts.append(build.tensor(name, dims))
        build.operator(f"fc{name}", "matmul", (x, weight), (name,), equation="bm,mn->bn")
    build.operator("total", "sum_of", parts, (build.tensor("total", dims),))
    build.unit("all")
    done = complete(build.view(), Mesh.of({"tp": 2}), [AxisSeed("x", "tp", 1)])
    assert [(r.tensor, r.source.partial) for r in done.reshards] == [("total", ("tp",))]


def test_another_placement_alone_sends_and_receives():
    view = networks.mlp(8, 12, 6, batch=4)
    near, far = Mesh.of({"dp": 2}), Mesh.of({"dp": 2}, first=2)
    done = complete(view, near, [AxisSeed("x", "dp", 0)], placement={"head": far})
    (reshard,) = [r for r in done.reshards if r.tensor == "relu0"]
    assert (reshard.source.mesh, reshard.target.mesh) == (near, far)
    assert replace(reshard.source, mesh=far) == reshard.target
    assert [step.kind for step in done.path(reshard).steps] == ["send_recv"]
    runs = {
        step.operator.name: step.mesh for step in done.steps if isinstance(step, OperatorPlacement)
    }
    assert (runs["fc0"], runs["fc1"]) == (near, far)


def test_slices_may_be_uneven():
    view = networks.mlp(8, 10, 6, batch=4)
    done = complete(view, Mesh.of({"tp": 4}), [AxisSeed("w0", "tp", 1)])
    assert done.tensors["y0"].slices((4, 10), 1) == (3, 3, 2, 2)


def test_faster_devices_take_larger_slices():
    view = networks.mlp(8, 10, 6, batch=4)
    seeds = [AxisSeed("w0", "tp", 1)]
    done = complete(view, Mesh.of({"tp": 3}), seeds, shares={"tp": (3, 1, 1)})
    assert done.tensors["y0"].slices((4, 10), 1) == (6, 2, 2)
    assert [r.tensor for r in done.reshards] == ["y1"], "all that is split is split alike"


def test_loops_and_branches_are_laid_open():
    turn = ViewBuilder("turn", batch=4)
    dims = (("batch", 4), ("", 8))
    carried = turn.tensor("carried", dims, kind="input")
    turn.operator(
        "f",
        "elementwise",
        (carried,),
        (turn.tensor("after", dims, kind="output"),),
        function="tanh",
    )
    turn.unit("all")
    build = ViewBuilder("loop", batch=4)
    x, y = build.tensor("x", dims, kind="input"), build.tensor("y", dims, kind="output")
    body = (turn.view(),)
    build.add(
        Operator(name="loop", kind="while_loop", inputs=(x,), outputs=(y,), count=3.0, bodies=body)
    )
    build.unit("all")
    done = complete(build.view(), Mesh.of({"dp": 2}), [AxisSeed("x", "dp", 0)])
    assert done.tensors["y"].dims == (("dp",), ())
    assert not done.warnings
    assert not done.reshards


def test_query_heads_stay_with_their_keys():
    build = ViewBuilder("attention", batch=1)
    dims = {"q": 12, "k": 3, "v": 3, "out": 12}
    for name, heads in dims.items():
        build.tensor(name, (("batch", 1), ("sequence", 4), ("heads", heads), ("head", 2)))
    build.operator("core", "attention", ("q", "k", "v"), ("out",))
    build.unit("all")
    done = complete(build.view(), Mesh.of({"tp": 2}), [AxisSeed("k", "tp", 2)])
    (placed,) = [step for step in done.steps if isinstance(step, OperatorPlacement)]
    assert placed.inputs[0].slices((1, 4, 12, 2), 2) == (8, 4)
    assert placed.inputs[1].slices((1, 4, 3, 2), 2) == (2, 1)


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ([AxisSeed("w00", "tp", 1)], ["tensor: no such tensor: 'w00'", "did you mean 'w0'"]),
        ([AxisSeed("w0", "tq", 1)], ["axis: the mesh has no such axis: 'tq'", "allowed: tp"]),
        ([AxisSeed("w0", "tp", 2)], ["dim: w0 has dimensions 0 to 1: 2"]),
        (
            [AxisSeed("w0", "tp", 0), AxisSeed("w0", "tp", 1)],
            ["dim: tp is to split dimension 0 of w0 too: 1"],
        ),
    ],
)
def test_annotations_that_cannot_be_are_refused(seeds, words):
    with pytest.raises(InputError) as caught:
        complete(networks.mlp(8, 12, 6), Mesh.of({"tp": 2}), seeds)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("shares", [{"tp": (1, 2, 3)}, {"tp": (0, 0)}, {"dp": (1, 1)}])
def test_shares_are_one_per_device(shares):
    with pytest.raises(InputError, match="shares: "):
        complete(networks.mlp(8, 12, 6), Mesh.of({"tp": 2}), [], shares=shares)


def test_a_placement_needs_a_unit_and_the_same_axes():
    view = networks.mlp(8, 12, 6)
    with pytest.raises(InputError) as caught:
        complete(view, Mesh.of({"tp": 2}), [], placement={"haed": Mesh.of({"dp": 2}, first=2)})
    assert "did you mean 'head'" in str(caught.value)
    assert "needs the same axes" in str(caught.value)


def test_labels_hold_for_any_size_of_the_mesh():
    view = networks.mlp(8, 12, 6)
    seeds = [AxisSeed("w0", "tp", 1)]
    small, large = (complete(view, Mesh.of({"tp": n}), seeds) for n in (2, 4))
    for name, tensor in small.tensors.items():
        assert replace(tensor, mesh=large.tensors[name].mesh) == large.tensors[name]
    assert isinstance(resolve_labels(view, rules_of(view), ("tp",), seeds)["tp"], Labels)
