"""Batch norm over the micro-batch of all replicas, on any backend: torch's own wants CUDA."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.nn import functional
from torch.distributed.tensor import DTensor, Replicate

__all__ = ["BATCH_NORMS", "ReplicatedBatchNorm", "replicate_batch_norms"]

BATCH_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)
"""What is replaced: these and no class derived from them, whose forward pass may be another."""


class ReplicatedBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    """A batch norm whose statistics are those of the samples of all ranks of a group."""

    group: Any

    def _check_input_dim(self, input: torch.Tensor) -> None:  # noqa: A002 - torch's name
        if input.dim() < 2:
            raise ValueError(f"expected at least 2 dimensions, got {input.dim()}")

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - torch's name
        if not self.training and self.running_mean is not None:
            return super().forward(input)
        if not isinstance(input, DTensor):
            return self._normalize(input, self.weight, self.bias)
        mesh, whole = input.device_mesh, [Replicate()]  # tensor parallel: each rank does all of it
        local = [
            value.redistribute(mesh, whole).to_local() if isinstance(value, DTensor) else value
            for value in (input, self.weight, self.bias)
        ]
        return DTensor.from_local(self._normalize(*local), mesh, whole, run_check=False)

    def _normalize(
        self, values: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None
    ) -> torch.Tensor:
        dims = [0, *range(2, values.dim())]
        shape = [1, -1, *[1] * (values.dim() - 2)]
        sums = values.sum(dims)
        own = sums.new_full((1,), values.numel() // values.shape[1], dtype=torch.float32)
        *_, count = total = self._sum(torch.cat((sums, own)))
        mean: Any = total[:-1] / count
        centred = values - mean.view(shape)
        variance: Any = self._sum(centred.square().sum(dims)) / count
        if self.training and self.running_mean is not None:
            self._follow(mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        result: torch.Tensor = centred / torch.sqrt(variance + self.eps).view(shape)
        if weight is not None and bias is not None:
            result = result * weight.view(shape) + bias.view(shape)
        return result

    def _sum(self, values: torch.Tensor) -> Any:
        return functional.all_reduce(values, group=self.group)

    def _follow(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        norm: Any = self
        with torch.no_grad():
            norm.num_batches_tracked.add_(1)
            share = (
                1.0 / float(norm.num_batches_tracked) if self.momentum is None else self.momentum
            )
            norm.running_mean.lerp_(mean, share)
            norm.running_var.lerp_(variance, share)


def replicate_batch_norms(module: torch.nn.Module, group: dist.ProcessGroup) -> None:
    """Let every batch norm of torch in a module see the replicas of `group`; parameters, buffers and names stay."""
    for inner in module.modules():
        if type(inner) in BATCH_NORMS:
            inner.__class__ = ReplicatedBatchNorm
            inner.group = group  # type: ignore[assignment]
