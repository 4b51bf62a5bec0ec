"""Whether the state of a PyTorch training is still that of its last step boundary, and how it gets back there.

A rank that loses a peer fails in the middle of a step, most often in the backward pass. Parameters, optimizer and
averaged weights are then untouched, which is watched and not copied. The rest (buffers, random numbers, place in
the data, schedule, scaler, `extra`) is small and copied at every boundary.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from airflow_training.checkpoints import torch_state
from airflow_training.checkpoints.torch_state import NOT_GIVEN, TrainingObjects

__all__ = ["Boundary"]

_WATCHED = ("model", "optimizer", "ema")


class Boundary:
    """The last step boundary of the living objects in `parts`."""

    def __init__(self, parts: TrainingObjects) -> None:
        """Watch the optimizers from now on; nothing is marked yet."""
        self._parts = parts
        self._passing = replace(parts, files=(), **dict.fromkeys(_WATCHED, NOT_GIVEN))
        self._copied: dict[str, Any] = {}
        self._holders: list[tuple[dict[str, torch.Tensor | None], str]] = []
        """Where the buffers are: the tensors themselves may be replaced in a step."""
        self._buffers: list[torch.Tensor | None] = []
        self._tensors: list[torch.Tensor] = []
        self._versions: list[int] = []
        self._step: int | None = None
        self._changed_by = ""
        self.began = False
        """A boundary was marked at some time: this process has trained, or is about to."""
        for item in self._watched():
            if hasattr(item, "register_step_pre_hook"):
                item.register_step_pre_hook(self._on_optimizer_step)

    def mark(self, step: int) -> None:
        """Take the state as it is as that of the boundary after `step` steps."""
        if not self._tensors:
            self._tensors = list(self._parameters())
            self._holders = list(self._buffer_holders())
        self._versions = [tensor._version for tensor in self._tensors]
        state = torch_state.capture(self._passing)
        random = state.pop("rng")  # made anew by each call
        self._copied = {**copy.deepcopy(state), "rng": random}
        self._buffers = [
            None if (buffer := holder[name]) is None else buffer.detach().clone()
            for holder, name in self._holders
        ]
        self._step, self._changed_by, self.began = step, "", True

    def forget(self, why: str) -> None:
        """Say that the state is about to be changed into another one."""
        self._step, self._changed_by = None, why

    def roll_back(self) -> tuple[int | None, str]:
        """Bring the state back to the boundary; return its steps, or None and why it is lost."""
        for tensor in self._parameters():
            tensor.grad = None  # of a step that is begun again
        why = self._lost()
        if self._step is None or why:
            return None, why
        torch_state.apply(self._passing, self._copied)
        with torch.no_grad():
            for (holder, name), copied in zip(self._holders, self._buffers, strict=True):
                living = holder[name]
                if living is not None and copied is not None:
                    living.copy_(copied)
        torch_state.apply_random(self._copied["rng"])
        return self._step, ""

    def _lost(self) -> str:
        """Return why the state is not that of the boundary, as far as can be told; empty where it is."""
        if self._changed_by:
            return self._changed_by
        if self._parts.files:
            return "files are part of the state, and nobody copied them at the boundary"
        for item in self._watched():
            if not (isinstance(item, torch.nn.Module) or hasattr(item, "register_step_pre_hook")):
                return f"nobody can tell whether a {type(item).__name__} was changed in the step"
        tensors = list(self._parameters())
        same = [id(tensor) for tensor in tensors] == [id(tensor) for tensor in self._tensors]
        if not same or [tensor._version for tensor in tensors] != self._versions:
            return "parameters were changed in the step that failed"
        if not self._same_buffers():
            return "the model has other buffers than at the boundary"
        return _unseen_failures()

    def _on_optimizer_step(self, *_: Any) -> None:
        self._changed_by = "the optimizer was at work when the step failed"

    def _watched(self) -> Iterator[Any]:
        for name in _WATCHED:
            yield from torch_state.iterate_objects(getattr(self._parts, name))

    def _parameters(self) -> Iterator[torch.Tensor]:
        for item in self._watched():
            if isinstance(item, torch.nn.Module):
                yield from item.parameters()
            else:
                for group in getattr(item, "param_groups", ()):
                    yield from group["params"]

    def _buffer_holders(self) -> Iterator[tuple[dict[str, torch.Tensor | None], str]]:
        for item in self._watched():
            if isinstance(item, torch.nn.Module):
                for module in item.modules():
                    yield from ((module._buffers, name) for name in module._buffers)

    def _same_buffers(self) -> bool:
        """Return whether each buffer is where it was, and as large."""
        holders = [(id(holder), name) for holder, name in self._buffer_holders()]
        if holders != [(id(holder), name) for holder, name in self._holders]:
            return False
        living = [holder[name] for holder, name in self._holders]
        return [_shape(each) for each in living] == [_shape(each) for each in self._buffers]


def _shape(buffer: torch.Tensor | None) -> tuple[int, ...] | None:
    return None if buffer is None else tuple(buffer.shape)


def _unseen_failures() -> str:
    """Return why a step may look done whose collectives have failed.

    NCCL only queues them: the optimizer may have taken gradients of a peer that was gone already. `TORCH_NCCL_BLOCKING_WAIT`
    changes nothing of that: gradients that torch averages are not waited for by it.
    """
    initialized = dist.is_available() and dist.is_initialized()
    if not initialized or "nccl" not in dist.get_backend():
        return ""
    return "NCCL tells of failures only later: the step may look done whose collectives have failed"
