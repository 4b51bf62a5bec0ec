"""Whatever is accepted of a type runs in PyTorch, and gives the shape that was inferred."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_training.documents.loading import dump_yaml
from airflow_training.networks.catalogue import LayerType, ParamType, shipped_types
from airflow_training.networks.reading import parse_network
from tests.networks.generated import import_generated, samples

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.filterwarnings(
        "ignore:Using padding='same'"
    ),  # torch says that it copies its input then
]

_COUNT = st.sampled_from([1, 2, 3, 4, 6, 8])
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "count": _COUNT,
    "dim": st.integers(-3, 4),
    "dims": st.permutations([1, 2, 3]).map(lambda order: [0, *order]),
    "flag": st.booleans(),
    "integer": st.integers(-4, 4),
    "number": st.sampled_from([1e-3, 0.5]),
    "shape": st.lists(_COUNT, max_size=3),
    "share": st.sampled_from([0.0, 0.25]),
    "size": st.integers(0, 3),
    "sizes": st.integers(0, 2) | st.lists(st.integers(0, 2), min_size=1, max_size=2),
    "strides": st.integers(1, 3) | st.lists(st.integers(1, 3), min_size=1, max_size=2),
    "word": st.nothing(),
}


def _value(param: ParamType) -> st.SearchStrategy[Any]:
    words = [each for each in param.choices if isinstance(each, str)]
    return _VALUES[param.type] | (st.sampled_from(words) if words else st.nothing())


@st.composite
def documents(draw: st.DrawFn, name: str, kind: LayerType) -> dict[str, Any]:
    """Draw a network around one layer of a type, good or not."""
    rank = draw(st.sampled_from(kind.ranks or [0, 1, 2, 3]))
    sizes = st.sampled_from([4, 6, 8, 12])
    shape = draw(st.lists(sizes, min_size=rank, max_size=rank))
    least, most = kind.input_counts
    layers = []
    for position in range(draw(st.integers(least, least + 1 if most is None else most))):
        dtype = kind.wanted_dtype(position if kind.dtypes else 0)
        dtype = "float32" if dtype == "any" else dtype
        own = shape[1:] if position and dtype == "int64" else shape
        params = {"shape": own, "dtype": dtype}
        layers.append({"name": f"in{position}", "type": "Input", "params": params})
    params = {
        key: draw(_value(param))
        for key, param in kind.params.items()
        if not param.infer and (not (param.has_default or param.fill) or draw(st.booleans()))
    }
    inputs = [each["name"] for each in layers]
    layer = {"name": "layer", "type": name, "inputs": inputs, "params": params}
    # what is a number for each sample only is no output of a net
    around = {"name": "same", "type": "Reshape", "inputs": inputs[:1], "params": {"shape": shape}}
    head = {"apiVersion": "airflow-training/v1", "kind": "Network", "metadata": {"name": "one"}}
    phase = {"phase": ["train", "test"]}
    return {**head, "spec": {"layers": [*layers, {**layer, **phase}, around]}}


TYPES = [name for name, kind in shipped_types().items() if kind.kind != "input"]


@pytest.mark.parametrize("name", TYPES)
def test_what_is_accepted_runs(name: str, tmp_path_factory: pytest.TempPathFactory):
    import torch

    folder: Path = tmp_path_factory.mktemp("net")
    kind = shipped_types()[name]
    accepted = 0

    @given(documents(name, kind))
    def run(document: dict[str, Any]) -> None:
        nonlocal accepted
        network, problems = parse_network(dump_yaml(document))
        if network is None:
            assert all("layer 'layer'" in problem.message for problem in problems)
            return
        accepted += 1
        module = import_generated(network, folder)
        with torch.device("meta"):
            net = module.TrainNet()
            batch = {key: value.to("meta") for key, value in samples(network, 2).items()}
        found = net(**batch)["layer"]
        wanted = network.layers["layer"].inferred.output.shape
        assert tuple(found.shape) == ((2, *wanted) if kind.kind == "layer" else ())
        assert (
            network.layers["layer"].inferred.parameters
            == sum(math.prod(each.shape) for each in net.layer.parameters())
            if hasattr(net, "layer")
            else True
        )

    run()
    assert accepted
