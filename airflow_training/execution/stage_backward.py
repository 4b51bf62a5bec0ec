"""Backward passes of stages that torch's runtime of a pipeline cannot carry out by itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["keep_whole", "send_without_gaps", "splits_backward"]

_LOG = logging.getLogger(__name__)


def splits_backward(module: torch.nn.Module, inputs: tuple[Any, ...]) -> bool:
    """Run one pass of a stage; return whether torch can go backward to its inputs first and to its weights later.

    A zero-bubble schedule does. It fails where a part of the graph leads to both inputs and weights by two ways.
    """
    import torch
    from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

    outputs = torch.utils._pytree.tree_leaves(module(*inputs))
    total = sum(each.sum() for each in outputs if torch.is_tensor(each) and each.requires_grad)
    if not torch.is_tensor(total):
        return True
    try:
        _, groups = stage_backward_input([total], None, list(inputs), module.parameters())
        stage_backward_weight(module.parameters(), groups)
    except RuntimeError:
        return False
    return True


def keep_whole(runtime: Any) -> None:
    """Let a stage go backward to inputs and weights at once, whatever its schedule says."""
    _LOG.info(
        "stage %d goes backward to its inputs and its weights at once: torch cannot part the two there",
        runtime.stage_index,
    )
    # torch takes a stage with this for one that computes gradients of weights by itself
    runtime.dw_builder = lambda: lambda: None


def send_without_gaps(runtime: Any) -> None:
    """Let a stage send gradients that lie in one piece: what ranks exchange has no gaps, and a split backward leaves some."""
    make: Callable[[int], list[Any]] = runtime.get_bwd_send_ops

    def make_dense(chunk: int) -> list[Any]:
        made = make(chunk)
        for each in made:
            each.tensor = each.tensor.contiguous()
        return made

    runtime.get_bwd_send_ops = make_dense
