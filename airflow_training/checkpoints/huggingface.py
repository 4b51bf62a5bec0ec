"""Hugging Face: a callback for `transformers.Trainer` that saves the whole state without pickle.

Position, number of steps and data are the Trainer's own business: it is told by a folder that holds
nothing but its JSON state, and skips the batches that were consumed. Everything else is put back here.
One process, or several with DistributedDataParallel; what FSDP and DeepSpeed split is not supported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import transformers

from airflow_training.agent.progress import report, section
from airflow_training.checkpoints.checkpointer import distributed
from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.saver import ResumePoint, Saver
from airflow_training.checkpoints.torch_state import TrainingObjects, apply, apply_random, capture

__all__ = ["HuggingFaceCheckpoint"]


class HuggingFaceCheckpoint(transformers.TrainerCallback):
    """Saves before a step when it is time, ends cleanly on SIGTERM, reports steps and logged metrics.

        checkpoint = HuggingFaceCheckpoint()
        trainer = Trainer(model, args, train_dataset=data, callbacks=[checkpoint])
        trainer.train(resume_from_checkpoint=checkpoint.resume())

    The model is a `PreTrainedModel`; `save_strategy="no"` spares the Trainer's own checkpoints.

    Args:
        root: Where to save when no job says so: a folder or an address.
        every: How often then, as `Saver` takes it.
    """

    def __init__(self, *, root: str | os.PathLike[str] | None = None, every: Any = None) -> None:
        place, agreement = distributed()
        self._saver = Saver(root=root, every=every, place=place, agreement=agreement)
        self._found: ResumePoint | None = None
        self._resumed = False
        self._folder = ""
        self._parts = TrainingObjects()
        self._trainer_state: Any = None
        self._done = 0
        self._random: Mapping[str, Any] | None = None
        """Random numbers to put back at the first step: starting the loader draws some."""
        self._evaluating: contextlib.ExitStack | None = None

    def resume(self) -> str | None:
        """The argument for `Trainer.train(resume_from_checkpoint=...)`; None to begin from the start.

        It is a folder for this call of `train` only. All ranks call it, once.

        Raises:
            CheckpointError: there is one, of another number of processes, or it cannot be read.
        """
        self._resumed = True
        self._found = found = self._saver.restore()
        if found is None:
            return None
        if found.manifest.world != self._saver.world:
            raise CheckpointError(
                f"the checkpoint is of {found.manifest.world} processes, there are {self._saver.world}:"
                " the Trainer finds its place in the data only with as many"
            )
        self._folder = tempfile.mkdtemp(prefix="checkpoint-")
        folder = Path(self._folder)
        (folder / "trainer_state.json").write_text(found.state()["extra"]["trainer"])
        # the Trainer wants a file of weights; those that count are put back in `on_train_begin`
        safetensors.torch.save_file({}, folder / "model.safetensors")
        _logger.addFilter(_no_weights)
        return self._folder

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self._resumed and self.resume() is not None:
            raise CheckpointError(
                "there is a checkpoint: call train(resume_from_checkpoint=checkpoint.resume())"
            )
        optimizer = kwargs["optimizer"]
        self._trainer_state = state
        self._parts = TrainingObjects(
            model=kwargs["model"],
            optimizer=optimizer,
            scheduler=kwargs["lr_scheduler"],
            scaler=getattr(optimizer, "scaler", None),
            data=None,
            ema=None,
        )
        _logger.removeFilter(_no_weights)
        if self._found is None:
            return
        saved, self._done = self._found.state(), self._found.step
        self._found = None
        shutil.rmtree(self._folder, ignore_errors=True)
        apply(self._parts, saved)
        self._random = saved["rng"]

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._random is not None:
            apply_random(self._random)
            self._random = None
        # not at the end of the step before: only now logs and evaluation of it are over
        self._boundary()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        report(step=state.global_step, total_steps=state.max_steps, epoch=state.epoch)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        numbers = {k: v for k, v in kwargs["logs"].items() if isinstance(v, int | float)}
        report(step=state.global_step, total_steps=state.max_steps, metrics=numbers)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._evaluating is None:  # the Trainer says when an evaluation ends, not when it begins
            self._evaluating = contextlib.ExitStack()
            self._evaluating.enter_context(section("eval"))

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._evaluating is not None:
            self._evaluating.close()
            self._evaluating = None

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._boundary()
        self._saver.close(self._state)

    def _boundary(self) -> None:
        done = self._trainer_state.global_step
        if done > self._done:
            self._done = done
            self._saver.boundary(done, self._state)

    def _state(self) -> dict[str, Any]:
        trainer = json.dumps(dataclasses.asdict(self._trainer_state))
        return {**capture(self._parts), "extra": {"trainer": trainer}}


_logger = logging.getLogger("transformers.trainer")


def _no_weights(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("There were missing keys in the checkpoint")
