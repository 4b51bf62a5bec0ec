"""Recording of training steps on one rank: torch's profiler, and when each pass began and ended."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from airflow_training.execution.timeline import (
    PassKind,
    RankRecord,
    StagePass,
    Timeline,
    TracedEvent,
    chrome_trace,
    mean_fractions,
    planned_fractions,
    step_fractions,
)

__all__ = ["StepRecorder", "finish_timeline"]

_OPERATOR = re.compile(r"[A-Za-z_]\w*::\w")
_NO_OPERATOR = re.compile(r"(?:c10d|_c10d_functional|autograd|torch|profiler)::")
"""What waits for other ranks, or only calls others."""
_COLLECTIVE = re.compile(r"(?:gloo|nccl|ucc|mpi):")
_TRANSFER = re.compile(r"(?:gloo|nccl|ucc|mpi):(?:send|recv)")
_STAGE_CALLS: Mapping[str, PassKind] = {
    "forward_one_chunk": "forward",
    "backward_one_chunk": "backward",
    "backward_weight_one_chunk": "weights",
}
"""Methods of a stage of `torch.distributed.pipelining`, whose first argument is the micro-batch."""


class StepRecorder:
    """Records steps between `begin` and `end`; its times are those of the machine's clock.

    On CUDA each pass waits for the device at its begin and its end, as its kernels run beside the program: what
    passes would hide of each other is not seen.
    """

    def __init__(self, *, rank: int, pipeline: int, stages: int, cuda: bool) -> None:
        self._rank = rank
        self._pipeline = pipeline
        self._stages = stages
        self._cuda = cuda
        self._steps: list[tuple[float, float]] = []
        self._passes: list[StagePass] = []
        self._replaced: list[tuple[Any, str]] = []
        self._profiler: Any = None

    def begin(self, runtimes: Sequence[Any]) -> None:
        """Begin to record; `runtimes`: the stages that this rank's schedule runs."""
        from torch.profiler import ProfilerActivity, profile

        for stage in runtimes:
            for name, kind in _STAGE_CALLS.items():
                wrapped = partial(self._call, getattr(stage, name), stage.stage_index, kind)
                setattr(stage, name, wrapped)
                self._replaced.append((stage, name))
        self._profiler = profile(activities=[ProfilerActivity.CPU])
        self._profiler.__enter__()

    def end(self) -> RankRecord:
        """End, and return what was recorded."""
        self._profiler.__exit__(None, None, None)
        for stage, name in self._replaced:
            delattr(stage, name)
        self._replaced.clear()
        traced = [
            TracedEvent(
                name=event.name(),
                thread=event.start_thread_id(),
                begin=event.start_ns() / 1e9,
                end=(event.start_ns() + event.duration_ns()) / 1e9,
            )
            for event in self._profiler.profiler.kineto_results.events()
        ]
        return RankRecord(
            rank=self._rank,
            pipeline=self._pipeline,
            stages=self._stages,
            steps=tuple(self._steps),
            passes=tuple(self._passes),
            operators=tuple(_innermost(traced)),
            collectives=tuple(
                each
                for each in traced
                if _COLLECTIVE.match(each.name) and not _TRANSFER.match(each.name)
            ),
            transfers=tuple(each for each in traced if _TRANSFER.match(each.name)),
        )

    @contextmanager
    def step(self) -> Iterator[None]:
        """Record one step."""
        begin = self._now()
        yield
        self._steps.append((begin, self._now()))

    @contextmanager
    def stage_pass(self, stage: int, micro_batch: int, kind: PassKind) -> Iterator[None]:
        """Record one pass."""
        begin = self._now()
        yield
        self._passes.append(
            StagePass(stage=stage, micro_batch=micro_batch, kind=kind, begin=begin, end=self._now())
        )

    def _call(
        self,
        method: Callable[..., Any],
        stage: int,
        kind: PassKind,
        micro_batch: int,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        with self.stage_pass(stage, micro_batch, kind):
            return method(micro_batch, *arguments, **options)

    def _now(self) -> float:
        if self._cuda:
            import torch

            torch.cuda.synchronize()
        return time.time_ns() / 1e9


def finish_timeline(timeline: Timeline, record: RankRecord, plan: Mapping[str, Any] | None) -> None:
    """Bring the records of all ranks together, which all call it; rank 0 writes the trace."""
    import torch.distributed as dist

    records: list[Any] = [record]
    if dist.is_available() and dist.is_initialized():
        records = [None] * dist.get_world_size()
        dist.all_gather_object(records, record)
    timeline.records = records
    timeline.ranks = step_fractions(records)
    timeline.fractions = mean_fractions(timeline.ranks)
    timeline.planned = planned_fractions(plan or {})
    if record.rank == 0:
        Path(timeline.path).write_text(json.dumps(chrome_trace(records)), encoding="utf-8")


def _innermost(events: Sequence[TracedEvent]) -> Iterator[TracedEvent]:
    """Yield the operators that have no other event inside them on their thread."""
    by_thread: dict[int, list[TracedEvent]] = {}
    for each in events:
        if not _COLLECTIVE.match(each.name):  # these end on another thread than they began on
            by_thread.setdefault(each.thread, []).append(each)
    for found in by_thread.values():
        found.sort(key=lambda each: (each.begin, -each.end))
        for each, after in zip(found, [*found[1:], None], strict=True):
            alone = after is None or after.begin >= each.end
            if alone and _OPERATOR.match(each.name) and not _NO_OPERATOR.match(each.name):
                yield each
