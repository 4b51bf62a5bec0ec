"""A training step as its plan says: passes, exchange of gradients, update; and its checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_training.checkpoints.checkpointer import distributed
from airflow_training.checkpoints.saver import Saver
from airflow_training.execution.execution_plan import ExecutionPlan
from airflow_training.execution.loss_scale import LossScale
from airflow_training.execution.microbatches import (
    check_rows,
    check_same,
    check_tensors,
    micro_batch_rows,
    move_tensors,
    replica_weight,
    sample_places,
    split_batch,
    take_rows,
)
from airflow_training.execution.pipeline_stages import PipelineRun, sum_shared_gradients
from airflow_training.execution.position_streams import PositionStreams
from airflow_training.execution.replica_speed import ReplicaBalance
from airflow_training.execution.replicas import replica_axis, sync_gradients
from airflow_training.execution.saved_state import (
    boxes_of,
    capture_state,
    load_tensors,
    restore_state,
)
from airflow_training.execution.step_recording import StepRecorder, finish_timeline
from airflow_training.execution.tensor_parallel import tensor_rules

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

    from airflow_training.checkpoints.torch_boundary import Boundary
    from airflow_training.execution.rejoining import HeldState, RejoinedTraining
    from airflow_training.execution.timeline import PassKind, Timeline

__all__ = ["DistributedTraining", "MicroBatch", "StageModule"]

MicroBatch = tuple[tuple[Any, ...], Any]
"""The module's arguments and the target."""


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
    unread: Mapping[str, Any] = field(default_factory=dict)
    """Buffers that no stage of a pipeline reads, by name: the first stage keeps them for checkpoints."""


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
        pipeline: PipelineRun | None = None,
        root: Any = None,
        every: Any = None,
        document: Mapping[str, Any] | None = None,
        loss_scale: LossScale | None = None,
        data: Any = None,
        balance: ReplicaBalance | None = None,
        streams: PositionStreams | None = None,
    ) -> None:
        """Take the parts that `distribute` made; `document`: the whole plan, where it came from a file."""
        self.plan = plan
        self.mesh = mesh
        self.optimizer = optimizer
        self.steps = 0
        """Steps that are done."""
        self.replica_samples: tuple[int, ...] = () if plan is None else plan.samples
        """Samples of each replica in a pass; other ones than the plan's once they were dealt out anew."""
        self._balance = balance
        self._streams = streams
        self._stages = stages
        self._loss = loss
        self._loss_scale = loss_scale
        self._data = data
        self._pipeline = pipeline
        self._replica = 0
        self._replicas: Any = None
        if plan is not None and mesh is not None and plan.dp > 1:
            axis = replica_axis(plan)
            self._replica = mesh.get_local_rank(axis)
            self._replicas = mesh[axis].get_group()
        place, agreement = distributed()
        self._saver = Saver(root=root, every=every, place=place, agreement=agreement)
        self._document = document
        self._recorder: StepRecorder | None = None
        self._saves = False
        self._boundary: Boundary | None = None
        """Only for those who rejoin: it costs a little at every step."""
        self._parts = 1
        """In how many the ranks of a training that rejoins split its state."""
        self._began = False
        self._held = [
            (stage.names[name], tensor)
            for stage in stages
            for named in (stage.bare.named_parameters(), stage.bare.named_buffers())
            for name, tensor in named
            if name in stage.names
        ] + [each for stage in stages for each in stage.unread.items()]
        """What this rank holds a part of, split as the optimizer has it: `fully_shard` puts others there in a step."""

    def step(self, batch: Any) -> torch.Tensor:
        """Train on one batch, the whole one on every rank; return the mean loss, equal on all ranks.

        The loss has to be a mean over samples. A job's checkpoint is saved when it is due, once `restore` was called.

        Raises:
            InputError: the batch is no pair, has not as many samples as the plan says, or is another on another rank
                (looked at in the first step).

        """
        inputs, target = split_batch(batch)
        if self.plan is not None:
            check_rows(self.plan, inputs, target, self.replica_samples)
        if self._pipeline is not None:
            check_tensors((*inputs, target))
        if self.mesh is not None and not self._began:
            check_same((inputs, target))  # unlike seeds show at once
            self._began = True
        loss = self._train(self.micro_batches(inputs, target), self._rows())
        if self._balance is not None:
            self.replica_samples = self._balance.look(self.replica_samples, self.steps)
        self.save_if_due()
        return loss

    def update(self, micro_batches: Sequence[MicroBatch]) -> torch.Tensor:
        """Train on the micro-batches of this rank's replica; return the mean loss of all replicas, equal on all ranks.

        All ranks of a replica give the same, and each replica as many. Without a pipeline, they may have unlike numbers of
        samples; the mean of a replica counts by the samples that the plan gives it. Nothing is saved: a loop that keeps its
        place in the data calls `save_if_due` once that is moved on. Random numbers follow from the replica and the place
        among its samples.
        """
        return self._train(micro_batches, None)

    def _train(
        self, micro_batches: Sequence[MicroBatch], rows: Sequence[slice] | None
    ) -> torch.Tensor:
        if self._balance is not None:
            self._balance.begin()
        if self._streams is not None:
            self._streams.begin(self.steps, sample_places(micro_batches, rows, self._replica))
        with nullcontext() if self._recorder is None else self._recorder.step():
            loss = self._update(micro_batches)
        self.steps += 1
        if self._boundary is not None:
            self._boundary.mark(self.steps)
        return loss

    def save_if_due(self) -> None:
        """Save where it is time, once `restore` was called; all ranks call it after each step.

        Raises:
            SystemExit: with 143 after SIGTERM.

        """
        if self._saves:
            self._saver.boundary(self.steps, self._capture)

    def micro_batches(self, inputs: tuple[Any, ...], target: Any) -> list[MicroBatch]:
        """Return those that this rank's replica takes of a whole batch."""
        return [(take_rows(inputs, part), take_rows(target, part)) for part in self._rows()]

    def _update(self, micro_batches: Sequence[MicroBatch]) -> torch.Tensor:
        self.optimizer.zero_grad()
        with self.rules():
            if self._pipeline is None:
                loss = self.accumulate(micro_batches)
            else:
                loss = self._run_schedule(self._pipeline, micro_batches)
            # a step whose gradients overflow is left out, on all ranks
            if self._loss_scale is None or self._loss_scale.unscale(self.optimizer):
                self.optimizer.step()
        return loss

    @contextmanager
    def timeline(self, path: str | os.PathLike[str]) -> Iterator[Timeline]:
        """Record the steps within a `with`; all ranks call it, and make the same steps.

            with training.timeline("trace.json") as timeline:
                for batch in batches:
                    training.step(batch)
            print(timeline)

        At its end rank 0 writes a Chrome trace of all ranks to `path`, and on every rank `timeline.fractions` says which
        part of the steps was computing, communicating visibly and bubble, beside `timeline.planned`. Steps are slower
        while they are recorded.
        """
        import torch.distributed as dist

        from airflow_training.execution.timeline import Timeline

        pipeline = 0
        if self.mesh is not None and self.plan is not None:
            pipeline = self._replica * self.plan.tp + self.mesh.get_local_rank("tp")
        recorder = StepRecorder(
            rank=dist.get_rank() if self.mesh is not None else 0,
            pipeline=pipeline,
            stages=1 if self._pipeline is None or self.plan is None else self.plan.stages,
            cuda=next(self._stages[0].bare.parameters()).device.type == "cuda",
        )
        timeline = Timeline(path=os.fspath(path))
        recorder.begin(() if self._pipeline is None else self._pipeline.runtimes)
        self._recorder = recorder
        try:
            yield timeline
        finally:
            self._recorder = None
            record = recorder.end()
        finish_timeline(timeline, record, self._document)

    def accumulate(self, micro_batches: Sequence[MicroBatch]) -> torch.Tensor:
        """Run the passes of a step without a pipeline: gradients are those of the mean over all samples."""
        stage = self._stages[0]
        count = len(micro_batches)
        weight = self._weight
        total = 0.0
        for number, (inputs, target) in enumerate(micro_batches):
            last = number == count - 1
            with self._sync(stage.run, last=last):
                with self._pass(number, "forward", last=last):
                    output = stage.run(*self._moved(inputs, stage))
                    (expected,) = self._moved((target,), stage)
                    loss = self._loss(output, expected) * weight
                del output  # logits in fp32 are large, and no backward pass reads them
                with self._pass(number, "backward", last=last):
                    scaled = loss if self._loss_scale is None else self._loss_scale.scale(loss)
                    (scaled / count).backward()
            total = total + loss.detach() / count
        return self._mean(total)

    @property
    def scale(self) -> float:
        """What the loss is multiplied by before the backward pass: in fp16 only."""
        return 1.0 if self._loss_scale is None else self._loss_scale.value

    @property
    def modules(self) -> list[torch.nn.Module]:
        """This rank's modules, one for each stage: with the user's own names where there is no pipeline."""
        return [stage.bare for stage in self._stages]

    @property
    def stage_numbers(self) -> list[int]:
        """Which stage of the pipeline each of `modules` is; 0 without one."""
        return [stage.index for stage in self._stages]

    def named_tensors(self) -> list[tuple[str, torch.Tensor]]:
        """The parameters and buffers that this rank holds a part of, by the names in the user's module."""
        return list(self._held)

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
            self.steps = restore_state(
                found, self._held, self.optimizer, loss_scale=self._loss_scale, data=self._data
            )
        self._saves = self._saver.enabled
        return self.steps

    def rejoin(self, held: HeldState | None = None) -> RejoinedTraining:
        """As `restore`, but all ranks go on from the state that they still hold, where each part of it is held by one.

        All ranks call it, each time their group was formed; whoever trained in the group before gives what `hold` returned there,
        in whichever split.

        Raises:
            CheckpointError: a checkpoint does not fit this module or optimizer.

        """
        from airflow_training.execution.rejoining import agree, watch_boundary

        now = self._saver
        if held is not None:
            self._saver = held.saver
        self._saver.regroup(place=(now.rank, now.world), agreement=now.agreement)
        live, rejoined = agree(held, saver=self._saver, wants=boxes_of(self._held))
        if live is None:
            step = self.restore()
            lost = 0 if held is None else max(0, held.reached - step)
            rejoined = replace(rejoined, step=step, lost_steps=lost)
        else:
            self.steps = restore_state(
                live, self._held, self.optimizer, loss_scale=self._loss_scale, data=self._data
            )
            self._saves = self._saver.enabled
        self._parts = rejoined.parts
        self._boundary = watch_boundary(
            self.modules,
            self.optimizer,
            loss_scale=self._loss_scale,
            data=self._data,
            split=self.plan is not None and not self.plan.is_whole,
        )
        self._boundary.mark(self.steps)
        return rejoined

    def hold(self) -> HeldState:
        """Return the state after the last step that was done, for `rejoin` of another training in another group.

        This training is of no use afterwards. It is called before the group is torn down, whatever step was interrupted.
        """
        from airflow_training.execution.rejoining import HeldState, hold_state

        step, why = None, "it did not begin to train"
        if self._boundary is not None:
            step, why = self._boundary.roll_back()
        if step is None:
            return HeldState(saver=self._saver, reached=self.steps, why=why)
        return hold_state(
            self._capture(),
            step=step,
            saver=self._saver,
            boxes=boxes_of(self._held),
            parts=self._parts,
        )

    def close(self) -> None:
        """Save the last step where it is not, and wait for it."""
        self._saver.close(self._capture if self._saves else None)

    def gather(self, *, device: str | None = None) -> dict[str, torch.Tensor]:
        """Return all parameters and buffers whole, on every rank; all ranks call it.

        Args:
            device: where they are kept, as `cpu` for more than one device holds; None: where they are.

        """
        import torch
        import torch.distributed as dist

        with torch.no_grad():
            mine = {
                name: (
                    tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor.detach()
                ).to(device or tensor.device, copy=True)
                for name, tensor in self._held
            }
        if self._pipeline is None:
            return mine
        parts: list[Any] = [None] * dist.get_world_size(self._pipeline.group)
        dist.all_gather_object(parts, mine, group=self._pipeline.group)
        return {name: tensor for part in parts for name, tensor in part.items()}

    def load(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Begin with other weights: whole ones by name, as `gather` returns them; those that are not named stay."""
        load_tensors(self._held, weights)

    def _capture(self) -> dict[str, Any]:
        return capture_state(
            self._held,
            self.optimizer,
            step=self.steps,
            loss_scale=self._loss_scale,
            data=self._data,
        )

    def _run_schedule(
        self, pipeline: PipelineRun, micro_batches: Sequence[MicroBatch]
    ) -> torch.Tensor:
        import torch
        import torch.distributed as dist

        like = next(self._stages[0].bare.parameters())
        own = {each.index: each.bare for each in self._stages}
        parts = [self._moved(inputs, self._stages[0]) for inputs, _ in micro_batches]
        pipeline.feed.begin(parts)
        given: tuple[Any, ...] = ()
        if 0 in own:
            columns = list(zip(*parts, strict=True))
            given = tuple(torch.cat(columns[place]) for place in pipeline.first_inputs)
        targets = torch.cat([target for _, target in micro_batches])
        (expected,) = self._moved((targets,), self._stages[0])
        losses: list[torch.Tensor] = []
        scale = self.scale
        pipeline.schedule.step(*given, target=expected, losses=losses, return_outputs=False)
        sum_shared_gradients(pipeline.shared, own, pipeline.group)
        total = torch.zeros((), device=like.device, dtype=like.dtype)
        if losses:  # the rank of the last stage has them
            total += torch.stack(losses).mean().detach()
            total /= scale
        dist.all_reduce(total, group=pipeline.group)
        return self._mean(total)

    @contextmanager
    def _pass(self, micro_batch: int, kind: PassKind, *, last: bool) -> Iterator[None]:
        with ExitStack() as measured:
            if self._recorder is not None:
                measured.enter_context(self._recorder.stage_pass(0, micro_batch, kind))
            if self._balance is not None:
                forward = kind == "forward"
                timed = self._balance.forward() if forward else self._balance.backward(last=last)
                measured.enter_context(timed)
            yield

    def _mean(self, loss: Any) -> torch.Tensor:
        import torch.distributed as dist

        if self._replicas is not None:
            dist.all_reduce(loss, group=self._replicas)
            loss = loss / dist.get_world_size(self._replicas)
        return loss  # type: ignore[no-any-return]

    def _rows(self) -> list[slice]:
        if self.plan is None:
            return [slice(None)]
        return micro_batch_rows(self.plan, self._replica, self.replica_samples)

    @property
    def _weight(self) -> float:
        """As how many replicas of even size this rank's counts."""
        if self._replicas is None:
            return 1.0
        return replica_weight(self.replica_samples, self._replica)

    def _moved(self, values: Sequence[Any], stage: StageModule) -> tuple[Any, ...]:
        """Bring tensors to the device, and floats into the type, of the parameters."""
        return move_tensors(tuple(values), next(stage.bare.parameters()))  # type: ignore[no-any-return]

    def _sync(self, module: Any, *, last: bool) -> AbstractContextManager[Any]:
        if self.plan is None:
            return nullcontext()
        return sync_gradients(module, self.plan, last=last)  # type: ignore[no-any-return]

    def rules(self) -> AbstractContextManager[Any]:
        """Hold what tensor parallel passes need of torch, around a whole step."""
        if self.plan is None or self.plan.tp == 1:
            return nullcontext()
        return tensor_rules()
