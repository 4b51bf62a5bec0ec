"""How long each replica computes in a pass, without what it waits for others, and what shares of the samples follow."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from airflow_training.execution.execution_plan import ExecutionPlan
from airflow_training.execution.sample_shares import imbalance, rebalance_samples

if TYPE_CHECKING:
    import torch
    from torch.nn.parallel import DistributedDataParallel

__all__ = ["ReplicaBalance", "balance_replicas"]

_LOG = logging.getLogger(__name__)
_STEPS = 8
"""Steps between two looks: the median of so many leaves out one that was disturbed."""
_MEMORY = 0.9
"""Of a device, which larger shares may fill."""


class ReplicaBalance:
    """Measures the passes of this rank, and deals out the samples anew where replicas are unlike.

    A pass is measured forward, and backward until its last gradient is there: what then is waited for are others.
    """

    def __init__(
        self, plan: ExecutionPlan, module: DistributedDataParallel, *, limit: float
    ) -> None:
        """Take the module of this rank; `limit`: the imbalance from which shares change."""
        self._plan = plan
        self._limit = limit
        self._device = next(module.parameters()).device
        self._forward: list[tuple[Any, Any]] = []
        self._backward: list[tuple[Any, Any]] = []
        self._last_gradients: Any = None
        self._steps: list[float] = []
        module.register_comm_hook(
            # a lambda: torch takes no annotations that are text
            module.process_group,
            lambda group, bucket: self._exchange(bucket, group),
        )

    def begin(self) -> None:
        """Begin a step: passes before it do not count."""
        self._forward, self._backward = [], []

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Measure a forward pass."""
        begin = self._now()
        yield
        self._forward.append((begin, self._now()))

    @contextmanager
    def backward(self, *, last: bool) -> Iterator[None]:
        """Measure a backward pass; with the last of a step gradients are exchanged."""
        begin = self._now()
        yield
        self._backward.append((begin, self._last_gradients if last else self._now()))

    def look(self, samples: Sequence[int], step: int) -> tuple[int, ...]:
        """Return the samples of each replica in the passes to come; all ranks call it after each step."""
        import torch.distributed as dist

        passes = (self._forward, self._backward)
        self._steps.append(sum(fmean(self._seconds(*each) for each in kind) for kind in passes))
        if len(self._steps) < _STEPS:
            return tuple(samples)
        everywhere: list[Any] = [None] * dist.get_world_size()
        mine = (median(self._steps), self._most(samples))
        self._steps = []
        dist.all_gather_object(everywhere, mine)
        seconds, most = zip(*everywhere, strict=True)  # each rank is a replica
        # of equal numbers every rank decides the same
        found = rebalance_samples(samples, seconds, limit=self._limit, most=most)
        if found is not None and dist.get_rank() == 0:
            _LOG.warning(
                "step %d: samples of each replica in a pass: from %s to %s, as a pass took them %s seconds:"
                " the slowest is %.0f %% above the mean, allowed are %.0f",
                step,
                ", ".join(map(str, samples)),
                ", ".join(map(str, found)),
                ", ".join(f"{each:.3g}" for each in seconds),
                100 * imbalance(seconds),
                100 * self._limit,
            )
        return found or tuple(samples)

    def _exchange(self, bucket: Any, group: Any) -> Any:
        """Average the gradients of a bucket as DistributedDataParallel does by itself."""
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

        self._last_gradients = self._now()
        return allreduce_hook(group, bucket)

    def _now(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _seconds(self, begin: Any, end: Any) -> float:
        if isinstance(begin, float):
            return float(end - begin)
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def _most(self, samples: Sequence[int]) -> int:
        """How many samples of a pass this rank's memory holds, by the most that those so far took."""
        if self._device.type != "cuda":
            return self._plan.shared_batch
        import torch

        here = samples[torch.distributed.get_rank()]
        whole = torch.cuda.get_device_properties(self._device).total_memory
        taken = torch.cuda.max_memory_allocated(self._device)
        return max(here, int(here * _MEMORY * whole / taken))


def balance_replicas(
    plan: ExecutionPlan, module: torch.nn.Module, *, limit: float
) -> ReplicaBalance | None:
    """Return the balance of a plan's replicas; None, and a line in the log, where waiting cannot be told from computing."""
    from torch.nn.parallel import DistributedDataParallel

    from airflow_training.execution.replicated_norm import ReplicatedBatchNorm

    why = ""
    if plan.pp > 1:
        why = "stages exchange tensors of one size (pp)"
    elif plan.tp > 1:
        why = "which tensors can be split depends on their size (tp)"
    elif plan.zero > 0:
        why = f"zero {plan.zero} gathers parameters within passes, where all wait for the slowest"
    elif any(isinstance(each, ReplicatedBatchNorm) for each in module.modules()):
        why = "in batch norm all replicas wait for the slowest"
    elif isinstance(module, DistributedDataParallel):
        return ReplicaBalance(plan, module, limit=limit)
    _LOG.warning("samples stay with replicas as the plan says, whatever their speed: %s", why)
    return None
