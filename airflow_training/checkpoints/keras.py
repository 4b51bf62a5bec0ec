"""Keras 3 on any backend: a callback that saves variables as arrays, and goes on from there.

A model's random numbers (dropout, augmentation) are variables of it. What other callbacks keep in
Python attributes, such as the patience of `EarlyStopping`, Keras gives no way to save.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from airflow_training.agent.progress import report, section
from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.sampler import ResumableSampler
from airflow_training.checkpoints.saver import Saver
from airflow_training.checkpoints.torch_state import apply_random, random_state

__all__ = ["KerasCheckpoint"]


class KerasCheckpoint(keras.callbacks.Callback):
    """Saves when it is time, ends cleanly on SIGTERM, reports every batch; evaluation is a section.

        model.fit(x, y, epochs=10, callbacks=[KerasCheckpoint()])

    Without `data` it saves after epochs, as Keras cannot go on within one. With a `ResumableSampler`,
    the `batch_sampler` of the torch `DataLoader` that is given to `fit`, it saves after any batch. Give
    that loader a `generator` of its own: every start of a loader draws a number, and Keras starts it
    at other moments after a restore.

    Args:
        data: The sampler of the training data.
        root: Where to save when no job says so: a folder or an address.
        every: How often then, as `Saver` takes it.
    """

    def __init__(
        self,
        *,
        data: ResumableSampler | None = None,
        root: str | os.PathLike[str] | None = None,
        every: Any = None,
    ) -> None:
        super().__init__()
        self._data = data
        self._saver = Saver(root=root, every=every)
        self._step = 0
        self._epoch = 0
        self._batch = -1
        """The newest batch of this epoch that is done; Keras may make several in one call."""
        self._before: Mapping[str, Any] | None = None
        """The restored state of a save within an epoch, until that epoch goes on."""
        self._while_resuming = contextlib.ExitStack()
        self._evaluating = contextlib.ExitStack()

    def on_train_begin(self, logs: Any = None) -> None:
        model = self.model
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        if (found := self._saver.restore()) is None:
            return
        state = found.state()
        _assign("model", model.variables, state["model"])
        _assign("optimizer", model.optimizer.variables, state["optimizer"])
        if self._data is not None:
            self._data.load_state_dict(state["data"])
        self._step, self._epoch = found.step, state["epoch"]
        model._initial_epoch = state["epoch"]  # as keras.callbacks.BackupAndRestore does it
        apply_random(state["rng"])
        if state["batch"] >= 0:
            self._before = state

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch, self._batch = epoch, -1
        if self._before is not None:
            _assign("metrics", self.model.metrics_variables, self._before["metrics"])
            # the rest of an epoch is shorter than Keras was told
            self._while_resuming.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", message="Your input ran out of data")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._before is not None:  # only now: to start the loader has drawn a number
            apply_random(self._before["rng"])
            self._batch = -1
            self._before = None

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        made, self._batch = batch - self._batch, batch
        self._step += made
        report(step=self._step, epoch=self._epoch, metrics=logs)
        if self._data is None:
            return
        for _ in range(made):
            self._data.advance()
        if self._data.epoch == self._epoch:  # else the epoch is over, and is saved at its end
            self._saver.boundary(self._step, self._state)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._while_resuming.close()
        self._epoch, self._batch = epoch + 1, -1
        report(step=self._step, epoch=self._epoch, metrics=logs)
        self._saver.boundary(self._step, self._state)

    def on_test_begin(self, logs: Any = None) -> None:
        self._evaluating.enter_context(section("eval"))

    def on_test_end(self, logs: Any = None) -> None:
        self._evaluating.close()

    def on_train_end(self, logs: Any = None) -> None:
        self._saver.close(self._state)

    def _state(self) -> dict[str, Any]:
        model = self.model
        state = {
            "model": _arrays(model.variables),
            "optimizer": _arrays(model.optimizer.variables),
            "metrics": _arrays(model.metrics_variables),
            "epoch": self._epoch,
            "batch": self._batch,
            "rng": random_state(),
        }
        return state if self._data is None else {**state, "data": self._data.state_dict()}


def _arrays(variables: Sequence[Any]) -> list[Any]:
    return [keras.ops.convert_to_numpy(variable.value) for variable in variables]


def _assign(part: str, variables: Sequence[Any], arrays: Sequence[Any]) -> None:
    saved = [tuple(array.shape) for array in arrays]
    now = [tuple(variable.shape) for variable in variables]
    if saved != now:
        raise CheckpointError(f"{part}: saved were variables of shapes {saved}, there are {now}")
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)
