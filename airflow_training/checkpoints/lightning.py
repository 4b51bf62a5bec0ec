"""Lightning: a callback that saves trainer, module and data without pickle, and goes on from there.

What is saved lies between two batches: the one before is over with its validation, schedulers and
other callbacks. Lightning's loops are asked for their state then, and are given it back before `fit`
starts them, as they are when Lightning restores its own files.
"""

from __future__ import annotations

import contextlib
import copy
import os
import warnings
from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl

from airflow_training.agent.progress import report, section
from airflow_training.checkpoints.checkpointer import Checkpointer
from airflow_training.checkpoints.sampler import ResumableSampler
from airflow_training.checkpoints.torch_state import apply_random, random_state

__all__ = ["LightningCheckpoint"]


class LightningCheckpoint(pl.Callback):
    """Saves before a batch when it is time, ends cleanly on SIGTERM, reports steps; validation is a section.

        sampler = ResumableSampler(len(data), batch_size=16)
        trainer = Trainer(callbacks=[LightningCheckpoint(data=sampler)], use_distributed_sampler=False)
        trainer.fit(module, DataLoader(data, batch_sampler=sampler))

    Without `data` it saves only where an epoch begins, as loaders cannot go on within one.

    Args:
        data: The sampler of the training data.
        root: Where to save when no job says so: a folder or an address.
        every: How often then, as `Checkpointer` takes it.
    """

    def __init__(
        self,
        *,
        data: ResumableSampler | None = None,
        root: str | os.PathLike[str] | None = None,
        every: Any = None,
    ) -> None:
        self._data = data
        self._root, self._every = root, every
        self._checkpointer: Checkpointer | None = None
        self._state: _TrainerState | None = None
        self._done = 0
        self._resuming = contextlib.ExitStack()
        self._evaluating = contextlib.ExitStack()

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._state = state = _TrainerState(trainer)
        self._checkpointer = Checkpointer(
            model=pl_module,
            optimizer=list(trainer.optimizers),
            scheduler=[config.scheduler for config in trainer.lr_scheduler_configs],
            scaler=getattr(trainer.precision_plugin, "scaler", None),
            data=self._data,
            ema=None,
            extra={"trainer": state},
            root=self._root,
            every=self._every,
        )
        self._done = self._checkpointer.restore()
        if not self._done:
            return
        self._resuming.callback(trainer.fit_loop.on_iteration_done)
        if self._data is None:
            state.put_back_random()  # the loader starts from here, and shuffles
        else:
            # it says so of every loader that has no state of its own: ours is in the sampler
            self._resuming.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", message=".*your dataloader is not resumable.*")

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._data is None and self._state is not None:
            self._state.random = random_state()

    def on_train_batch_start(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        batch: Any,
        batch_idx: int,
    ) -> None:
        state, checkpointer = self._state, self._checkpointer
        if state is None or checkpointer is None:
            return
        # From the first batch on nothing is special: Lightning itself would treat the whole epoch so,
        # and take no step of a plateau schedule at its end.
        self._resuming.close()
        if self._data is not None:
            state.put_back_random()  # only now: to start the loader has drawn a number
        done = trainer.global_step
        # after a step of the optimizer: gradients that are being accumulated are no state
        if done > self._done and (self._data is not None or batch_idx == 0):
            self._done = done
            if self._data is not None:
                state.random = random_state()
            with state.between_batches():
                checkpointer.step(done - 1)
            state.random = None

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        if self._data is not None:
            self._data.advance()
        steps = trainer.estimated_stepping_batches
        report(
            step=trainer.global_step,
            total_steps=int(steps) if steps < float("inf") else None,
            epoch=trainer.current_epoch,
            metrics={name: float(value) for name, value in trainer.callback_metrics.items()},
        )

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._evaluating.enter_context(section("eval"))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._evaluating.close()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._checkpointer is None:
            return
        if trainer.global_step > self._done:
            self._checkpointer.step(trainer.global_step - 1)
        self._checkpointer.close()


class _TrainerState:
    """What Lightning keeps beside model and optimizers, and the random numbers to go on with."""

    def __init__(self, trainer: pl.Trainer) -> None:
        self._trainer = trainer
        self._between_batches = False
        self.random: Mapping[str, Any] | None = None

    @contextlib.contextmanager
    def between_batches(self) -> Any:
        """Say that the next batch is fetched and not yet begun: it is not part of the state."""
        self._between_batches = True
        try:
            yield
        finally:
            self._between_batches = False

    def put_back_random(self) -> None:
        if self.random is not None:
            apply_random(self.random)
            self.random = None

    def state_dict(self) -> dict[str, Any]:
        trainer = self._trainer
        loops = copy.deepcopy(trainer.fit_loop.state_dict())
        if self._between_batches:
            progress = loops["epoch_loop.batch_progress"]
            progress["total"]["ready"] -= 1
            progress["current"]["ready"] -= 1
        module: dict[str, Any] = {}
        trainer.lightning_module.on_save_checkpoint(module)
        return {
            "loops": loops,
            "callbacks": {
                callback.state_key: callback.state_dict()
                for callback in trainer.callbacks
                if callback.state_dict()
            },
            "module": module,
            "datamodule": trainer.datamodule.state_dict() if trainer.datamodule else {},
            "random": self.random or random_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        trainer = self._trainer
        trainer.fit_loop.load_state_dict(state["loops"])
        for callback in trainer.callbacks:
            if callback.state_key in state["callbacks"]:
                callback.load_state_dict(state["callbacks"][callback.state_key])
        trainer.lightning_module.on_load_checkpoint(state["module"])
        if trainer.datamodule:
            trainer.datamodule.load_state_dict(state["datamodule"])
        self.random = state["random"]
