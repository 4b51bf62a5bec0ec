"""XGBoost goes on from its last round, and ends with the model it would have ended with."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost

from airflow_training.checkpoints import CheckpointError
from airflow_training.checkpoints.xgboost import XGBoostCheckpoint

ROUNDS = 12

pytestmark = pytest.mark.e2e


class Killed(Exception):
    """Stands for a process that ends in the middle of a round."""


class At(xgboost.callback.TrainingCallback):
    """Does something after a round, as any other callback might."""

    def __init__(self, round_number: int | None, action: Any) -> None:
        super().__init__()
        self.round_number, self.action = round_number, action

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        if model.num_boosted_rounds() == self.round_number:
            self.action()
        return False


def kill() -> None:
    raise Killed


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def train(
    root: Path | None, *, at: int | None = None, action: Any = kill, **parameters: Any
) -> tuple[bytes, dict[str, Any]]:
    dice = np.random.default_rng(0)
    rows = dice.normal(size=(400, 8))
    labels = (rows[:, 0] * rows[:, 1] + dice.normal(size=400) > 0).astype(int)
    evaluated: dict[str, Any] = {}
    booster = xgboost.train(
        {"objective": "binary:logistic", "eta": 0.2, "nthread": 1, **parameters},
        xgboost.DMatrix(rows[:300], labels[:300]),
        num_boost_round=ROUNDS,
        evals=[(xgboost.DMatrix(rows[300:], labels[300:]), "test")],
        evals_result=evaluated,
        verbose_eval=False,
        callbacks=[
            XGBoostCheckpoint(ROUNDS, root=root, every={"steps": 2}),
            At(at, action),
        ],
    )
    return bytes(booster.save_raw("ubj")), evaluated


@pytest.mark.parametrize("kills", [[5], [1, 2, 7], [ROUNDS]])
def test_a_killed_training_ends_with_the_same_model_and_the_same_evaluations(tmp_path, kills):
    for round_number in kills:
        with pytest.raises(Killed):
            train(tmp_path, at=round_number)
    assert train(tmp_path) == train(None)


def test_sigterm_saves_the_round_and_ends(tmp_path, monkeypatch):
    with pytest.raises(SystemExit) as ended:
        train(tmp_path, at=5, action=terminate)
    assert ended.value.code == 143
    assert reported(tmp_path, monkeypatch)[0]["step"] == 6


def test_a_training_that_was_over_is_not_made_again(tmp_path, monkeypatch):
    train(tmp_path)
    assert reported(tmp_path, monkeypatch) == []


def reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Train, and return the progress of it."""
    path = root.parent / f"{root.name}.progress"
    monkeypatch.setenv("TRAINING_PROGRESS_FILE", str(path))
    train(root)
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in map(json.loads, lines) if "step" in line]


def test_rows_drawn_at_random_are_not_drawn_again_after_a_restore(tmp_path):
    """XGBoost starts from its seed again: without a word the first draws would be repeated."""
    still: dict[str, Any] = {
        "eta": 1e-9,
        "subsample": 0.5,
    }  # trees that differ only in the rows they were given
    with pytest.raises(Killed):
        train(tmp_path, at=7, **still)
    model, _ = train(tmp_path, **still)
    document = json.loads(xgboost.Booster(model_file=bytearray(model)).save_raw("json"))
    trees = document["learner"]["gradient_booster"]["model"]["trees"]
    assert (
        len({json.dumps([tree["split_conditions"], tree["parents"]]) for tree in trees}) == ROUNDS
    )


def test_every_round_is_reported(tmp_path, monkeypatch):
    lines = reported(tmp_path, monkeypatch)
    assert [line["step"] for line in lines] == list(range(1, ROUNDS + 1))
    assert lines[-1]["total_steps"] == ROUNDS
    assert 0 < lines[-1]["metrics"]["test-logloss"] < 1


def test_cross_validation_is_refused(tmp_path):
    data = xgboost.DMatrix(np.zeros((9, 1)), np.zeros(9))
    with pytest.raises(CheckpointError, match=r"xgboost\.cv"):
        xgboost.cv({}, data, callbacks=[XGBoostCheckpoint(3, root=str(tmp_path))])
