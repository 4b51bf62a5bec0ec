"""XGBoost: a callback that saves the booster with what was evaluated, and goes on from there.

What XGBoost itself keeps in a model file is saved as raw bytes, the rest as JSON. Rounds that draw
rows or columns at random use numbers inside the library that nobody can save: after a restore they
are other ones, so the model is as good, not the same. Without them it is the same, bit for bit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import xgboost

from airflow_training.agent.progress import report
from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.saver import Saver
from airflow_training.checkpoints.torch_state import apply_random, random_state

__all__ = ["XGBoostCheckpoint"]


class XGBoostCheckpoint(xgboost.callback.TrainingCallback):
    """Saves after a round when it is time, ends cleanly on SIGTERM, reports every round.

        xgboost.train(params, data, num_boost_round=200, callbacks=[XGBoostCheckpoint(rounds=200)])

    Args:
        rounds: Rounds of the whole training, those before a restore included.
        root: Where to save when no job says so: a folder or an address.
        every: How often then, as `Saver` takes it.
    """

    def __init__(
        self, rounds: int, *, root: str | os.PathLike[str] | None = None, every: Any = None
    ) -> None:
        super().__init__()
        self.rounds = rounds
        self._saver = Saver(root=root, every=every)
        self._booster: Any = None
        self._evaluated: Any = {}
        self._done = 0
        """The round that was told or restored last."""
        self._before: Mapping[str, Any] | None = None
        """The restored state, until the first round has taken it up."""

    def before_training(self, model: Any) -> Any:
        if not isinstance(model, xgboost.Booster):
            raise CheckpointError(
                "xgboost.cv trains many models at once: only train can be resumed"
            )
        self._booster = model
        if (found := self._saver.restore()) is not None:
            self._before, self._done = found.state(), found.step
            config = model.save_config()
            # loading a model puts the parameters of training back to their defaults
            model.load_model(bytearray(self._before["booster"]))
            model.load_config(config)
            seed = int(json.loads(config)["learner"]["generic_param"]["seed"])
            # with the same seed the draws of the first rounds would be made again
            model.set_param({"seed": seed + found.step})
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._evaluated = evals_log
        if self._before is not None:
            evals_log.update(self._before["evaluated"])
            apply_random(self._before["rng"])
            self._before = None
        self._boundary()  # not at the end of the round: now other callbacks have seen it too
        return self._done >= self.rounds

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        newest = {
            f"{data}-{metric}": values[-1]
            for data, metrics in evals_log.items()
            for metric, values in metrics.items()
        }
        report(step=model.num_boosted_rounds(), total_steps=self.rounds, metrics=newest)
        return False

    def after_training(self, model: Any) -> Any:
        self._boundary()
        self._saver.close(self._state)
        return model

    def _boundary(self) -> None:
        done = int(self._booster.num_boosted_rounds())
        if done > self._done:
            self._done = done
            self._saver.boundary(done, self._state)

    def _state(self) -> dict[str, Any]:
        return {
            "booster": bytes(self._booster.save_raw("ubj")),
            "evaluated": self._evaluated,
            "rng": random_state(),
        }
