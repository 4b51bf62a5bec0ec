"""Real excerpts of logs give the values that a person reads in them, and no others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from airflow_training.logs.engine import scan
from airflow_training.logs.metrics import formats
from airflow_training.logs.model import Origin

HERE = Path(__file__).parent
CASES = sorted(HERE.glob("*/*.yaml"))


def found_in(log: Path) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    for each in scan(Origin(file=log.name), log, signatures=(), formats=formats()).series:
        found.setdefault(each.metric, []).extend(each.values.tolist())
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_excerpt_gives_its_values_and_invents_nothing(case):
    expected = {
        metric: [float(value) for value in values]
        for metric, values in yaml.safe_load(case.read_text())["series"].items()
    }
    found = found_in(case.with_suffix(".log"))
    assert found.keys() == expected.keys()
    for metric, values in expected.items():
        assert len(found[metric]) == len(values), metric
        for value, wanted in zip(found[metric], values, strict=True):
            same = math.isnan(value) and math.isnan(wanted)
            assert same or value == pytest.approx(wanted, rel=1e-12), metric


def test_every_log_has_what_is_expected_of_it():
    logs = {path.with_suffix("") for path in HERE.glob("*/*.log")}
    assert logs == {path.with_suffix("") for path in CASES}
    assert len(logs) > 80
