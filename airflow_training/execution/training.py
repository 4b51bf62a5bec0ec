"""A training step as its plan says: passes, exchange of gradients, update; and its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_training.checkpoints.checkpointer import distributed
from airflow_training.checkpoints.saver import Saver
from airflow_training.errors import InputError
from airflow_training.execution.execution_plan import ExecutionPlan
from airflow_training.execution.microbatches import micro_batch_rows, split_batch, take_rows
from airflow_training.execution.pipeline_stages import SharedParameter, sum_shared_gradients
from airflow_training.execution.replicas import sync_gradients
from airflow_training.execution.saved_state import capture_state, restore_state
from airflow_training.execution.stage_inputs import InputFeed
from airflow_training.execution.tensor_parallel import tensor_rules

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["DistributedTraining", "StageModule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageModule:
    """One stage that this rank holds; without a pipeline there is one, the whole module."""

    index: int
    run: Any
    """The module that is called: with DistributedDataParallel around it, where there is one."""
    bare: Any
    """The module itself, with the parameters' own names."""
    names: Mapping[str, str]
    """Name of a parameter or buffer here -> its first name in the user's module."""


class DistributedTraining:
    """What `distribute` returns."""

    def __init__(
        self,
        *,
        plan: ExecutionPlan | None,
        mesh: DeviceMesh | None,
        stages: Sequence[StageModule],
        loss: Callable[..., Any],
        optimizer: torch.optim.Optimizer,
        schedule: Any = None,
        shared: Sequence[SharedParameter] = (),
        feed: InputFeed | None = None,
        first_inputs: Sequence[int] = (),
        root: Any = None,
        every: Any = None,
    ) -> None:
        """Take the parts that `distribute` made; those from `schedule` to `first_inputs` are a pipeline's."""
        self.plan = plan
        self.mesh = mesh
        self.optimizer = optimizer
        self.steps = 0
        """Steps that are done."""
        self._stages = stages
        self._loss = loss
        self._schedule = schedule
        self._shared = shared
        self._feed = feed
        self._first_inputs = first_inputs
        place, agreement = distributed()
        self._saver = Saver(root=root, every=every, place=place, agreement=agreement)
        self._saves = False
        self._held = [
            (stage.names[name], tensor)
            for stage in stages
            for named in (stage.bare.named_parameters(), stage.bare.named_buffers())
            for name, tensor in named
            if name in stage.names
        ]
        """What this rank holds a part of, split as the optimizer has it: `fully_shard` puts others there in a step."""

    def step(self, batch: Any) -> torch.Tensor:
        """Train on one batch, the whole one on every rank; return the mean loss, equal on all ranks.

        The loss has to be a mean over samples. A job's checkpoint is saved when it is due, once `restore` was called.

        Raises:
            InputError: the batch is no pair, or has not as many samples as the plan says.

        """
        inputs, target = split_batch(batch)
        self.optimizer.zero_grad()
        with self._rules():
            if self._schedule is None:
                loss = self.accumulate(inputs, target)
            else:
                loss = self._run_schedule(inputs, target)
            self.optimizer.step()
        self.steps += 1
        if self._saves:
            self._saver.boundary(self.steps, self._capture)
        return loss

    def accumulate(self, inputs: tuple[Any, ...], target: Any) -> torch.Tensor:
        """Run the passes of a step without a pipeline: gradients are those of the mean over micro-batches."""
        stage = self._stages[0]
        rows = self._rows(target)
        total = 0.0
        for number, part in enumerate(rows):
            last = number == len(rows) - 1
            with self._sync(stage.run, last=last):
                output = stage.run(*self._moved(take_rows(inputs, part), stage))
                (expected,) = self._moved(take_rows((target,), part), stage)
                loss = self._loss(output, expected)
                (loss / len(rows)).backward()
            total = total + loss.detach() / len(rows)
        return self._mean(total)

    def save(self) -> None:
        """Save now and wait; all ranks call it. Without a place to save to it does nothing."""
        self._saver.save(self.steps, self._capture)

    def restore(self) -> int:
        """Put back the newest whole checkpoint, whatever split wrote it; return the steps that were done.

        From then on `step` saves when it is time.

        Raises:
            CheckpointError: it does not fit this module or optimizer.

        """
        found = self._saver.restore()
        if found is not None:
            self.steps = restore_state(found, self._held, self.optimizer)
        self._saves = self._saver.enabled
        return self.steps

    def close(self) -> None:
        """Save the last step where it is not, and wait for it."""
        self._saver.close(self._capture if self._saves else None)

    def gather(self) -> dict[str, torch.Tensor]:
        """Return all parameters and buffers whole, on every rank; all ranks call it."""
        import torch
        import torch.distributed as dist

        with torch.no_grad():
            mine = {
                name: (
                    tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor.detach()
                ).clone()
                for name, tensor in self._held
            }
        if self.mesh is None or self.plan is None or self.plan.pp == 1:
            return mine
        group = self.mesh["pp"].get_group()
        parts: list[Any] = [None] * self.plan.pp
        dist.all_gather_object(parts, mine, group=group)
        return {name: tensor for part in parts for name, tensor in part.items()}

    def _capture(self) -> dict[str, Any]:
        return capture_state(self._held, self.optimizer, step=self.steps)

    def _run_schedule(self, inputs: tuple[Any, ...], target: Any) -> torch.Tensor:
        import torch
        import torch.distributed as dist

        assert self.mesh is not None and self.plan is not None and self._feed is not None
        rows = self._rows(target)
        stage = self._stages[0]
        own = {each.index: each.bare for each in self._stages}
        losses: list[torch.Tensor] = []
        given: tuple[Any, ...] = ()
        expected: Any = None
        parts = [self._moved(take_rows(inputs, part), stage) for part in rows]
        self._feed.begin(parts)
        if 0 in own:
            columns = list(zip(*parts, strict=True))
            given = tuple(_joined(columns[place]) for place in self._first_inputs)
        if self.plan.stages - 1 in own:
            (expected,) = self._moved((_joined([target[part] for part in rows]),), stage)
        self._schedule.step(*given, target=expected, losses=losses, return_outputs=False)
        group = self.mesh["pp"].get_group()
        sum_shared_gradients(self._shared, own, group)
        device = next(stage.bare.parameters()).device
        dtype = next(stage.bare.parameters()).dtype
        total = torch.stack(losses).mean().detach() if losses else torch.zeros((), device=device)
        total = total.to(dtype)
        last = dist.get_global_rank(group, (self.plan.stages - 1) % self.plan.pp)
        dist.broadcast(total, last, group=group)
        return self._mean(total)

    def _mean(self, loss: Any) -> torch.Tensor:
        import torch.distributed as dist

        if self.mesh is not None and self.plan is not None and self.plan.dp > 1:
            dist.all_reduce(loss, group=self._replica_group())
            loss = loss / self.plan.dp
        return loss  # type: ignore[no-any-return]

    def _replica_group(self) -> Any:
        assert self.mesh is not None and self.plan is not None
        return self.mesh["shards" if self.plan.zero else "replicas"].get_group()

    def _rows(self, target: Any) -> list[slice]:
        if self.plan is None:
            return [slice(None)]
        if len(target) != self.plan.global_batch:
            raise InputError.of(
                code="BadBatch",
                field="batch",
                message=f"{len(target)} samples, and a step of the plan has {self.plan.global_batch}",
                value=len(target),
                allowed=(self.plan.global_batch,),
                hint="every rank gives the whole batch; the plan says which part it trains on",
            )
        replica = 0
        if self.mesh is not None:
            replica = self.mesh.get_local_rank("shards" if self.plan.zero else "replicas")
        return micro_batch_rows(self.plan, replica)

    def _moved(self, values: Sequence[Any], stage: StageModule) -> tuple[Any, ...]:
        """Bring tensors to the device, and floats into the type, of the parameters."""
        like = next(stage.bare.parameters())

        def moved(value: Any) -> Any:
            if not hasattr(value, "to"):
                return value
            return value.to(like.device, like.dtype if value.is_floating_point() else None)

        return tuple(moved(value) for value in values)

    def _sync(self, module: Any, *, last: bool) -> AbstractContextManager[Any]:
        if self.plan is None:
            return nullcontext()
        return sync_gradients(module, self.plan, last=last)  # type: ignore[no-any-return]

    def _rules(self) -> AbstractContextManager[Any]:
        if self.plan is None or self.plan.tp == 1:
            return nullcontext()
        return tensor_rules()


def _joined(parts: Sequence[Any]) -> Any:
    import torch

    return torch.cat(list(parts)) if isinstance(parts[0], torch.Tensor) else parts[0]
