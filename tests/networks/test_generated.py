"""What is generated is PyTorch that trains: its shapes, counts and operations are those that were inferred."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_training.networks.document import Phase
from airflow_training.networks.names import MODULE_ATTRIBUTES
from airflow_training.networks.reading import parse_network
from tests.networks.generated import FIXTURES, fixture, import_generated, samples

pytestmark = pytest.mark.e2e  # torch takes its time to be imported

MOST_PARAMETERS = 1_000_000
NAMES = sorted(path.stem for path in FIXTURES.glob("*.yaml"))
LARGE = frozenset(name for name in NAMES if fixture(name).parameters > MOST_PARAMETERS)
"""They run in test_large_networks.py: their weights take long to be filled and used."""


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_counts_are_those_of_torch(name: str, tmp_path: Path):
    import torch

    network = fixture(name)
    module = import_generated(network, tmp_path)
    with torch.device("meta"):
        nets: dict[Phase, Any] = {"train": module.TrainNet().eval(), "test": module.TestNet()}
        batch = {key: value.to("meta") for key, value in samples(network, 2).items()}
    for phase, net in nets.items():
        layers = [network.layers[each.layer.name] for each in network.nets[phase].layers]
        for layer in layers:
            if hasattr(net, layer.name):
                own = sum(each.numel() for each in getattr(net, layer.name).parameters())
                assert layer.inferred.parameters == own, layer.name
        assert sum(each.numel() for each in net.parameters()) == sum(
            each.parameters for each in layers
        )
        given = network.nets[phase].inputs
        outputs = net(**{each.layer.name: batch[each.layer.name] for each in given})
        for key, source in network.nets[phase].outputs.items():
            assert tuple(outputs[key].shape[1:]) == network.layers[source].inferred.output.shape


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gpt2-small"])
def test_operations_are_those_that_torch_counts(name: str, tmp_path: Path):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    network = fixture(name)
    module = import_generated(network, tmp_path)
    with torch.device("meta"):
        net = module.TrainNet()
        batch = {key: value.to("meta") for key, value in samples(network, 3).items()}
    with FlopCounterMode(display=False) as counter:
        net(**batch)
    assert counter.get_total_flops() == 3 * network.flops("train")


@pytest.mark.parametrize("name", sorted({*NAMES} - LARGE))
def test_both_nets_run_and_share_their_weights(name: str, tmp_path: Path):
    import torch

    torch.manual_seed(3)
    network = fixture(name)
    module = import_generated(network, tmp_path)
    train = module.TrainNet()
    test = module.TestNet().share(train)
    batch = samples(network, 8)
    optimizer = torch.optim.Adam(train.parameters(), lr=0.01)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = train(**batch)["loss"]
        loss.backward()
        missing = [key for key, each in train.named_parameters() if each.grad is None]
        assert missing == []
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    own = test.state_dict()
    assert all(torch.equal(own[key], value) for key, value in train.state_dict().items())
    given = {each.layer.name: batch[each.layer.name] for each in network.nets["test"].inputs}
    with torch.no_grad():
        answer = test(**given)
    for each in network.nets["test"].of_kind("metric"):
        assert 0 <= float(answer[each.layer.name]) <= 1
    assert "loss" not in answer
    trained = train.eval()(**batch)
    for key in trained.keys() & answer.keys():
        assert torch.allclose(trained[key], answer[key], atol=1e-5)


def test_the_transformer_has_what_that_of_torch_has():
    import torch
    from torch import nn

    with torch.device("meta"):
        own = sum(each.numel() for each in nn.Transformer(batch_first=True).parameters())
    assert fixture("transformer-base").parameters == own


def test_a_tied_weight_is_one_parameter_and_stays_one(tmp_path: Path):
    module = import_generated(fixture("gpt-tiny"), tmp_path)
    train = module.TrainNet()
    test = module.TestNet().share(train)
    assert train.head.weight is train.wte.weight
    assert test.head.weight is train.wte.weight
    assert test.wte.weight is train.wte.weight


def test_a_causal_net_sees_nothing_of_what_comes_later(tmp_path: Path):
    import torch

    network = fixture("gpt-tiny")
    net = import_generated(network, tmp_path).TestNet()
    batch = samples(network, 2, tokens=60)
    before = net(**batch)["logits"]
    batch["tokens"][:, -1] = (batch["tokens"][:, -1] + 1) % 60
    after = net(**batch)["logits"]
    assert torch.allclose(before[..., :-1], after[..., :-1], atol=1e-6)
    assert not torch.allclose(before[..., -1], after[..., -1])


def _ranking(layers: str) -> str:
    head = "apiVersion: airflow-training/v1\nkind: Network\nmetadata: {name: ranking}\n"
    inputs = (
        "    - {name: scores, type: Input, params: {shape: [4]}}\n"
        "    - {name: wanted, type: Input, params: {shape: [4]}}\n"
        "    - {name: same, type: Reshape, inputs: [scores], params: {shape: [4]}}\n"
    )
    return f"{head}spec:\n  layers:\n{inputs}{layers}"


@pytest.mark.parametrize(
    ("type_name", "params", "scores", "wanted", "expected"),
    [
        ("NDCG", "{}", [4.0, 3, 2, 1], [3.0, 2, 1, 0], 1.0),
        # 2^3-1=7 last: 7/log2(5) of the best order's 7/log2(2)
        ("NDCG", "{}", [4.0, 3, 2, 1], [0.0, 0, 0, 3], 0.4306766),
        ("NDCG", "{k: 2}", [4.0, 3, 2, 1], [0.0, 0, 0, 3], 0.0),
        ("NDCG", "{}", [4.0, 3, 2, 1], [0.0, 0, 0, 0], 1.0),
        ("AUC", "{}", [0.9, 0.8, 0.2, 0.1], [1.0, 1, 0, 0], 1.0),
        ("AUC", "{}", [0.9, 0.2, 0.8, 0.1], [1.0, 1, 0, 0], 0.75),
        ("AUC", "{}", [0.5, 0.5, 0.5, 0.5], [1.0, 1, 0, 0], 0.5),
        ("AUC", "{}", [0.5, 0.5, 0.5, 0.5], [1.0, 1, 1, 1], 0.5),
        # one pair of equal scores: log 2
        ("PairwiseRankingLoss", "{}", [1.0, 1, 1, 1], [1.0, 0, 0, 0], 0.6931472),
        ("PairwiseRankingLoss", "{}", [1.0, 1, 1, 1], [1.0, 1, 1, 1], 0.0),
        # equal scores, equal relevance: the entropy of four
        ("ListwiseRankingLoss", "{}", [1.0, 1, 1, 1], [1.0, 1, 1, 1], 1.3862944),
    ],
)
def test_losses_and_metrics_of_lists(
    type_name: str,
    params: str,
    scores: list[float],
    wanted: list[float],
    expected: float,
    tmp_path: Path,
):
    import torch

    layer = f"    - {{name: value, type: {type_name}, inputs: [same, wanted], params: {params}, phase: [train, test]}}\n"
    network, problems = parse_network(_ranking(layer))
    assert network is not None, problems
    net = import_generated(network, tmp_path).TestNet()
    answer = net(torch.tensor([scores]), torch.tensor([wanted]))["value"]
    assert float(answer) == pytest.approx(expected, abs=1e-6)


def test_no_layer_can_have_the_name_of_something_that_a_module_has():
    from torch import nn

    public = {name for name in dir(nn.Module()) if not name.startswith("_")}
    assert public - MODULE_ATTRIBUTES == set()
