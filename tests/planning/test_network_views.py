"""A network described as layers, as the planner reads it: the operations, parameters and mistakes of the network."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from airflow_training.documents.loading import load_documents
from airflow_training.errors import InputError
from airflow_training.networks.reading import parse_network
from airflow_training.planning.answers.one_device import one_device_memory
from airflow_training.planning.sources.models import read_model
from airflow_training.planning.sources.networks import network_view
from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.rules import rule_of
from tests.networks.generated import FIXTURES, fixture

NAMES = sorted(path.stem for path in FIXTURES.glob("*.yaml"))
CAUSAL = {"gpt-tiny", "gpt2-small", "transformer-base"}
"""Their attention skips half of its products; torch's counter counts them all."""
PRODUCTS = frozenset({"matmul", "conv", "attention"})


def operations(view: ComputationView) -> float:
    """Return the operations of products for one sample; each of their factors must have one size."""
    by_name = {each.name: each for each in view.operators}
    repeats = {name: unit.repeat for unit in view.units for name in unit.operators}
    total = 0.0
    for each in view.operators:
        rule = rule_of(each, view.tensors, by_name)
        assert rule.known, each.kind
        if rule.kind not in PRODUCTS:
            continue
        sizes: dict[str, int] = {}
        dims = (*rule.inputs, *rule.outputs)
        for name, factors in zip((*each.inputs, *each.outputs), dims, strict=True):
            for size, factor in zip(view.tensors[name].shape, factors, strict=True):
                if factor:
                    assert sizes.setdefault(factor, size) == size, each
        total += rule.flops * prod(sizes.values()) * repeats[each.name] / view.batch
    return total


def parameters(view: ComputationView) -> int:
    by_name = {each.name: each for each in view.operators}
    counts: dict[str, int] = {}
    for unit in view.units:
        for operator in unit.operators:
            for name in by_name[operator].inputs:
                if view.tensors[name].kind == "parameter":
                    counts[name] = max(counts.get(name, 0), unit.repeat)
    return sum(prod(view.tensors[name].shape) * count for name, count in counts.items())


@pytest.mark.parametrize("name", NAMES)
def test_a_view_has_the_operations_and_parameters_of_the_network(name: str):
    network = fixture(name)
    view = network_view(network)
    own = sum(each.parameters for each in network.layers.values() if "train" in each.flat.phase)
    assert parameters(view) == own
    wanted = network.flops("train")
    if name in CAUSAL:
        assert 0.9 * wanted < operations(view) < wanted
    else:
        assert operations(view) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("name", ["lenet", "resnet50", "gpt2-small", "u-net", "mixture-of-experts"])
def test_memory_grows_with_the_batch_and_states_do_not(name: str):
    network = fixture(name)
    view = network_view(network)
    small, large = (one_device_memory(view, batch_size=size) for size in (8, 16))
    states = {"weights": 4, "gradients": 4, "optimizer": 8}
    for part, each in states.items():
        assert small[part] == large[part] == each * network.parameters
    assert large["activations"] == 2 * small["activations"]


def test_what_repeats_is_one_unit():
    units = network_view(fixture("gpt2-small")).units
    assert max(each.repeat for each in units) >= 11


def test_a_file_and_a_document_are_read_as_models():
    path = FIXTURES / "lenet.yaml"
    (document,) = load_documents(path.read_text(encoding="utf-8"))
    assert read_model(str(path)) == read_model(document.data) == network_view(fixture("lenet"))


def test_mistakes_of_a_network_are_told_where_the_model_stands(tmp_path: Path):
    text = (FIXTURES / "lenet.yaml").read_text(encoding="utf-8")
    text = text.replace("kernel_size: 5,", "kernel_size: 50,")
    (document,) = load_documents(text)
    with pytest.raises(InputError) as caught:
        read_model(document.data, at=("spec", "plan", "model"))
    (problem,) = caught.value.problems
    assert problem.field == "spec.plan.model.spec.layers[2].params.kernel_size"
    assert "layer 'conv1'" in problem.message
    path = tmp_path / "broken.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_model(str(path))
    (problem,) = caught.value.problems
    assert (problem.line, problem.field) == (8, "spec.layers[2].params.kernel_size")


HEAD = """\
apiVersion: airflow-training/v1
kind: Network
metadata: {name: places}
spec:
  layers:
    - {name: x, type: Input, params: {shape: [4, 3]}}
    - {name: wanted, type: Input, params: {shape: [4, 6]}}
    - {name: place, type: Positions, inputs: [x]}
"""


def test_positions_are_looked_up_once_for_all_samples():
    network, problems = parse_network(
        f"{HEAD}"
        "    - {name: rows, type: Embedding, params: {num_embeddings: 4, embedding_dim: 3}}\n"
        "    - {name: join, type: Concat, inputs: [x, rows], params: {dim: 2}}\n"
        "    - {name: loss, type: MSELoss, inputs: [join, wanted]}\n"
    )
    assert network is not None, problems
    view = network_view(network)
    assert view.tensors["rows.rows"].shape == (4, 3)
    assert view.tensors["join.out"].shape == (2, 4, 6)


@pytest.mark.e2e
@pytest.mark.filterwarnings("ignore")  # of torch: as errors they would end its export
@pytest.mark.parametrize("name", ["gpt-tiny", "lenet", "mnist-convnet", "mobilenet-v2", "resnet18"])
def test_memory_is_that_of_the_module_traced(name: str, tmp_path: Path):
    import torch

    from airflow_training.planning.sources.torch import trace
    from tests.networks.generated import import_generated, samples

    network = fixture(name)
    module = import_generated(network, tmp_path)

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = module.TrainNet()

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            loss: torch.Tensor = self.net(*inputs)["loss"]
            return loss

    with torch.device("meta"):
        whole = Loss()
        batch = tuple(value.to("meta") for value in samples(network, 4).values())
    traced = one_device_memory(trace(whole, batch), batch_size=32)
    assert one_device_memory(network_view(network), batch_size=32) == pytest.approx(
        traced, rel=0.01
    )


def test_a_network_of_too_many_operators_is_refused_where_the_model_stands():
    layers = [
        {"name": "x", "type": "Input", "params": {"shape": [3, 4]}},
        {
            "name": "b",
            "repeat": 40,
            "layers": [
                {"name": "l", "type": "LSTM", "params": {"hidden_size": 4, "num_layers": 1000}}
            ],
        },
    ]
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "Network",
        "metadata": {"name": "deep"},
        "spec": {"layers": layers},
    }
    with pytest.raises(InputError, match="more than 100000 operators") as caught:
        read_model(document, at=("spec", "plan", "model"))
    assert caught.value.problems[0].field == "spec.plan.model"
