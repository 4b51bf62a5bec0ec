"""A network that is trained without a script: three instances, one killed in between."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy
import pytest

from airflow_training.networks.trainer.metrics import ndcg_of_lists
from airflow_training.networks.trainer.sample_data import write_sample
from tests.cli.trainer_runs import last_metrics, train_killed, write_preset

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(540)]


def rows_of(path: Path) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    words = [line.split() for line in path.read_text().splitlines()]
    values = numpy.array([[float(w.partition(":")[2]) for w in line[2:]] for line in words])
    grades = numpy.array([float(line[0]) for line in words])
    return values, grades, numpy.array([int(line[1][4:]) for line in words])


def linear_ndcg(folder: Path) -> float:
    """Return the NDCG@10 of the best straight line through the grades."""
    trained = [rows_of(folder / f"train-{n}.libsvm") for n in range(3)]
    x = numpy.concatenate([each[0] for each in trained])
    y = numpy.concatenate([each[1] for each in trained])
    weights = numpy.linalg.lstsq(numpy.c_[x, numpy.ones(len(x))], y, rcond=None)[0]
    values, grades, queries = rows_of(folder / "test.libsvm")
    scores = values @ weights[:-1]
    ones = numpy.ones(len(scores), numpy.int64)
    return float(numpy.mean(ndcg_of_lists(scores[:, None], grades[:, None], ones, queries, 10)))


def test_the_ranking_preset_beats_a_line_though_a_rank_is_killed(home, tmp_path):
    write_preset("ranking", epochs=12)
    found = train_killed(home)
    assert found["state"] == "Succeeded", found
    assert sum(found["restarts"].values()) >= 1
    write_sample("ranking", tmp_path / "sample")
    assert last_metrics(home)["ndcg"] > linear_ndcg(tmp_path / "sample") + 0.05
    assert sorted(each.name for each in Path("model").iterdir()) == [
        "README.md",
        "model.safetensors",
        "net.py",
        "network.yaml",
    ]
    (newest,) = sorted(home.glob("training/*/predictions/master-0/*.csv"))[-1:]
    with newest.open() as opened:
        row = next(csv.DictReader(opened))
    assert row.keys() == {"query", "label", "prediction"}
