"""What is known of a network once it is read: counts as published, both nets, blocks, outputs."""

from __future__ import annotations

import pytest

from airflow_training.networks.reading import parse_network
from airflow_training.networks.resolving import ResolvedNetwork
from tests.networks.generated import FIXTURES, fixture

NAMES = sorted(path.stem for path in FIXTURES.glob("*.yaml"))
HEAD = """\
apiVersion: airflow-training/v1
kind: Network
metadata: {name: small}
spec:
  layers:
    - {name: x, type: Input, params: {shape: [4]}}
"""


def network_of(layers: str) -> ResolvedNetwork:
    network, problems = parse_network(HEAD + layers)
    assert network is not None, problems
    return network


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # torchvision: num_params of the weights IMAGENET1K_V1 in its documentation
        ("alexnet", 61_100_840),
        ("densenet121", 7_978_856),
        ("efficientnet-b0", 5_288_548),
        ("googlenet", 6_624_904),
        ("mobilenet-v2", 3_504_872),
        ("resnet18", 11_689_512),
        ("resnet50", 25_557_032),
        ("resnext50-32x4d", 25_028_904),
        ("squeezenet1-1", 1_235_496),
        ("vgg11", 132_863_336),
        ("vgg16", 138_357_544),
        ("vit-b-16", 86_567_656),
        ("wide-resnet50-2", 68_883_240),
        # Hugging Face: num_parameters() of the models that the files name
        ("bert-base", 109_483_778),
        ("distilbert", 66_955_010),
        ("gpt2-small", 124_439_808),
        # torch.nn.Transformer(), compared with torch itself in test_generated.py
        ("transformer-base", 44_140_544),
        # summaries of the Keras examples that the files name
        ("autoencoder", 50_992),
        ("mnist-convnet", 34_826),
        ("mnist-mlp", 669_706),
        # LeCun et al. 1998 with full connections and no trained pooling, as the PyTorch tutorial has it
        ("lenet", 61_706),
    ],
)
def test_parameters_are_those_that_were_published(name: str, parameters: int):
    assert fixture(name).parameters == parameters


