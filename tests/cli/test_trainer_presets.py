"""Each preset, trained for real to what docs/no-code.md says: three instances, one killed (ranking: test_trainer.py)."""

from __future__ import annotations

import pytest

from tests.cli.trainer_runs import last_metrics, train_killed, write_preset

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("name", "env", "metric", "least"),
    [
        ("image-classification", {}, "accuracy", 0.97),
        ("tabular-classification", {}, "accuracy", 0.85),
        ("language-model", {}, "accuracy", 0.85),
        # long enough to be killed in between
        ("hugging-face", {"EPOCHS": "10"}, "eval_accuracy", 0.95),
        ("xgboost", {"ROUNDS": "400"}, "test-auc", 0.98),
    ],
)
def test_a_preset_reaches_its_accuracy_though_a_rank_is_killed(home, name, env, metric, least):
    write_preset(name, env=env)
    found = train_killed(home)
    assert found["state"] == "Succeeded", found
    assert sum(found["restarts"].values()) >= 1
    assert last_metrics(home)[metric] > least
