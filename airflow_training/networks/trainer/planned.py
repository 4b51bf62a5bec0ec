"""Updates by the job's plan: the network is split over ranks as it says, by `airflow_training.execution`.

The ranks of a replica train on the same share of the samples. Not in packed trainings, which have no plan.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from airflow_training.networks.trainer.group import TrainerGroup
from airflow_training.networks.trainer.mistakes import TrainerError
from airflow_training.networks.trainer.nets import batch_of, load_weights
from airflow_training.networks.trainer.samples import Samples
from airflow_training.networks.trainer.settings import TrainerSettings
from airflow_training.networks.trainer.shares import ShareOrder, fill_passes

if TYPE_CHECKING:
    import torch

    from airflow_training.execution.execution_plan import ExecutionPlan
    from airflow_training.execution.training import DistributedTraining

__all__ = ["PlanCheckpoint", "PlannedUpdates", "Split", "read_split", "split_network"]

Array = numpy.ndarray[Any, Any]
_TESTED_AT_ONCE = 32
"""Samples, where the plan has smaller micro-batches."""
_SEEDS = 1_000_003
"""Between those of two replicas or stages: more than most trainings have steps."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """A plan, and what this rank is in it."""

    plan: ExecutionPlan
    replica: int
    stage: int
    speaks: bool
    """Whether it is the first rank of its replica, which tells of their samples."""

    @property
    def batch_size(self) -> int:
        """Samples of a replica in an update."""
        return self.plan.micro_batch * self.plan.micro_batches

    def __str__(self) -> str:
        sizes = {
            "tensor parallel": self.plan.tp,
            "stages": self.plan.stages,
            "replicas": self.plan.dp,
        }
        told = [f"{name} {size}" for name, size in sizes.items() if size > 1]
        told += [f"ZeRO {self.plan.zero}"] if self.plan.zero else []
        return ", ".join(told) or "one device"


def read_split(group: TrainerGroup, environment: Mapping[str, str] = os.environ) -> Split:
    """Read the plan of the job.

    Raises:
        TrainerError: there is none, it is for another number of ranks, or this Python lacks what carries it out.
    """
    try:
        from airflow_training.execution.execution_plan import check_world, read_plan
        from airflow_training.execution.mesh import replica_of, stage_of
    except ImportError as error:
        raise TrainerError(
            "spec.plan.apply",
            f"engine needs airflow-training where instances run: {error}",
            "install it there, in the version that planned the job, or take engine out of apply",
        ) from None
    path = environment.get("PLAN_FILE", "")
    if not path:
        fix = "start it as a job with `apply: [replicas, env, microBatch, engine]`"
        raise TrainerError("PLAN_FILE", "is not set, so nothing says how to split", fix)
    with _mistakes():
        plan = read_plan(path)
        check_world(plan, group.world)
    if plan.replica_samples is not None:
        told = "each instance reads an equal share of the files, and the plan gives replicas unlike parts"
        raise TrainerError("replica_samples", told, "take it out of the plan")
    stage = stage_of(plan, group.rank)
    return Split(
        plan=plan,
        replica=replica_of(plan, group.rank),
        stage=stage,
        speaks=stage == 0 and group.rank % plan.tp == 0,
    )


def split_network(
    split: Split,
    *,
    settings: TrainerSettings,
    group: TrainerGroup,
    nets: tuple[torch.nn.Module, torch.nn.Module],
    optimizer: Callable[[Any], torch.optim.Optimizer],
    order: ShareOrder,
    example: Samples,
) -> tuple[PlannedUpdates, PlanCheckpoint]:
    """Split a training net as the plan says; all ranks call it, with the same example.

    Raises:
        TrainerError: the network cannot be split so; names the layer or operator, on all ranks.
    """
    import torch

    from airflow_training.execution.distributing import distribute

    net, test_net = nets
    plain = copy.deepcopy(net)
    rows = example.take(
        numpy.resize(numpy.arange(len(example)), split.plan.micro_batch * split.plan.dp)
    )
    inputs = batch_of(rows, settings.train_inputs, settings, group.device)
    with _mistakes():
        training = distribute(
            _with_loss(net.to(group.device), name=str(settings.network["metadata"]["name"])),
            loss=_weighted,
            optimizer=optimizer,
            example=(tuple(inputs), torch.ones(len(rows))),
            plan=split.plan,
            randomness="independent",
            data=order,
        )
    updates = PlannedUpdates(
        split,
        training,
        settings=settings,
        group=group,
        net=plain,
        test_net=test_net,
        order=order,
        example=example,
    )
    return updates, PlanCheckpoint(training)


class PlannedUpdates:
    """Each update is a step of a training that its plan splits."""

    interval = 1

    def __init__(
        self,
        split: Split,
        training: DistributedTraining,
        *,
        settings: TrainerSettings,
        group: TrainerGroup,
        net: torch.nn.Module,
        test_net: torch.nn.Module,
        order: ShareOrder,
        example: Samples,
    ) -> None:
        """Take the split training, and both nets whole, which are filled for tests and at the end."""
        self.speaks = split.speaks
        self.split = str(split)
        self.optimizer = training.optimizer
        self.test_batch_size = max(split.plan.micro_batch, _TESTED_AT_ONCE)
        self._plan = split.plan
        self._dropout = split.replica + split.plan.dp * split.stage
        self._training = training
        self._settings = settings
        self._group = group
        self._net = net
        self._test_net = test_net
        self._order = order
        self._example = example
        # stages exchange tensors of one size, and what DTensor cuts, and whether it can, depends on it
        self._same_size = split.plan.pp * split.plan.tp > 1
        self._normed = any(True for _ in net.buffers())
        self._given: list[Any] = []

    def add(self, batch: Samples, *, weight: float, last: bool) -> None:
        """Cut the batch of a replica into the micro-batches of the plan."""
        assert last  # noqa: S101 - an update has one batch
        # what is no sample changes no weights, and looks to a norm as samples do
        given = batch if len(batch) else self._example
        parts = self._parts(len(batch), len(given))
        each = weight / max(len(batch), 1) * len(parts) * self._plan.dp
        self._given = [self._micro_batch(given, rows, counted * each) for rows, counted in parts]

    def _parts(self, count: int, given: int) -> list[tuple[Array, float]]:
        """Return for each micro-batch its samples, and as how many of `count` they count; `given` are there.

        Where their size is fixed, samples come again to fill it. A norm gets all micro-batches full or, where sizes
        may differ, fewer ones: samples that only come again in one say nothing of how they vary.
        """
        size, passes = self._plan.micro_batch, self._plan.micro_batches
        if self._same_size and self._normed:
            rows = numpy.resize(numpy.arange(given), size * passes)
            return [(part, count / passes) for part in numpy.split(rows, passes)]
        if self._same_size:
            spare = numpy.resize(numpy.arange(given), size)
            filled = fill_passes(count, size, passes)
            return filled + [(spare, 0.0)] * (passes - len(filled))
        if self._normed:
            passes = self._passes()
        least = 2 if self._normed and self._plan.dp == 1 else 1
        return [
            (
                numpy.resize(part if len(part) else numpy.arange(given), max(len(part), least)),
                len(part),
            )
            for part in numpy.array_split(numpy.arange(count), passes)
        ]

    def _passes(self) -> int:
        """Return how many micro-batches hold the samples of this update, on all replicas, none of them a single one."""
        counts = self._order.sizes(self._order.done)
        passes = max(-(-each // self._plan.micro_batch) for each in counts)
        return max(min(passes, counts[0] // 2) if len(counts) == 1 else passes, 1)

    def _micro_batch(self, batch: Samples, rows: Array, weight: float) -> Any:
        """Return inputs and weight of some samples."""
        import torch

        given = batch.take(rows)
        settings = self._settings
        inputs = batch_of(given, settings.train_inputs, settings, self._group.device)
        return tuple(inputs), torch.full((len(rows),), weight)

    def apply(self) -> float:
        """Make the step."""
        import torch

        # one dropout for each replica and stage, by the number of the step: ranks that hold the same numbers draw the same,
        # whichever split the checkpoint was of that they went on from
        torch.manual_seed(self._settings.seed + 1 + self._training.steps + _SEEDS * self._dropout)
        return float(self._training.update(self._given))

    def load_weights(self, address: str) -> list[str]:
        """Begin with the weights of an earlier model: each rank with its part."""
        misfits = load_weights(self._net, address)
        self._training.load(self._net.state_dict())
        return misfits

    def whole_nets(self) -> tuple[torch.nn.Module, torch.nn.Module]:
        """Gather all weights on every rank, and return copies of the nets with them, on the CPU."""
        self._net.load_state_dict(self._training.gather(device="cpu"), strict=False)
        return copy.deepcopy(self._net), copy.deepcopy(self._test_net)


class PlanCheckpoint:
    """The checkpoints of a split training, which any other split can go on from."""

    def __init__(self, training: DistributedTraining) -> None:
        """Take the training, which has a place to save to where the job says one."""
        self._training = training

    def restore(self) -> int:
        """Put back the newest one, and return the step to begin with."""
        return self._training.restore()

    def step(self, _: int) -> None:
        """Save where it is due."""
        self._training.save_if_due()

    def close(self) -> None:
        """Save the last step."""
        self._training.close()


def _weighted(loss: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return loss * weights.mean()


def _with_loss(net: torch.nn.Module, *, name: str) -> torch.nn.Module:
    """Let a training net return its loss alone, under a name for messages; names of layers and weights stay."""
    kind: Any = type(net)

    class LossNet(kind):  # type: ignore[misc]  # of a class that was generated
        def forward(self, *inputs: Any) -> Any:
            return super().forward(*inputs)["loss"]

    LossNet.__name__ = name
    forward: Any = LossNet.forward
    forward.__signature__ = inspect.signature(kind.forward)  # tracers name the inputs by it
    net.__class__ = LossNet
    return net


@contextmanager
def _mistakes() -> Iterator[None]:
    """Tell what cannot be split in the trainer's words."""
    from airflow_training.errors import InputError

    try:
        yield
    except InputError as error:
        first = error.problems[0]
        told = "; ".join(f"{each.field}: {each.message}" for each in error.problems)
        raise TrainerError("the plan cannot be carried out", told, first.hint) from None
