"""A network that is trained without a script: three instances, one killed in between."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import yaml

from airflow_training.networks.digest import network_digest
from airflow_training.networks.trainer.metrics import ndcg_of_lists
from airflow_training.networks.trainer.sample_data import write_sample
from airflow_training.state.store import open_store
from tests.cli.trainer_runs import PRESETS, last_metrics, train_killed, write_preset
from tests.waiting import PATIENCE

HIDDEN = """
import runpy, sys
sys.modules["airflow_training"] = None  # as if it were not installed
sys.argv = sys.argv[1:]
sys.path.insert(0, "packed")
runpy.run_path(sys.argv[0], run_name="__main__")
"""

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
    newest = max(Path("model.predictions").glob("*/master-0/step-*.csv"))
    with newest.open() as opened:
        row = next(csv.DictReader(opened))
    assert row.keys() == {"query", "label", "prediction"}


def test_a_saved_network_is_resolved_to_its_text(home, typed, tmp_path):
    document = yaml.safe_load((PRESETS / "ranking.yaml").read_text())
    network = document["spec"]["trainer"]["network"]["document"]
    open_store().networks.save(yaml.safe_dump(network), user="anna")
    document["spec"]["trainer"]["network"] = {"name": "ranker"}
    Path("job.yaml").write_text(yaml.safe_dump(document))
    found = typed("explain", "job.yaml", "--output", "json").json["trainer"]
    assert (found["saved"], found["version"]) == ("ranker", 1)
    assert found["digest"] == network_digest(network)
    document["spec"]["trainer"]["network"] = {"name": "rankr"}
    Path("job.yaml").write_text(yaml.safe_dump(document))
    answer = typed("validate", "job.yaml")
    assert answer.code == 2
    assert "spec.trainer.network.name" in answer.stdout
    assert "did you mean 'ranker'?" in answer.stdout


def test_a_loss_that_is_no_number_ends_it_at_once_with_a_sentence(home, command):
    write_preset(
        "tabular-classification", epochs=3, optimizer={"name": "SGD", "learningRate": 1e30}
    )
    assert command("run", "job.yaml", "--run-id", "r").code != 0
    logs = command("logs", "show", "r", "--role", "master").stdout
    assert "the loss is " in logs
    assert "learningRate" in logs
    assert "Traceback" not in logs


@pytest.mark.parametrize("processes", [1, 2])
def test_a_mistake_in_one_file_ends_all_ranks_with_its_row(home, command, processes):
    write_preset("tabular-classification")
    document = yaml.safe_load(Path("job.yaml").read_text())
    document["spec"]["parameters"] = {"nprocPerNode": processes}  # above 1 by torchrun
    write_sample("customers", Path("data"))
    file = Path("data/train-1.csv")
    lines = file.read_text().splitlines()
    lines[499] = lines[499].replace(",", ",x", 1)
    file.write_text("\n".join(lines))
    document["spec"]["data"]["uri"] = "data"
    Path("job.yaml").write_text(yaml.safe_dump(document))
    ended = command("run", "job.yaml", "--run-id", "r", "-o", "json")
    assert ended.code == 1
    found = json.loads(ended.stdout)
    assert sum(found["restarts"].values()) == 0  # another try would end the same way
    assert found["root_cause"]["id"] == "trainer-input"
    assert found["root_cause"]["exit_code"] == 2
    assert "trainer-input" in found["message"]
    assert "cannot train: train-1.csv, row 500, column 'income': 'x" in found["message"]
    for role in ("master", "worker"):
        logs = command("logs", "show", "r", "--role", role, "--index", "0").stdout
        assert "train-1.csv, row 500, column 'income': 'x" in logs
        assert "fix: " in logs


def test_a_packed_training_runs_without_this_package_and_goes_on(home, typed):
    write_preset("tabular-classification")
    assert typed("networks", "package", "job.yaml", "--to", "packed").code == 0
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def train(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", HIDDEN, "packed/train.py", *words],
            env=clean,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "epoch 2 of 2: accuracy" in train("--epochs", "2")
    assert "epoch 1 of 3" not in train("--epochs", "3")  # it goes on from its checkpoint
    assert Path("packed/model/model.safetensors").is_file()
    assert "trainer.json" in Path("packed/README.md").read_text()
    Path("mine").mkdir()
    Path("mine/file").touch()
    assert typed("networks", "package", "job.yaml", "--to", "mine").code == 2
