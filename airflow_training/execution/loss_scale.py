"""The scale of the loss in fp16, whose smallest numbers are too large for most gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["LossScale"]

_START = 2.0**16
_GROW_AFTER = 2000
_LARGEST = 2.0**24


class LossScale:
    """Multiplies the loss, and takes gradients back by as much: halved where a gradient overflows, doubled after a while.

    The rule and its numbers are those of `torch.amp.GradScaler` (Micikevicius et al. 2018, "Mixed Precision
    Training"). That one decides for one rank; here all ranks skip the same steps, as stages of a pipeline and parts
    of a tensor overflow apart from each other.
    """

    def __init__(self) -> None:
        self.value = _START
        self.steps = 0
        """Updates since it was changed."""

    def scale(self, loss: Any) -> Any:
        """Multiply a loss."""
        return loss * self.value

    def scaled(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        """Return a loss function that multiplies what it returns."""
        return lambda output, target: self.scale(loss(output, target))

    def unscale(self, optimizer: torch.optim.Optimizer) -> bool:
        """Divide all gradients; return whether they are finite on every rank, which all of them call it for."""
        import torch
        import torch.distributed as dist

        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        grads = [
            each.grad.to_local() if hasattr(each.grad, "to_local") else each.grad
            for each in parameters
            if each.grad is not None
        ]
        # a rank's part of a small one may be empty
        grads = [each for each in grads if each.numel()]
        # a stage that learns nothing has no gradient, and still answers on its device
        overflow = torch.zeros((), device=parameters[0].device)
        # a few kernels for all of them: one after another is a quarter of a step on a GPU
        if grads:
            torch._foreach_div_(grads, self.value)
            largest = torch.stack(torch._foreach_norm(grads, float("inf")))
            overflow += ~largest.isfinite().all()
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
        finite = not bool(overflow)
        self._adapt(finite=finite)
        return finite

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        return {"value": self.value, "steps": self.steps}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Go on from what a checkpoint kept."""
        self.value, self.steps = float(state["value"]), int(state["steps"])

    def _adapt(self, *, finite: bool) -> None:
        self.steps += 1
        if not finite:
            self.value, self.steps = max(1.0, self.value / 2), 0
        elif self.steps == _GROW_AFTER:
            self.value, self.steps = min(_LARGEST, self.value * 2), 0
