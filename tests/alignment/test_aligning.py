"""Faults planted into split trainings are found and named; faultless ones raise no alarm. On real ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_training.alignment.running import align
from tests.alignment.fault_runs import compare_pairs, find_faults, is_named
from tests.alignment.faults import FAULTS, PAIRS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SAMPLE = [
    "replicas that exchange nothing",
    "a row product that is not summed",
    "a tied table whose stages do not share gradients",
    "doubled gradient of shards",
    "samples of a replica off by one",
    "stale weights of a stage",
    "a loss twice as large",
    "a stage's loss half as large",
    "replicas that draw their own masks",
    "the micro-batch before handed on",
    "a stage in half precision",
    "another rate of one replica",
]
CALM: list[tuple[str, dict[str, Any]]] = [
    ("mlp", {"dp": 2, "zero": 2, "precision": "fp32"}),
    ("gpt", {"dp": 2, "zero": 3}),
    ("gpt", {"pp": 2}),
    ("lstm", {"pp": 2}),
    ("cnn", {"dp": 2, "precision": "fp32"}),
    ("encoder", {"tp": 2, "sequence_parallel": True}),
]


def test_planted_faults_are_found_and_the_operator_is_named(tmp_path: Path):
    found = find_faults(tmp_path, {name: FAULTS[name] for name in SAMPLE})
    wrong = {
        name: report.first for name, report in found.items() if not is_named(FAULTS[name], report)
    }
    assert wrong == {}


def test_faultless_splits_raise_no_alarm(tmp_path: Path):
    for each in compare_pairs(tmp_path, CALM):
        assert each.report is not None, each.refused
        assert each.report.equal, (each.model, each.split, each.report.first)
        compared = {kind.kind: kind.compared for kind in each.report.kinds}
        assert min(compared[kind] for kind in ("output", "output gradient", "gradient")) > 0


def test_there_are_sixty_faults_and_two_hundred_pairs():
    assert len(FAULTS) >= 60
    assert len(PAIRS) >= 200


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_all_faults_are_found_and_nearly_all_are_named(tmp_path: Path):
    found = find_faults(tmp_path, FAULTS)
    assert [name for name, report in found.items() if report.equal] == []
    wrong = [name for name, report in found.items() if not is_named(FAULTS[name], report)]
    assert len(wrong) <= 0.05 * len(found), wrong


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_no_pair_without_a_fault_raises_an_alarm(tmp_path: Path):
    outcomes = compare_pairs(tmp_path, PAIRS)
    alarms = [
        (each.model, each.split, each.report.first)
        for each in outcomes
        if each.report is not None and not each.report.equal
    ]
    assert alarms == []
    assert sum(each.report is not None for each in outcomes) >= 200


def test_dropout_raises_no_alarm():
    engine = {"model": "tests.execution.plain_training:dropping"}
    split = {"global_batch": 16, "micro_batch": 2, "dp": 2, "tp": 2, "precision": "fp64"}
    report = align(engine, split, steps=2)
    assert report.equal, report.first
    assert next(kind.compared for kind in report.kinds if kind.kind == "output") > 0