def test_operations_of_a_published_network():
    assert fixture("resnet18").flops("train") / 2 == pytest.approx(1.814e9, rel=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_a_resolved_document_means_the_same(name: str):
    network = fixture(name)
    again, problems = parse_network(network.to_yaml())
    assert problems == []
    assert again is not None
    assert again.to_dict() == network.to_dict()
    assert again.parameters == network.parameters
    for phase, net in network.nets.items():
        assert [(each.layer.name, [*each.inputs]) for each in again.nets[phase].layers] == [
            (each.layer.name, [*each.inputs]) for each in net.layers
        ]
        assert [*again.nets[phase].outputs.values()] == [*net.outputs.values()]


def test_the_test_net_has_metrics_and_neither_loss_nor_dropout():
    train, test = fixture("lenet").nets.values()
    names = [{each.layer.name for each in net.layers} for net in (train, test)]
    assert names[0] - names[1] == {"drop", "loss"}
    assert names[1] - names[0] == {"accuracy"}
    takes = {each.layer.name: [*each.inputs] for each in test.layers}
    assert takes["dense2"] == ["act3"]


def test_a_net_takes_only_the_inputs_that_it_needs():
    network = fixture("sequence")
    assert [each.layer.name for each in network.nets["train"].inputs] == ["signal", "wanted"]
    assert [each.layer.name for each in network.nets["test"].inputs] == ["signal"]


@pytest.mark.parametrize("inputs", ["", ", inputs: [drop]"])
def test_what_a_net_has_not_is_passed_by(inputs: str):
    network = network_of(
        "    - {name: drop, type: Dropout}\n"
        "    - {name: again, type: Dropout}\n"
        f"    - {{name: out, type: ReLU{inputs}}}\n"
    )
    (_, out) = network.nets["test"].layers
    assert out.inputs == ["x"]


def test_blocks_are_written_out_and_take_what_the_one_before_gives():
    network = network_of(
        "    - name: b\n"
        "      repeat: 2\n"
        "      layers:\n"
        "        - {name: dense, type: Linear, params: {out_features: 4}}\n"
        "        - {name: sum, type: Add, inputs: [dense, input]}\n"
        "    - {name: out, type: Concat, inputs: [b, x]}\n"
    )
    takes = {each.layer.name: [*each.inputs] for each in network.nets["train"].layers}
    assert takes == {
        "x": [],
        "b_0_dense": ["x"],
        "b_0_sum": ["b_0_dense", "x"],
        "b_1_dense": ["b_0_sum"],
        "b_1_sum": ["b_1_dense", "b_0_sum"],
        "out": ["b_1_sum", "x"],
    }
    assert network.layers["out"].inferred.output.shape == (8,)


def test_the_phase_of_a_block_is_that_of_its_layers():
    network = network_of(
        "    - {name: out, type: ReLU}\n"
        "    - name: b\n"
        "      phase: [train]\n"
        "      layers:\n"
        "        - {name: dense, type: Linear, params: {out_features: 4}}\n"
        "        - {name: act, type: ReLU, phase: [train, test], inputs: [out]}\n"
    )
    assert network.layers["b_dense"].flat.phase == ["train"]
    assert network.layers["b_act"].flat.phase == ["train", "test"]


def test_outputs_are_what_nothing_but_losses_and_metrics_takes_or_those_that_are_named():
    layers = "    - {name: a, type: ReLU}\n    - {name: b, type: Tanh}\n    - {name: c, type: Tanh, inputs: [a]}\n"
    assert [*network_of(layers).nets["test"].outputs] == ["b", "c"]
    assert [*network_of(f"{layers}  outputs: [a]\n").nets["test"].outputs] == ["a"]


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        ("MaxPool2d, params: {kernel_size: 3, stride: 2}", (2, 3, 4)),
        ("MaxPool2d, params: {kernel_size: 3, stride: 2, ceil_mode: true}", (2, 4, 4)),
        ("MaxPool2d, params: {kernel_size: [2, 3], stride: 3, padding: 1, ceil_mode: true}", (2, 3, 4)),
        ("AvgPool2d, params: {kernel_size: 2}", (2, 4, 4)),
        ("AdaptiveAvgPool2d, params: {output_size: [1, 5]}", (2, 1, 5)),
        ("Conv2d, params: {out_channels: 6, kernel_size: 3, padding: same, groups: 2}", (6, 8, 9)),
        ("Conv2d, params: {out_channels: 6, kernel_size: [3, 1], stride: [2, 1], dilation: [2, 1]}", (6, 2, 9)),
        ("ConvTranspose2d, params: {out_channels: 1, kernel_size: 3, stride: 2, padding: 1, output_padding: 1}", (1, 16, 18)),
        ("Flatten", (144,)),
        ("Flatten, params: {start_dim: 2}", (2, 72)),
        ("Flatten, params: {end_dim: 2}", (16, 9)),
        ("Reshape, params: {shape: [6, -1]}", (6, 24)),
        ("Permute, params: {dims: [0, 3, 1, 2]}", (9, 2, 8)),
        ("Select, params: {dim: -1, index: -9}", (2, 8)),
        ("Sum, params: {dim: 2}", (2, 9)),
        ("LayerNorm, params: {normalized_shape: [8, 9]}", (2, 8, 9)),
        ("Concat, inputs: [image, image], params: {dim: 3}", (2, 8, 18)),
    ],
)  # fmt: skip
def test_shapes(layer: str, expected: tuple[int, ...]):
    network = network_of(
        "    - {name: image, type: Input, params: {shape: [2, 8, 9]}}\n"
        f"    - {{name: out, type: {layer}}}\n"
        "    - {name: use, type: ReLU, inputs: [x]}\n"
    )
    assert network.layers["out"].inferred.output.shape == expected
