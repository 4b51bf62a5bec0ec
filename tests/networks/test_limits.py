"""Documents that are made to take all memory or all time: they are answered as any other."""

from __future__ import annotations

import pytest

from airflow_training.documents.problems import MOST_FINDINGS
from airflow_training.networks.expansion import MAX_ALLOWED
from airflow_training.networks.names import MAX_NAME
from airflow_training.networks.reading import parse_network
from airflow_training.networks.resolving import ResolvedNetwork

HEAD = """\
apiVersion: airflow-training/v1
kind: Network
metadata: {name: large}
spec:
  layers:
    - {name: x, type: Input, params: {shape: [4]}}
"""


def lines(pattern: str, count: int, *, indent: int = 4) -> str:
    return "".join(f"{' ' * indent}- {{{pattern.replace('#', str(i))}}}\n" for i in range(count))


def block(layers: str, *, name: str = "b", repeat: int = 1000) -> str:
    return f"    - name: {name}\n      repeat: {repeat}\n      layers:\n{layers}"


def wide(count: int, of: str) -> str:
    return ", ".join([of] * count)


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        (lines("name: l#, type: ReLU, inputs: [none#]", 1500), "no layer before this one"),
        (lines("name: l#, type: Rel#", 1500), "is no type of layer"),
        (lines("name: l, type: ReLU", 2000), "another layer has this name"),
        (lines("name: l#, type: ReLU, params: {inplac: 1}", 1500), "is no parameter of ReLU"),
        (
            lines("name: l, type: ReLU", 600).replace("l,", "y,", 1)
            + f"  outputs: [{', '.join(f'm{i}' for i in range(2000))}]\n",
            "another layer has this name",
        ),
        (
            block(lines("name: l#, type: Foo", 500, indent=8) + "        - {name: k, type: ReLU}\n"),
            "is no type of layer",
        ),
    ],
)  # fmt: skip
def test_only_so_many_mistakes_are_looked_for(layers: str, said: str):
    network, problems = parse_network(HEAD + layers)
    assert network is None
    assert 1 < len(problems) <= MOST_FINDINGS + 1
    assert said in problems[0].message
    assert max(len(each.allowed) for each in problems) <= MAX_ALLOWED


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        (
            block(f"        - {{name: l, type: Add, inputs: [{wide(2000, 'input')}]}}\n"),
            "more than 200000 values",
        ),
        (
            block(f"        - {{name: l, type: Input, params: {{shape: [{wide(2000, '1')}]}}}}\n"),
            "more than 200000 values",
        ),
        (
            block(
                "        - {name: k, type: ReLU}\n"
                + lines("name: l#, layers: []", 300, indent=8)
            ),
            "needs at least 1 layer",
        ),
        (
            block("        - {name: l, type: ReLU}\n", name="b" * 20_000),
            f"at most {MAX_NAME}",
        ),
        (block("        - {name: " + "l" * 20_000 + ", type: ReLU}\n"), f"at most {MAX_NAME}"),
        (block("        - {name: l, type: ReLU}\n", repeat=100_000_000), "at most 1000"),
        (
            f"    - {{name: y, type: Input, params: {{shape: [{wide(1000, '2147483647')}]}}}}\n",
            "more than torch can count",
        ),
        (
            block("        - {name: l, type: Reshape, params: {shape: [1, 2, 2]}}\n", repeat=1)
            + block("        - {name: u, type: Upsample, params: {scale_factor: 1024}}\n", name="c"),
            "more than torch can count",
        ),
    ],
)  # fmt: skip
def test_too_much_is_told_where_it_is(layers: str, said: str):
    network, problems = parse_network(HEAD + layers)
    assert network is None
    assert said in problems[0].message
    assert sum(len(each.message) for each in problems) < 100_000


def good(layers: str) -> ResolvedNetwork:
    network, problems = parse_network(HEAD + layers)
    assert network is not None, problems
    return network


def test_as_many_layers_as_there_may_be():
    network = good(lines("name: l#, type: ReLU", 3000))
    assert network.takes("l2999") == ["l2998"]
    assert [network.takes(name) for name in network.layers][:3] == [[], ["x"], ["l0"]]
    assert len(network.to_dict()["spec"]["layers"]) == 3001


def test_thousands_of_layers_take_what_thousands_leave_out():
    dropped = "".join(
        f"    - {{name: d{i}, type: Dropout, inputs: [{f'd{i - 1}' if i else 'x'}], phase: [train]}}\n"
        for i in range(900)
    )
    network = good(dropped + lines("name: t#, type: ReLU, inputs: [d899], phase: [test]", 900))
    assert network.takes("t899") == ["x"]
