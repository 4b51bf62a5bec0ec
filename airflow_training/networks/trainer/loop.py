"""The training itself: epochs of updates over the samples of all ranks, tests between them."""

from __future__ import annotations

import math
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_training.networks.trainer.evaluating import Evaluation, evaluate
from airflow_training.networks.trainer.group import TrainerGroup
from airflow_training.networks.trainer.mistakes import TrainerError
from airflow_training.networks.trainer.reading import ShareReader
from airflow_training.networks.trainer.results import prediction_rows, write_predictions
from airflow_training.networks.trainer.samples import Samples
from airflow_training.networks.trainer.session import file_readings, report_progress, section
from airflow_training.networks.trainer.settings import TrainerSettings
from airflow_training.networks.trainer.shares import ShareOrder, left_over
from airflow_training.networks.trainer.updates import Updates

__all__ = ["NetworkTraining"]

_REPORT_SECONDS = 0.5
"""Between two lines of progress: more would tell nobody more."""


class NetworkTraining:
    """One rank's part in the training of a network."""

    def __init__(
        self,
        *,
        settings: TrainerSettings,
        group: TrainerGroup,
        reader: ShareReader,
        updates: Updates,
        order: ShareOrder,
        checkpoint: Any,
        samples: Samples,
        counts: list[int],
        tests: Samples | None,
    ) -> None:
        """Take all that takes part: `samples` are this rank's share, `counts` those of all shares."""
        self.settings = settings
        self.group = group
        self.reader = reader
        self.updates = updates
        self.order = order
        self.checkpoint = checkpoint
        self.samples = samples
        self.counts = counts
        self.tests = tests
        self.step = 0
        self.metrics: Mapping[str, float] = {}
        self.tested = 0
        self._said = 0.0
        self._taken = 0
        """Samples of this rank since it began."""

    def run(self, step: int) -> None:
        """Train from a step to the last epoch, and test after each.

        Raises:
            TrainerError: the loss is no number any more, or the files are others than at the last start.
            SystemExit: with 143 after SIGTERM, as of `Checkpointer.step`.
        """
        self.step = step
        evaluated = -1
        while self.order.epoch < self.settings.epochs:
            epoch = self.order.epoch
            self._train_epoch(self._next_stage())
            self._test(epoch + 1)
            evaluated = epoch + 1
        if evaluated < 0:  # it broke after the last update
            self._test(self.settings.epochs)
        self.checkpoint.close()

    def _next_stage(self) -> Samples:
        """Return the samples that this rank trains on next: its share, or its part of what an epoch has left."""
        order, shares = self.order, len(self.counts)
        same = order.resume(shares)
        held, counts = self.samples, self.counts
        if order.before:
            wanted = left_over(
                order.before, shares, seed=order.seed, epoch=order.epoch, shuffle=order.shuffle
            )
            counts = [len(each) for each in wanted]
            held = self.reader.read_rows(wanted[order.rank], len(order.before[0].counts))
        if not (same and order.done):
            order.begin(counts)
        elif [*order.counts] != counts:
            raise TrainerError(
                "the checkpoint",
                f"was saved with {sum(order.counts):,} samples, and the files hold {sum(counts):,} now",
                "put the files back as they were, or begin a new run",
            )
        return held

    def _train_epoch(self, held: Samples) -> None:
        order, interval = self.order, self.updates.interval
        epoch, begun = order.epoch, order.done
        totals = Counter(held.files.tolist())
        read: Counter[int] = Counter()
        changed: set[int] = set()
        window = 0
        last = order.steps - 1
        for number, chosen in order.batches():
            if (number - begun) % interval == 0:
                upto = min(number + interval, last + 1)
                window = sum(sum(order.sizes(each)) for each in range(number, upto))
            updates = (number - begun + 1) % interval == 0 or number == last
            batch = held.take(chosen)
            self.updates.add(batch, weight=len(chosen) / window, last=updates)
            for file, count in Counter(batch.files.tolist()).items():
                read[file] += count
                changed.add(file)
            self._taken += len(chosen)
            if not updates:
                continue
            mean = self._apply(epoch)
            order.advance(number)
            self.checkpoint.step(self.step)
            self.step += 1
            now = time.monotonic()
            if now - self._said >= _REPORT_SECONDS or number == last:
                done = (number + 1) / (last + 1)
                readings = file_readings(
                    self._names, {file: read[file] for file in sorted(changed)}, totals
                )
                self._report(epoch + done, {"loss": mean}, readings, left=1 - done)
                self._said = now
                changed.clear()

    def _apply(self, epoch: int) -> float:
        mean = self.updates.apply()
        if not math.isfinite(mean):
            raise TrainerError(
                f"epoch {epoch}, step {self.step}",
                f"the loss is {'not a number' if math.isnan(mean) else 'infinite'}: training further is no use",
                "a smaller trainer.optimizer.learningRate, inputs of about -1 to 1 (a BatchNorm layer first), or a look for outliers in the data",
            )
        return mean

    def _test(self, epoch: int) -> None:
        if self.tests is None:
            return
        with section("eval"):
            settings = replace(self.reader.settings, batch_size=self.updates.test_batch_size)
            found = evaluate(
                *self.updates.whole_nets(), self.tests, settings=settings, group=self.group
            )
        self.metrics, self.tested = found.metrics, found.samples
        self._tell(found, epoch)

    def _tell(self, found: Evaluation, epoch: int) -> None:
        if not self.group.first_of_instance:
            return
        if folder := os.environ.get("TRAINING_PREDICTIONS_DIR"):
            rows = prediction_rows(found, self.reader.settings)
            write_predictions(Path(folder), self.step, rows)
        if self.group.rank == 0:
            self._report(epoch, found.metrics, [])
            told = ", ".join(f"{name} {value:.4f}" for name, value in found.metrics.items())
            sys.stdout.write(f"epoch {epoch} of {self.settings.epochs}: {told}\n")
            sys.stdout.flush()

    def _report(
        self,
        epoch: float,
        metrics: Mapping[str, float],
        files: list[dict[str, Any]],
        left: float = 0.0,
    ) -> None:
        steps = -(
            -max(-(-each // self.order.batch_size) for each in self.counts) // self.updates.interval
        )
        todo = max(self.settings.epochs - int(epoch - 1e-9) - 1, 0)
        report_progress(
            step=self.step,
            total_steps=self.step + math.ceil(left * steps) + todo * steps,
            epoch=epoch,
            samples=self._taken if self.updates.speaks else None,
            metrics=metrics,
            files=files if self.updates.speaks else [],
        )

    @property
    def _names(self) -> list[str]:
        return [each.name for each in self.reader.files]
