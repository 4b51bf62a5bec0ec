"""Every mistake of a network is named at the layer that makes it, with its line, and all at once."""

from __future__ import annotations

import pytest

from airflow_training.errors import Problem
from airflow_training.networks.reading import parse_network
from tests.networks.generated import FIXTURES

HEAD = """\
apiVersion: airflow-training/v1
kind: Network
metadata: {name: broken}
spec:
  layers:
"""
IMAGE = "    - {name: image, type: Input, params: {shape: [3, 32, 32]}}\n"
LABEL = "    - {name: label, type: Input, params: {shape: [], dtype: int64}}\n"
SERIES = "    - {name: series, type: Input, params: {shape: [20, 6]}}\n"
WORDS = "    - {name: words, type: Input, params: {shape: [20], dtype: int64}}\n"
OUT = "    - {name: out, type: Sigmoid}\n"


def problems_of_text(layers: str) -> list[Problem]:
    network, problems = parse_network(HEAD + layers)
    assert (network is None) == bool(problems)
    return problems


@pytest.mark.parametrize(
    ("layers", "layer", "field", "said"),
    [
        pytest.param(
            IMAGE + "    - {name: c, type: Conv2D, params: {out_channels: 4, kernel_size: 3}}\n",
            "c", "type", ["is no type of layer", "did you mean 'Conv2d'?", "ConvTranspose2d"],
            id="type",
        ),
        pytest.param(
            IMAGE + "    - {name: c, params: {out_channels: 4}}\n",
            "c", "type", ["is required", "Conv2d"], id="no-type",
        ),
        pytest.param(
            IMAGE + "    - {name: c, type: Conv2d, params: {out_chanels: 4, out_channels: 4, kernel_size: 3}}\n",
            "c", "params.out_chanels", ["no parameter of Conv2d", "did you mean 'out_channels'?"],
            id="parameter",
        ),
        pytest.param(
            IMAGE + "    - {name: c, type: Conv2d, params: {kernel_size: 3}}\n",
            "c", "params.out_channels", ["Conv2d needs it", "a whole number from 1"],
            id="missing-parameter",
        ),
        pytest.param(
            IMAGE + "    - {name: c, type: Conv2d, params: {out_channels: '4', kernel_size: 3}}\n",
            "c", "params.out_channels", ["must be a whole number from 1, not text", "without quotes"],
            id="text-for-a-number",
        ),
        pytest.param(
            IMAGE + "    - {name: c, type: Conv2d, params: {out_channels: 0, kernel_size: 3}}\n",
            "c", "params.out_channels", ["must be a whole number from 1"], id="zero",
        ),
        pytest.param(
            IMAGE + "    - {name: c, type: Conv2d, params: {out_channels: 1000000000000, kernel_size: 3}}\n",
            "c", "params.out_channels", ["must be a whole number from 1; the largest is 2147483647"],
            id="too-large",
        ),
        pytest.param(
            SERIES + "    - {name: c, type: LSTM, params: {hidden_size: 4, num_layers: 1000000000}}\n",
            "c", "params.num_layers", ["must be a whole number from 1; the largest is 1000"],
            id="too-many-layers",
        ),
        pytest.param(
            IMAGE + "    - {name: c, type: Conv2d, params: {out_channels: 4, kernel_size: 40}}\n",
            "c", "params.kernel_size", ["a kernel over 40 does not fit into 32", "at most 32"],
            id="kernel",
        ),
        pytest.param(
            IMAGE + "    - {name: c, type: Conv2d, params: {out_channels: 4, kernel_size: [3, 3, 3]}}\n",
            "c", "params.kernel_size", ["3 values for 2 dimensions", "one number fits all"],
            id="kernel-of-three",
        ),
        pytest.param(
            IMAGE + "    - {name: c, type: Conv2d, params: {in_channels: 1, out_channels: 4, kernel_size: 3}}\n",
            "c", "params.in_channels", ["is 1, but its input [[3, 32, 32]] makes it 3", "allowed: 3", "leave it out"],
            id="channels",
        ),
        pytest.param(
            IMAGE + "    - {name: c, type: Conv2d, params: {out_channels: 4, kernel_size: 3, groups: 2}}\n",
            "c", "params.groups", ["must divide the 3 channels"], id="groups",
        ),
        pytest.param(
            IMAGE + "    - {name: c, type: Conv2d, params: {out_channels: 4, kernel_size: 3, stride: 2, padding: same}}\n",
            "c", "params.padding", ["can be 'same' with a stride of 1 only", "as a number"], id="same",
        ),
        pytest.param(
            IMAGE + "    - {name: c, type: Conv2d, params: {out_channels: 4, kernel_size: 3, padding_mode: zero}}\n",
            "c", "params.padding_mode", ["is none of its words", "replicate", "did you mean 'zeros'?"], id="word",
        ),
        pytest.param(
            IMAGE + "    - {name: p, type: MaxPool2d, params: {kernel_size: 2, padding: 2}}\n",
            "p", "params.padding", ["must be at most half of kernel_size, 2"], id="pool-padding",
        ),
        pytest.param(
            SERIES + "    - {name: c, type: Conv2d, params: {out_channels: 4, kernel_size: 3}}\n",
            "c", "inputs", ["Conv2d takes [channels, height, width], not [20, 6]", "a Reshape"], id="rank",
        ),
        pytest.param(
            IMAGE + "    - {name: r, type: LSTM, params: {hidden_size: 4}}\n",
            "r", "inputs", ["LSTM takes [length, features], not [3, 32, 32]", "a Flatten, Reshape"],
            id="rank-too-high",
        ),
        pytest.param(
            WORDS + "    - {name: dense, type: Linear, params: {out_features: 4}}\n",
            "dense", "inputs", ["takes float32 as input 1, not int64", "an Embedding before it"], id="dtype",
        ),
        pytest.param(
            SERIES + "    - {name: e, type: Embedding, params: {num_embeddings: 9, embedding_dim: 4}}\n",
            "e", "inputs", ["takes int64 as input 1, not float32", "dtype: int64 of the Input"],
            id="embedding-of-floats",
        ),
        pytest.param(
            SERIES + "    - {name: a, type: MultiheadAttention, params: {num_heads: 4}}\n",
            "a", "params.num_heads", ["must divide the 6 features"], id="heads",
        ),
        pytest.param(
            SERIES + "    - {name: a, type: TransformerEncoderLayer, params: {nhead: 5}}\n",
            "a", "params.nhead", ["must divide the 6 features"], id="transformer-heads",
        ),
        pytest.param(
            SERIES + "    - {name: r, type: GRU, params: {hidden_size: 4, dropout: 0.1}}\n",
            "r", "params.dropout", ["between layers, of which there is one", "num_layers of 2"],
            id="recurrent-dropout",
        ),
        pytest.param(
            SERIES + "    - {name: d, type: Dropout, params: {p: 1.5}}\n" + OUT,
            "d", "params.p", ["must be a number from 0 to 1"], id="probability",
        ),
        pytest.param(
            IMAGE + "    - {name: g, type: GroupNorm, params: {num_groups: 2}}\n",
            "g", "params.num_groups", ["must divide the 3 channels"], id="group-norm",
        ),
        pytest.param(
            SERIES + "    - {name: l, type: LayerNorm, params: {normalized_shape: [20]}}\n",
            "l", "params.normalized_shape", ["must be the end of [20, 6]"], id="layer-norm",
        ),
        pytest.param(
            SERIES + "    - {name: r, type: Reshape, params: {shape: [7, -1]}}\n",
            "r", "params.shape", ["120 numbers do not fit into [7, -1]"], id="reshape",
        ),
        pytest.param(
            SERIES + "    - {name: s, type: Softmax, params: {dim: 0}}\n",
            "s", "params.dim", ["0 is the batch", "allowed: 1, 2, -2, -1"], id="dim-of-the-batch",
        ),
        pytest.param(
            SERIES + "    - {name: m, type: Mean, params: {dim: 3}}\n",
            "m", "params.dim", ["3 is no dimension of [20, 6]"], id="dim",
        ),
        pytest.param(
            SERIES + "    - {name: s, type: Select, params: {index: 20}}\n",
            "s", "params.index", ["is outside of dimension 0, which has 20 places"], id="index",
        ),
        pytest.param(
            SERIES + "    - {name: p, type: Permute, params: {dims: [1, 0]}}\n",
            "p", "params.dims", ["must name each of [0, 1, 2] once"], id="permute",
        ),
        pytest.param(
            SERIES + "    - {name: d, type: Linear, params: {out_features: 5}}\n"
            "    - {name: plus, type: Add, inputs: [series, d]}\n",
            "plus", "inputs", ["takes equal shapes, not [20, 6] and [20, 5]", "a Linear or Conv2d"], id="add",
        ),
        pytest.param(
            SERIES + "    - {name: d, type: Linear, params: {out_features: 5}}\n"
            "    - {name: cat, type: Concat, inputs: [series, d]}\n",
            "cat", "inputs", ["differ in dimension 1 only", "[20, 6] and [20, 5]"], id="concat",
        ),
        pytest.param(
            SERIES + "    - {name: plus, type: Add}\n",
            "plus", "inputs", ["takes 2 or more inputs, not 1", "inputs: [series, ...]"], id="one-to-add",
        ),
        pytest.param(
            SERIES + "    - {name: act, type: ReLU, inputs: [Series]}\n",
            "act", "inputs[0]", ["no layer before this one", "did you mean 'series'?"], id="reference",
        ),
        pytest.param(
            SERIES + "    - {name: act, type: ReLU, inputs: [out]}\n" + OUT,
            "act", "inputs[0]", ["'out' stands after it"], id="later",
        ),
        pytest.param(
            "    - {name: act, type: ReLU}\n",
            "act", "inputs", ["takes 1 inputs, not 0", "a layer of type Input"], id="no-input",
        ),
        pytest.param(
            SERIES + "    - {name: series, type: ReLU}\n",
            "series", "name", ["another layer has this name"], id="duplicate",
        ),
        pytest.param(
            SERIES + "    - {name: my-act, type: ReLU}\n",
            "my-act", "name", ["is no name for a layer", "'my_act' would do"], id="name",
        ),
        pytest.param(
            SERIES + "    - {name: forward, type: ReLU}\n",
            "forward", "name", ["another meaning in Python or PyTorch"], id="name-of-torch",
        ),
        pytest.param(
            IMAGE + LABEL + "    - {name: flat, type: Flatten, inputs: [image]}\n"
            "    - {name: loss, type: CrossEntropyLoss, inputs: [image, label]}\n",
            "loss", "inputs", ["takes scores of [classes, ...]", "[32, 32] would fit as labels"], id="labels",
        ),
        pytest.param(
            SERIES + "    - {name: wanted, type: Input, params: {shape: [20]}}\n"
            "    - {name: act, type: ReLU, inputs: [series]}\n"
            "    - {name: loss, type: MSELoss, inputs: [act, wanted]}\n",
            "loss", "inputs", ["two of equal shape, not [20, 6] and [20]"], id="mse",
        ),
        pytest.param(
            SERIES + "    - {name: act, type: ReLU}\n"
            "    - {name: loss, type: MSELoss, inputs: [act, series]}\n" + OUT,
            "out", "inputs", ["takes 'loss', a loss"], id="after-a-loss",
        ),
        pytest.param(
            SERIES + "    - {name: a, type: Linear, params: {out_features: 3}, phase: [train]}\n"
            "    - {name: b, type: ReLU, inputs: [a]}\n",
            "b", "inputs[0]", ["of the test net takes 'a', which that net does not have", "add test to the phase"],
            id="phase",
        ),
        pytest.param(
            SERIES + "    - {name: a, type: Linear, params: {out_features: 3}, phase: [train]}\n"
            "    - {name: b, type: Linear, params: {out_features: 3}}\n",
            "b", "inputs", ["the test net makes it another than the training net", "in_features 3 there and 6 here"],
            id="nets-disagree",
        ),
        pytest.param(
            SERIES + "    - {name: act, type: ReLU, phase: [traim]}\n",
            "act", "phase[0]", ["did you mean 'train'?"], id="phase-name",
        ),
        pytest.param(
            SERIES + "    - {name: a, type: Linear, params: {out_features: 3}}\n"
            "    - {name: b, type: Linear, params: {out_features: 5}, tiedTo: a}\n",
            "b", "tiedTo", ["has a weight of [5, 3], and 'a' one of [3, 6]"], id="tied",
        ),
        pytest.param(
            SERIES + LABEL + "    - {name: act, type: ReLU, inputs: [series]}\n",
            "label", "name", ["is taken by no other layer", "or remove it"], id="unused-input",
        ),
        pytest.param(
            SERIES + "    - {name: act, type: ReLU, repeat: 2}\n",
            "act", "repeat", ["is for blocks"], id="repeat-of-a-layer",
        ),
        pytest.param(
            SERIES + "    - {name: b, type: ReLU, layers: [{name: act, type: ReLU}]}\n",
            "b", "type", ["is for a layer, not for a block"], id="type-of-a-block",
        ),
        pytest.param(
            SERIES + "    - {name: register, layers: [{name: buffer, type: ReLU}]}\n",
            "buffer", "layers[0].name", ["another meaning", "register_buffer"], id="name-in-a-block",
        ),
        pytest.param(
            SERIES + "    - {name: c, type: Conv1d, params: {out_channels: 4, kernel_size: 9, dilation: 3}}\n",
            "c", "params.kernel_size", ["a kernel over 25 does not fit into 6"], id="dilated-kernel",
        ),
        pytest.param(
            IMAGE + "    - {name: c, type: Conv3d, params: {out_channels: 4, kernel_size: 3}}\n",
            "c", "inputs", ["Conv3d takes [channels, depth, height, width], not [3, 32, 32]"], id="rank-of-3d",
        ),
        pytest.param(
            IMAGE + "    - {name: c, type: ConvTranspose2d, params: {out_channels: 4, kernel_size: 3, output_padding: 1}}\n",
            "c", "params.output_padding", ["must be smaller than the stride or the dilation"], id="output-padding",
        ),
        pytest.param(
            SERIES + "    - {name: g, type: GLU, params: {dim: 1}}\n    - {name: again, type: GLU, params: {dim: 1}}\n"
            "    - {name: odd, type: GLU, params: {dim: 1}}\n",
            "odd", "params.dim", ["has 5 places, which are not two halves"], id="halves",
        ),
        pytest.param(
            IMAGE + "    - {name: s, type: PixelShuffle, params: {upscale_factor: 2}}\n",
            "s", "params.upscale_factor", ["needs channels that its square divides, not 3"], id="pixel-shuffle",
        ),
        pytest.param(
            SERIES + "    - {name: u, type: Upsample, params: {scale_factor: 2, mode: bilinear}}\n",
            "u", "params.mode", ["bilinear is for [channels, height, width], not [20, 6]"], id="upsample",
        ),
        pytest.param(
            IMAGE + "    - {name: p, type: PReLU, params: {num_parameters: 4}}\n",
            "p", "params.num_parameters", ["one for each of the first dimension of [3, 32, 32]"], id="prelu",
        ),
        pytest.param(
            SERIES + "    - {name: k, type: TopKSoftmax, params: {k: 9}}\n",
            "k", "params.k", ["is more than the 6 numbers that there are"], id="top-k",
        ),
        pytest.param(
            SERIES + "    - {name: m, type: MatMul, inputs: [series, series]}\n",
            "m", "inputs", ["[..., rows, n] and [..., n, columns], not [20, 6] and [20, 6]", "a Permute"], id="matmul",
        ),
        pytest.param(
            IMAGE + "    - {name: f, type: AdaptiveAvgPool2d, params: {output_size: 1}}\n"
            "    - {name: s, type: Scale, inputs: [image, f]}\n",
            "s", "inputs", ["the beginning of that of the values, not [3, 32, 32] and [3, 1, 1]"], id="scale",
        ),
        pytest.param(
            SERIES + "    - {name: d, type: Linear, params: {out_features: 5}}\n"
            "    - {name: dot, type: Dot, inputs: [series, d]}\n",
            "dot", "inputs", ["takes equal shapes, not [20, 6] and [20, 5]"], id="dot",
        ),
        pytest.param(
            SERIES + "    - {name: d, type: Linear, params: {out_features: 8}}\n"
            "    - {name: t, type: TransformerDecoderLayer, inputs: [d, series], params: {nhead: 2}}\n",
            "t", "inputs", ["takes a memory of [length, 8], not [20, 6]"], id="memory",
        ),
        pytest.param(
            WORDS + "    - {name: e, type: EmbeddingBag, params: {num_embeddings: 9, embedding_dim: 4, padding_idx: 9}}\n",
            "e", "params.padding_idx", ["must be below num_embeddings, 9"], id="bag",
        ),
        pytest.param(
            SERIES + LABEL + "    - {name: logits, type: Select, inputs: [series], params: {index: 0}}\n"
            "    - {name: top, type: TopKAccuracy, inputs: [logits, label], params: {k: 7}}\n",
            "top", "params.k", ["is more than the 6 classes"], id="top-k-accuracy",
        ),
        pytest.param(
            WORDS + "    - {name: e, type: Embedding, params: {num_embeddings: 9, embedding_dim: 4}}\n"
            "    - {name: loss, type: BCEWithLogitsLoss, inputs: [e, words]}\n",
            "loss", "inputs", ["takes float32 as input 2, not int64"], id="bce-of-numbers",
        ),
        pytest.param(
            SERIES + "    - {name: n, type: Select, params: {index: 0}}\n"
            "    - {name: loss, type: TripletMarginLoss, inputs: [n, n]}\n",
            "loss", "inputs", ["takes 3 inputs, not 2"], id="triplet-of-two",
        ),
        pytest.param(
            SERIES + "    - {name: act, type: ReLU, input: [series]}\n",
            "act", "input", ["did you mean 'inputs'?"], id="key",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_named_at_its_layer(layers: str, layer: str, field: str, said: list[str]):
    (problem,) = problems_of_text(layers)
    assert problem.field.endswith(f"].{field}")
    assert f"layer '{layer}'" in problem.message
    assert problem.line is not None
    written = (HEAD + layers).splitlines()[problem.line - 1]
    assert f"name: {layer}," in written
    text = str(problem)
    assert [each for each in said if each not in text] == []


def test_a_mistake_inside_a_block_is_told_once_and_names_the_turn():
    block = "    - name: b\n      repeat: 3\n      layers:\n        - {name: pool, type: MaxPool2d, params: {kernel_size: 8}}\n"
    (problem,) = problems_of_text(IMAGE + block)
    assert problem.field == "spec.layers[1].layers[0].params.kernel_size"
    assert "layer 'b_1_pool': kernel_size a kernel over 8 does not fit into 4" in problem.message
    assert problem.line == 10


def test_all_mistakes_are_told_at_once_and_none_that_only_follows():
    text = (FIXTURES / "lenet.yaml").read_text(encoding="utf-8")
    text = text.replace("kernel_size: 5, padding: 2", "kernel_size: 50")  # line 8
    text = text.replace("out_features: 84", "out_feature: 84")  # line 18
    text = text.replace("inputs: [logits, label], phase: [train]", "inputs: [logit, label]")
    text = text.replace("type: Accuracy", "type: Accurate")
    network, problems = parse_network(text)
    assert network is None
    assert [(p.line, p.field.rpartition("]")[2] or p.field) for p in problems] == [
        (8, ".params.kernel_size"),
        (18, ".params.out_feature"),
        (18, ".params.out_features"),
        (21, "spec.layers[15].inputs[0]"),
        (22, ".type"),
    ]


def test_mistakes_of_fields_do_not_hide_those_of_layers():
    layers = (
        IMAGE
        + "    - {name: c, type: Conv2d, params: {out_channels: 4, kernel_size: 99}, phases: [train]}\n"
    )
    fields = [problem.field for problem in problems_of_text(layers)]
    assert fields == ["spec.layers[1].phases", "spec.layers[1].params.kernel_size"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds 0 documents"),
        ("kind: Network\n", "apiVersion: is required"),
        (HEAD.replace("Network", "TrainingJob") + IMAGE, "allowed: Network"),
        (HEAD + "    []\n", "needs at least 1 item"),
        (HEAD + "    - a\n", "must be a mapping"),
        (HEAD + "    - {name: [a], type: ReLU}\n", "must be text"),
        (HEAD + "    - {name: 7, type: {}}\n", "must be text"),
        (HEAD + IMAGE + OUT + "  outputs: [outt]\n", "did you mean 'out'?"),
        (HEAD + IMAGE + "    - {name: b, repeat: 1000, layers: [{name: a, repeat: 1000, layers: [{name: r, type: ReLU}]}]}\n",
         "more than 10000 layers"),
        (HEAD + "    - {name: image, type: Input, params: {shape: [9999999999999]}}\n" + OUT, "a list of whole numbers"),
    ],
)  # fmt: skip
def test_what_is_no_network_at_all(text: str, said: str):
    network, problems = parse_network(text)
    assert network is None
    assert said in "\n".join(map(str, problems))
