"""How updates of the weights come about: here by gradients of all processes, each of which has the whole network."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy

from airflow_training.networks.trainer.group import TrainerGroup
from airflow_training.networks.trainer.nets import batch_of, load_weights
from airflow_training.networks.trainer.samples import Samples, blank
from airflow_training.networks.trainer.settings import TrainerSettings

if TYPE_CHECKING:
    import torch

__all__ = ["DataParallelUpdates", "Updates"]


class Updates(Protocol):
    """Takes the batches of a share, and updates the weights; all ranks call each method together."""

    @property
    def interval(self) -> int:
        """Batches of an update."""

    @property
    def speaks(self) -> bool:
        """Whether this rank tells of the samples of its share: others may have the same."""

    @property
    def test_batch_size(self) -> int:
        """Samples that a test takes at once."""

    @property
    def split(self) -> str:
        """The split in words; empty: each process has the whole network."""

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """What updates this rank's weights."""

    def add(self, batch: Samples, *, weight: float, last: bool) -> None:
        """Take a batch: of weight `len(batch)` by the samples that all shares bring to the update; `last` of it."""

    def apply(self) -> float:
        """Update the weights by what was added, and return the mean loss over all shares."""

    def load_weights(self, address: str) -> list[str]:
        """Begin with the weights of an earlier model; return the names of those it has not."""

    def whole_nets(self) -> tuple[torch.nn.Module, torch.nn.Module]:
        """Return the training net with all weights, and the test net, on whatever device."""


class DataParallelUpdates:
    """Gradients of all ranks are averaged by DistributedDataParallel."""

    speaks = True
    split = ""

    def __init__(
        self,
        *,
        settings: TrainerSettings,
        group: TrainerGroup,
        net: torch.nn.Module,
        test_net: torch.nn.Module,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        """Take the training net, and `model`: the same, or around it with its peers."""
        self.interval = settings.update_interval
        self.test_batch_size = settings.batch_size
        self.optimizer = optimizer
        self._settings = settings
        self._group = group
        self._net = net
        self._test_net = test_net
        self._model = model
        self._statistics = [*net.buffers()]
        """Of normalisation: those of rank 0 count, so that any number of ranks can go on from a checkpoint."""
        self._loss = 0.0

    def add(self, batch: Samples, *, weight: float, last: bool) -> None:
        """Add the gradients of a batch, which ranks exchange with the last one."""
        with self._alone(updates=last):
            self._loss += self._backward(batch, weight)

    def _backward(self, batch: Samples, weight: float) -> float:
        self._net.train(len(batch) > 0)  # what is no sample changes no running statistics
        if len(batch) == 1 and self._statistics:
            batch = batch.take(numpy.zeros(2, numpy.int64))  # one sample has no variance
        settings = self._settings
        # a rank without samples takes part in the sum, with nothing
        given = batch if len(batch) else blank(settings)
        inputs = batch_of(given, settings.train_inputs, settings, self._group.device)
        found = self._model(*inputs)["loss"]
        (found * (weight * self._group.world)).backward()
        return float(found.detach()) * weight if len(batch) else 0.0

    def apply(self) -> float:
        """Update the weights, unless the loss is no number."""
        (mean,) = self._group.sum(self._loss)
        self._loss = 0.0
        if math.isfinite(mean):
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self._group.spread(self._statistics)
        return mean

    def load_weights(self, address: str) -> list[str]:
        """Begin with the weights of an earlier model."""
        return load_weights(self._net, address)

    def whole_nets(self) -> tuple[torch.nn.Module, torch.nn.Module]:
        """Return the nets, which share their weights in a test."""
        return self._net, self._test_net

    @contextlib.contextmanager
    def _alone(self, *, updates: bool) -> Iterator[None]:
        """Leave gradients where they are until the update is due."""
        if self._group.world == 1 or updates:
            yield
            return
        model: Any = self._model
        with model.no_sync():
            yield
