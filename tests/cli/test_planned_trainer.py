"""A network that is trained without a script and split by its plan: four instances, one killed in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from airflow_training.networks.trainer.sample_data import write_sample
from tests.cli.test_trainer import linear_ndcg
from tests.cli.trainer_runs import last_metrics, train_killed, write_preset

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(540)]


def test_a_preset_is_trained_by_its_plan_though_a_rank_is_killed(home, command, tmp_path):
    write_preset("ranking", epochs=12)
    document = yaml.safe_load(Path("job.yaml").read_text())
    spec = document["spec"]
    del spec["trainer"]["batchSize"]
    spec["roles"][1]["replicas"] = 3
    spec["plan"] = {
        "cluster": "request",
        "globalBatch": 12,
        "constraints": {"devices": 4, "tp": 2, "dp": 2},
        "apply": ["replicas", "env", "microBatch", "engine"],
    }
    Path("job.yaml").write_text(yaml.safe_dump(document))
    found = train_killed(home)
    assert found["state"] == "Succeeded", found
    assert sum(found["restarts"].values()) >= 1
    write_sample("ranking", tmp_path / "sample")
    assert last_metrics(home)["ndcg"] > linear_ndcg(tmp_path / "sample") + 0.05
    assert "tensor parallel 2, replicas 2" in Path("model/README.md").read_text()
    assert [*Path("model.predictions").glob("*/master-0/step-*.csv")]
    story = json.loads(command("events", "r", "-o", "json").stdout)
    assert "PlanNotApplied" not in json.dumps(story)

    import torch
    from safetensors.torch import load_file

    weights = load_file("model/model.safetensors")
    assert {type(each) for each in weights.values()} == {torch.Tensor}
    assert {*weights} == {
        f"{layer}.{name}" for layer in ("dense1", "dense2", "score") for name in ("weight", "bias")
    }
