"""How tensors lie on meshes, and which mistakes are told."""

from __future__ import annotations

import pytest

from airflow_training.errors import InputError
from airflow_training.planning.reshard.distribution import Distribution, Mesh, even_slices

MESH = Mesh.of({"dp": 2, "tp": 3}, first=10)


def test_the_last_axis_of_a_mesh_runs_fastest():
    assert MESH.devices == (10, 11, 12, 13, 14, 15)
    assert MESH.groups("tp") == ((0, 1, 2), (3, 4, 5))
    assert MESH.groups("dp") == ((0, 3), (1, 4), (2, 5))
    assert MESH.groups("tp", "dp") == ((0, 3, 1, 4, 2, 5),)


@pytest.mark.parametrize(
    ("size", "parts", "expected"),
    [
        pytest.param(6, (3,), (2, 2, 2), id="divides"),
        pytest.param(7, (3,), (3, 2, 2), id="bigger-slices-first"),
        pytest.param(2, (3,), (1, 1, 0), id="more-parts-than-elements"),
        pytest.param(7, (2, 3), (2, 1, 1, 1, 1, 1), id="an-axis-splits-what-the-one-before-left"),
        pytest.param(5, (), (5,), id="whole"),
    ],
)
def test_even_slices(size, parts, expected):
    assert even_slices(size, *parts) == expected


def test_each_device_has_its_part():
    lies = Distribution.of(MESH, 2, {1: ("tp", "dp")})
    assert lies.bounds((4, 7))[:, 0].tolist() == [[0, 4]] * 6
    assert lies.bounds((4, 7))[:, 1].tolist() == [[0, 2], [3, 4], [5, 6], [2, 3], [4, 5], [6, 7]]


def test_slices_may_have_sizes_of_their_own():
    lies = Distribution(mesh=MESH, dims=(("dp",),), partial=("tp",), sizes=((1, 4),))
    assert lies.bounds((5,))[:, 0].tolist() == [[0, 1]] * 3 + [[1, 5]] * 3
    assert lies.replicated == ()


def test_equal_distributions_are_equal_however_they_are_written():
    one = Distribution(mesh=MESH, dims=((),), partial=("tp", "dp"))
    other = Distribution(mesh=MESH, dims=((),), partial=("dp", "tp"), sizes=(None,))
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(
            lambda: Distribution.of(MESH, 1, {0: "pp"}),
            "axis: the mesh has no such axis\n  allowed: dp, tp",
            id="unknown-axis",
        ),
        pytest.param(
            lambda: Distribution.of(MESH, 2, {0: "tp", 1: "tp"}),
            "axis: an axis splits (or sums) a tensor once",
            id="axis-twice",
        ),
        pytest.param(
            lambda: Distribution(mesh=MESH, dims=(("tp",),), sizes=((1, 2),)),
            "sizes: needs 3 slices",
            id="wrong-number-of-slices",
        ),
        pytest.param(
            lambda: Distribution(mesh=MESH, dims=(("dp",),), sizes=((1, 2),)).bounds((4,)),
            "sizes: slices sum to 3, not to 4",
            id="slices-of-another-tensor",
        ),
        pytest.param(
            lambda: Mesh(("tp",), (2,), (0, 0)),
            "mesh.devices: a device stands on a mesh once",
            id="device-twice",
        ),
        pytest.param(
            lambda: Mesh(("tp",), (2,), (0,)),
            "mesh.devices: 1 devices for 2 places",
            id="too-few-devices",
        ),
        pytest.param(
            lambda: Mesh(("tp", "tp"), (1, 1), (0,)),
            "mesh.axes: needs one own name per size of (1, 1)",
            id="axis-names-twice",
        ),
        pytest.param(lambda: Mesh.of({"tp": 0}), "mesh.shape: sizes start at 1", id="empty-mesh"),
    ],
)
def test_a_mistake_is_told(make, message):
    with pytest.raises(InputError) as told:
        make()
    assert str(told.value) == message
