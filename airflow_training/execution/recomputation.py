"""Recomputation of activations in the backward pass, by `torch.utils.checkpoint`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_training.execution.execution_plan import ExecutionPlan
from airflow_training.execution.forwarding import wrap_forward
from airflow_training.execution.position_streams import PositionStreams
from airflow_training.execution.tensor_parallel import function_rules

if TYPE_CHECKING:
    import torch

__all__ = ["recompute_activations"]

_KEPT = ("mm", "addmm", "convolution", "linear", "embedding")
"""Operators whose results `selective` keeps: costly to run again. Attention, norms and activations run again."""


def recompute_activations(
    module: torch.nn.Module, plan: ExecutionPlan, streams: PositionStreams | None = None
) -> None:
    """Let a module keep its inputs only (`full`), or what products return (`selective`); names stay.

    `streams` give it the same random numbers when it runs again.
    """
    import torch
    from torch.utils.checkpoint import (
        CheckpointPolicy,
        checkpoint,
        create_selective_checkpoint_contexts,
    )

    if plan.recompute == "none":
        return
    aten = torch.ops.aten
    kept = {getattr(aten, name).default for name in _KEPT}

    def policy(_: Any, operator: Any, *__: Any, **___: Any) -> CheckpointPolicy:
        if operator in kept:
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    given: dict[str, Any] = {}
    if plan.recompute == "selective":
        given["context_fn"] = lambda: create_selective_checkpoint_contexts(policy)

    def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            again = forward if streams is None else streams.replayed(forward)
            if plan.tp > 1:  # a backward pass that begins inside of a mode runs outside of it
                again = function_rules()(again)
            return checkpoint(again, *args, use_reentrant=False, **given, **kwargs)

        return run

    wrap_forward(module, wrap)
