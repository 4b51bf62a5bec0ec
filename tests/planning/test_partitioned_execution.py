"""A view that is split over devices computes what it computes on one, bit for bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.planning.reshard.distribution import Mesh
from airflow_training.planning.reshard.propagation import complete
from tests.examples import examples
from tests.planning.distributions import meshes
from tests.planning.execution import collect
from tests.planning.view_execution import run_distributed, run_serial
from tests.planning.views import ROWS, partial_annotations, views


@st.composite
def split_views(draw):
    view, numbers = draw(views())
    mesh = draw(meshes())
    seeds = draw(partial_annotations(view, mesh))
    places = draw(st.lists(st.permutations(range(16)), min_size=len(view.units), max_size=3))
    own = draw(st.sets(st.sampled_from([unit.name for unit in view.units])))
    placement = {
        unit.name: Mesh(mesh.axes, mesh.shape, tuple(devices[: len(mesh.devices)]))
        for unit, devices in zip(view.units, places, strict=False)
        if unit.name in own
    }
    shares = {
        axis: draw(st.lists(st.integers(0, 3), min_size=size, max_size=size).filter(any))
        for axis, size in zip(mesh.axes, mesh.shape, strict=True)
        if draw(st.booleans())
    }
    return view, numbers, complete(view, mesh, seeds, placement=placement, shares=shares)


@settings(max_examples=examples(200), deadline=None)
@given(split_views(), st.integers(0, 99))
def test_parts_compute_what_the_whole_does(problem, seed):
    view, numbers, distributed = problem
    random = np.random.default_rng(seed)
    made = {name for operator in view.operators for name in operator.outputs}
    values = {
        name: random.integers(0, ROWS, tensor.shape)
        if name in numbers
        else random.integers(-9, 9, tensor.shape)
        for name, tensor in view.tensors.items()
        if name not in made
    }
    serial = run_serial(view, values)
    parts = run_distributed(distributed, values)
    assert parts.keys() == view.tensors.keys()
    for name, tensor in parts.items():
        assert np.array_equal(collect(tensor), serial[name]), name
