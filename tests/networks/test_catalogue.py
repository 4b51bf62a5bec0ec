"""The catalogue is good data: its formulas reach nothing else, and every type can be used."""

from __future__ import annotations

import pytest

from airflow_training.networks.catalogue import functions_of, shipped_types
from airflow_training.networks.formulas import evaluate, forbidden_in
from tests.networks.generated import FIXTURES


@pytest.mark.parametrize("name", list(shipped_types()))
def test_formulas_of_a_type_can_be_read(name: str):
    kind = shipped_types()[name]
    formulas = [kind.output, kind.flops, *kind.weights.values(), *(n.that for n in kind.needs)]
    formulas += [f for p in kind.params.values() for f in (p.infer, p.fill, p.omit) if f]
    assert {formula: reason for formula in formulas if (reason := forbidden_in(formula))} == {}
    assert {*kind.call_if} <= {*kind.params}
    assert {need.param for need in kind.needs} <= {*kind.params, "inputs"}


@pytest.mark.parametrize("name", list(shipped_types()))
def test_every_type_is_in_a_network_that_runs(name: str):
    texts = [path.read_text(encoding="utf-8") for path in FIXTURES.glob("*.yaml")]
    assert any(f"type: {name}," in text or f"type: {name}}}" in text for text in texts)


def test_functions_have_names_that_no_layer_can_have():
    assert all(name.startswith("_") for name in functions_of())


@pytest.mark.parametrize(
    "formula",
    [
        "x.__class__", "().__class__", "__import__('os')", "open('x')", "(lambda: 1)()", "[a for a in x]",
        "9 ** 9 ** 9", "f'{x}'", "x := 1", "import os", "len.__self__", "windows(*x)(1)",
    ],
)  # fmt: skip
def test_a_formula_reaches_nothing_but_numbers(formula: str):
    assert forbidden_in(formula)
    with pytest.raises(ValueError, match=r"may not|is no|calls"):
        evaluate(formula, {"x": [1]})
