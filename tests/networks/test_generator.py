"""The text that is generated: the same each time, with nothing of ours in it."""

from __future__ import annotations

import ast
import sys

import pytest

from airflow_training.networks.diagram import mermaid_text
from airflow_training.networks.generator import module_text
from airflow_training.networks.reading import parse_network
from tests.networks.generated import FIXTURES, fixture

NAMES = sorted(path.stem for path in FIXTURES.glob("*.yaml"))
SIAMESE = """\
apiVersion: airflow-training/v1
kind: Network
metadata: {name: two-losses}
spec:
  layers:
    - {name: x, type: Input, params: {shape: [4]}}
    - {name: wanted, type: Input, params: {shape: [4]}}
    - {name: out, type: Linear, inputs: [x], params: {out_features: 4}}
    - {name: aux, type: Linear, inputs: [x], params: {out_features: 4}, phase: [train]}
    - {name: near, type: MSELoss, inputs: [out, wanted]}
    - {name: far, type: MSELoss, inputs: [aux, wanted]}
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_module_needs_torch_and_nothing_else(name: str):
    text = module_text(fixture(name))
    assert text == module_text(fixture(name))
    tree = ast.parse(text, feature_version=(3, 8))
    modules = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert modules - {*sys.stdlib_module_names} == {"torch"}
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    assert classes == ["Layers", "TrainNet", "TestNet"]


def test_what_goes_without_saying_is_not_said():
    text = module_text(fixture("lenet"))
    assert (
        "self.conv1 = nn.Conv2d(in_channels=1, out_channels=6, kernel_size=5, padding=2)  # 156 parameters"
        in text
    )
    assert "        dense2 = self.dense2(act3)  # [84]\n" in text.partition("class TestNet")[2]
    assert 'return {"logits": logits, "accuracy": accuracy}' in text


def test_losses_are_summed_and_a_head_of_the_training_net_is_in_it_alone():
    network, problems = parse_network(SIAMESE)
    assert network is not None, problems
    layers, _, rest = module_text(network).partition("class TrainNet")
    train, _, test = rest.partition("class TestNet")
    assert 'return {"out": out, "aux": aux, "near": near, "far": far, "loss": near + far}' in train
    assert "self.aux = nn.Linear" in train
    assert "aux" not in layers + test


def test_with_two_losses_the_name_of_their_sum_is_taken():
    _, (problem,) = parse_network(SIAMESE.replace("name: far", "name: loss"))
    assert "is the name of the sum of all losses" in problem.message


def test_a_picture_says_shapes_and_whose_an_arrow_is():
    text = mermaid_text(fixture("lenet"))
    assert '    l_conv1["conv1<br/>Conv2d<br/>[6, 28, 28]"]\n' in text
    assert "    l_image --> l_conv1\n" in text
    assert "    l_act3 -. training net .-> l_drop\n" in text
    assert "    l_act3 -. test net .-> l_dense2\n" in text
