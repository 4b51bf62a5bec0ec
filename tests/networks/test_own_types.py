"""Types that users add: from a folder and from a package, and every mistake of one with its line."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from airflow_training.errors import InputError
from airflow_training.networks import catalogue
from airflow_training.networks.catalogue import functions_of, layer_types, shipped_types
from airflow_training.networks.generator import module_text
from airflow_training.networks.own_types import read_types
from airflow_training.networks.reading import parse_network

SQUARE = """\
Square:
  about: the square of each number, times a factor
  module: null
  params:
    factor: {type: number, default: 1.0}
  needs:
    - {that: factor > 0, param: factor, message: must be above 0}
  output: x
  call: _squared({x}, {factor})
  code: |
    def _squared(x: Tensor, factor: float) -> Tensor:
        return factor * x * x
"""
NETWORK = """\
apiVersion: airflow-training/v1
kind: Network
metadata: {name: squares}
spec:
  layers:
    - {name: x, type: Input, params: {shape: [3]}}
    - {name: y, type: Square, params: {factor: FACTOR}}
"""


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give each test a folder of types that nobody has read."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    folder = tmp_path / "layer_types"
    folder.mkdir()
    for known in (layer_types, functions_of, catalogue._own, catalogue._stamp):
        known.cache_clear()
    yield folder
    for known in (layer_types, functions_of, catalogue._own, catalogue._stamp):
        known.cache_clear()


def mistakes(folder: Path, text: str) -> list[tuple[int | None, str, str]]:
    path = folder / "own.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_types(path, taken=shipped_types())
    assert caught.value.path == str(path)
    return [(each.line, each.field, each.message) for each in caught.value.problems]


def test_a_type_of_the_folder_is_used_as_ours_are(fresh: Path):
    (fresh / "squares.yaml").write_text(SQUARE, encoding="utf-8")
    network, problems = parse_network(NETWORK.replace("FACTOR", "2.5"))
    assert network is not None, problems
    text = module_text(network)
    assert "def _squared(x: Tensor, factor: float) -> Tensor:" in text
    assert "y = _squared(x, 2.5)" in text
    _, (problem,) = parse_network(NETWORK.replace("FACTOR", "-1"))
    assert problem.message == "layer 'y': factor must be above 0"


def test_a_type_of_a_package_is_used_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "packaged.yaml"
    path.write_text(SQUARE, encoding="utf-8")
    module = tmp_path / "types_of_a_package.py"
    module.write_text(f"def path(): return {str(path)!r}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    point = metadata.EntryPoint(
        "squares", "types_of_a_package:path", "airflow_training.layer_types"
    )
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point])
    assert "Square" in layer_types()
    assert "_squared" in functions_of()


@pytest.mark.parametrize(
    ("before", "after", "line", "field", "said"),
    [
        ("Square:", "ReLU:", 1, "ReLU", "there is such a type already"),
        ("Square:", "my-type:", 1, "my-type", "is no name of a class"),
        ("  output: x\n", "", 1, "Square.output", "required"),
        ("output: x", "output: x.__class__", 8, "Square.output", "may not use Attribute"),
        ("output: x", "output: open('x')", 8, "Square.output", "calls open"),
        ("that: factor > 0", "that: factor ** 9", 7, "Square.needs[0].that", "may not use Pow"),
        ("param: factor", "param: other", 7, "Square.needs[0].param", "is no parameter of it"),
        ("type: number", "type: numbr", 5, "Square.params.factor.type", "is not one of the values"),
        ("def _squared", "def squared", 10, "Square.code", "names begin with _"),
        ("def _squared", "import os\n    def _squared", 10, "Square.code", "nothing else"),
        (
            "def _squared",
            "def _ndcg",
            10,
            "Square.code",
            "another type has a function of this name",
        ),
        ("def _squared", "def (", 10, "Square.code", "is no Python"),
        (
            "  module: null",
            "  call_if: {fast: '{x}'}",
            3,
            "Square.call_if",
            "is no parameter of it",
        ),
        ("  module: null", "  modul: null", 3, "Square.modul", ""),
    ],
)
def test_a_mistake_of_a_type_is_told_with_its_line(
    fresh: Path, before: str, after: str, line: int, field: str, said: str
):
    found = mistakes(fresh, SQUARE.replace(before, after, 1))
    assert [(number, where) for number, where, _ in found] == [(line, field)]
    assert said in found[0][2]


@pytest.mark.parametrize("text", ["", "- a", "a: 1\n---\nb: 2\n"])
def test_what_is_no_catalogue(fresh: Path, text: str):
    assert "must be one mapping" in mistakes(fresh, text)[0][2]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("needs: [{that: 'x == 1', message: 'is {x.__class__}'}]", "may not use Attribute"),
        ("needs: [{that: 'x == 1', message: 'is {nope}'}]", "uses nope"),
        ("flops: nope", "uses nope"),
        ("params: {'a b': {type: count}}", "is no name of an argument"),
        ("weights: {'w x': '[1]'}", "is no name of an argument"),
        ("call: '{self.__class__}({inputs})'", "{self.__class__} is none of"),
        ("call: '{nope}'", "{nope} is none of"),
        ("call: '{self'", "expected '}'"),
    ],
)
def test_what_would_fail_in_the_middle_of_a_network_is_told_before(
    tmp_path: Path, entry: str, said: str
):
    file = tmp_path / "types.yaml"
    file.write_text(f"Foo:\n  about: a\n  output: x\n  {entry}\n")
    with pytest.raises(InputError) as caught:
        read_types(file, taken=shipped_types())
    assert said in caught.value.problems[0].message


def test_a_broken_type_is_named_and_all_others_work(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    broken = SQUARE.replace("Square:", "Cube:").replace("output: x", "output: open('x')")
    broken = broken.replace("_squared", "_cubed")
    (fresh / "a.yaml").write_text(broken + SQUARE, encoding="utf-8")
    (fresh / "b.yaml").write_text("- no types\n", encoding="utf-8")
    (tmp_path / "breaks_at_import.py").write_text("import nothing_of_this_name\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    point = metadata.EntryPoint("cubes", "breaks_at_import:path", "airflow_training.layer_types")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point])
    network, problems = parse_network(NETWORK.replace("FACTOR", "2"))
    assert network is not None, problems
    assert "_squared" in module_text(network)
    _, (problem,) = parse_network(NETWORK.replace("FACTOR", "2").replace("Square", "Cube"))
    assert problem.field == "spec.layers[1].type"
    assert "is a type of your own that is broken" in problem.message
    assert f"{fresh / 'a.yaml'}: Cube.output: calls open" in problem.message
    assert "(line 8)" in problem.message
    _, (problem,) = parse_network(NETWORK.replace("FACTOR", "2").replace("Square", "Quartic"))
    assert "is no type of layer" in problem.message
    assert "Square" in problem.allowed
    assert "the entry point cubes = breaks_at_import:path cannot be loaded" in problem.hint
    assert "nothing_of_this_name" in problem.hint
    assert "b.yaml: must be one mapping" in problem.hint
    # who mends the file need not start anything again
    (fresh / "a.yaml").write_text(SQUARE.replace("Square", "Cube"), encoding="utf-8")
    (fresh / "b.yaml").unlink()
    network, problems = parse_network(NETWORK.replace("FACTOR", "2").replace("Square", "Cube"))
    assert network is not None, problems


def test_what_lies_in_the_folder_by_chance_breaks_no_network(fresh: Path):
    (fresh / ".#a.yaml").symlink_to("somebody@a-machine.1234")  # of an editor
    (fresh / "a.yaml").write_text(SQUARE, encoding="utf-8")
    null = SQUARE.replace("Square:", "Cube:").split("  code:", maxsplit=1)[0] + '  code: "\\0"\n'
    (fresh / "b.yaml").write_text(null, encoding="utf-8")
    network, problems = parse_network(NETWORK.replace("FACTOR", "2"))
    assert network is not None, problems
    assert "is no Python" in catalogue.broken_types()["Cube"]


def test_a_type_of_a_name_that_is_taken_is_told_and_not_used(fresh: Path):
    taken = SQUARE.replace("Square:", "ReLU:").replace("_squared", "_mine")
    (fresh / "a.yaml").write_text(taken, encoding="utf-8")
    (why,) = catalogue.unread_types()
    assert "ReLU" in why
    assert "there is such a type already" in why
    assert layer_types()["ReLU"] is shipped_types()["ReLU"]
