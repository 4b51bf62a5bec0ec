"""Resharding moves the right elements, as few of them as there can be, and says how many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_training.planning.reshard.distribution import Distribution, Mesh
from airflow_training.planning.reshard.reshard import reshard
from airflow_training.planning.view.computation import Tensor
from tests.examples import examples
from tests.planning.brute_force import fewest_elements
from tests.planning.distributions import distributions, meshes, shapes
from tests.planning.execution import collect, distribute, perform


@st.composite
def problems(draw, devices=12, max_axes=3, meshes_of=2, odd_sizes=True):
    """Draw a shape and two distributions, half of them on two meshes that may overlap."""
    shape = draw(shapes)
    mesh = draw(meshes(devices, max_axes))
    other = draw(meshes(devices, max_axes)) if meshes_of == 2 and draw(st.booleans()) else mesh
    return (
        shape,
        draw(distributions(mesh, shape, odd_sizes=odd_sizes)),
        draw(distributions(other, shape, odd_sizes=odd_sizes)),
    )


def path(shape, source, target, element_bytes=1.0):
    tensor = Tensor(name="x", shape=shape, axes=("",) * len(shape))
    return reshard(tensor, source, target, element_bytes=element_bytes)


def received_bytes(found):
    return sum(step.received_bytes for step in found.steps)


@settings(max_examples=examples(200), deadline=None)
@given(problems(devices=16))
def test_a_reshard_keeps_the_value_and_tells_what_it_receives(problem):
    shape, source, target = problem
    value = np.arange(np.prod(shape, dtype=int)).reshape(shape) * 7 - 11
    tensor = distribute(value, source)
    found = path(shape, source, target)
    for step in found.steps:
        tensor, received = perform(step, tensor)
        assert received == step.received, step.kind
        assert step.busiest <= received
        assert step.busiest * len(step.target.mesh.devices) >= received
    assert np.array_equal(collect(tensor), value)
    for device, part in tensor.parts.items():
        start, stop = target.bounds(shape)[target.mesh.devices.index(device)].T
        assert part.shape == tuple(stop - start)


@settings(max_examples=examples(60), deadline=None)
@given(problems(devices=10, max_axes=2, odd_sizes=False))
def test_it_receives_the_least_that_any_way_does(problem):
    shape, source, target = problem
    assert received_bytes(path(shape, source, target)) == fewest_elements(shape, source, target)


@settings(max_examples=examples(15), deadline=None)
@given(problems(meshes_of=1, odd_sizes=False))
def test_it_receives_the_least_on_three_axes(problem):
    shape, source, target = problem
    assert received_bytes(path(shape, source, target)) == fewest_elements(shape, source, target)


ALONE = Mesh.of({"a": 2, "b": 2})


@example(  # the last device has everything, and its rows become terms where they lie
    (
        (1, 2),
        replace(Distribution.of(ALONE, 2, {0: "a", 1: "b"}), sizes=((0, 1), (0, 2))),
        Distribution.of(ALONE, 2, {1: "b"}, partial=["a"]),
    )
)
@settings(max_examples=examples(60), deadline=None)
@given(problems(devices=10, max_axes=2))
def test_with_slices_of_any_size_no_other_way_receives_less(problem):
    """It may find less: it also stops at slices that brute force does not think of."""
    shape, source, target = problem
    assert received_bytes(path(shape, source, target)) <= fewest_elements(shape, source, target)


LINE = Mesh.of({"tp": 4})
GRID = Mesh.of({"dp": 2, "tp": 4})


def lies(mesh, split=None, **more):
    return Distribution.of(mesh, 2, split or {}, **more)


@pytest.mark.parametrize(
    ("source", "target", "kinds", "received"),
    [
        pytest.param(lies(LINE), lies(LINE), [], 0, id="nothing"),
        pytest.param(lies(LINE), lies(LINE, {0: "tp"}), ["slice"], 0, id="replicated-to-shard"),
        pytest.param(
            lies(LINE, {0: "tp"}), lies(LINE), ["all_gather"], 3 * 64, id="shard-to-whole"
        ),
        pytest.param(
            lies(LINE, partial=["tp"]), lies(LINE), ["all_reduce"], 2 * 3 * 64, id="terms-to-whole"
        ),
        pytest.param(
            lies(LINE, partial=["tp"]),
            lies(LINE, {1: "tp"}),
            ["reduce_scatter"],
            3 * 64,
            id="terms-to-shard",
        ),
        pytest.param(
            lies(LINE, {0: "tp"}), lies(LINE, {1: "tp"}), ["all_to_all"], 48, id="shard-to-shard"
        ),
        pytest.param(lies(LINE), lies(LINE, partial=["tp"]), ["mask"], 0, id="whole-to-terms"),
        pytest.param(
            lies(GRID, {0: ("dp", "tp")}),
            lies(GRID, {0: ("tp", "dp")}),
            ["send_recv"],
            48,
            id="axes-in-another-order",
        ),
        pytest.param(
            lies(GRID, {0: "dp"}, partial=["tp"]),
            lies(GRID, {0: "dp", 1: "tp"}),
            ["reduce_scatter"],
            3 * 64,
            id="beside-another-axis",
        ),
        pytest.param(
            lies(GRID, partial=["tp"]),
            lies(GRID),
            ["reduce_scatter", "all_gather"],
            2 * 3 * 64 + 4 * 64,
            id="replicas-share-a-sum",
        ),
        pytest.param(
            lies(LINE, {0: "tp"}),
            lies(Mesh.of({"tp": 4}, first=4), {0: "tp"}),
            ["send_recv"],
            64,
            id="other-devices",
        ),
        pytest.param(
            lies(LINE, {0: "tp"}),
            lies(Mesh.of({"tp": 4}, first=2), {0: "tp"}),
            ["send_recv"],
            64,
            id="overlapping-devices",
        ),
        pytest.param(
            lies(LINE),
            lies(Mesh.of({"tp": 4}, first=4)),
            ["send_recv"],
            4 * 64,
            id="whole-to-other-devices",
        ),
        pytest.param(
            lies(Mesh.of({"x": 8}), {0: "x"}),
            lies(GRID, {0: ("dp", "tp")}),
            ["slice"],
            0,
            id="same-parts-by-another-name",
        ),
    ],
)
def test_the_steps_are_the_collectives_one_expects(source, target, kinds, received):
    found = path((8, 8), source, target, element_bytes=2.0)
    assert [step.kind for step in found.steps] == kinds
    assert received_bytes(found) == 2 * received


def test_uneven_slices_that_move_along_a_dimension_send_only_what_changes_hands():
    mesh = Mesh.of({"tp": 2})
    source = Distribution(mesh=mesh, dims=(("tp",),), sizes=((6, 2),))
    target = Distribution(mesh=mesh, dims=(("tp",),), sizes=((3, 5),))
    found = path((8,), source, target)
    assert [(step.kind, step.received, step.busiest) for step in found.steps] == [
        ("send_recv", 3, 3.0)
    ]


def test_what_one_device_receives_of_a_ring_does_not_grow_with_the_group():
    for devices in (2, 8, 64):
        mesh = Mesh.of({"dp": devices})
        found = path((64, 64), lies(mesh, partial=["dp"]), lies(mesh), element_bytes=4.0)
        assert (
            sum(step.busiest_bytes for step in found.steps)
            == 4.0 * 64 * 64 * 2 * (devices - 1) / devices
        )
        assert found.steps[0].payload_bytes == 4.0 * 64 * 64


def test_a_reshard_on_a_thousand_devices_is_found_at_once():
    mesh = Mesh.of({"pp": 8, "dp": 16, "tp": 8})
    source = Distribution.of(mesh, 3, {0: "dp", 1: "tp"}, partial=["pp"])
    target = Distribution.of(mesh, 3, {2: ("dp", "tp"), 0: "pp"})
    found = path((64, 64, 64), source, target)
    assert [step.kind for step in found.steps] == ["reduce_scatter", "send_recv"]
