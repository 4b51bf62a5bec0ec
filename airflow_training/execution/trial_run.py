"""One pass forward and backward on the example, before training: what torch cannot split is named then."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_training.errors import InputError
from airflow_training.execution.execution_plan import ExecutionPlan
from airflow_training.execution.forwarding import cuda_devices

if TYPE_CHECKING:
    import torch

__all__ = ["try_passes"]

_OPERATOR = re.compile(r"aten\.\w+(?:\.\w+)?")


def try_passes(
    modules: Sequence[torch.nn.Module], passes: Callable[[], None], plan: ExecutionPlan
) -> None:
    """Run `passes`; parameters, buffers, gradients and random numbers are as before. All ranks call it.

    Raises:
        InputError: on all ranks, where any of them cannot run them; names module and operator.

    """
    import torch
    import torch.distributed as dist

    kept = [(buffer, buffer.clone()) for module in modules for buffer in module.buffers()]
    failure: InputError | dict[str, Any] | None = None
    with torch.random.fork_rng(cuda_devices(modules)), _visited(modules) as visited:
        try:
            passes()
        except InputError as error:
            failure = error
        except Exception as error:
            if plan.devices == 1:
                raise  # no split is the cause: the traceback says where the module's own code is wrong
            failure = _told(error, visited, plan)
    with torch.no_grad():
        for buffer, value in kept:
            buffer.copy_(value)
    for module in modules:
        module.zero_grad()
    failures: list[Any] = [failure]
    if dist.is_initialized() and plan.devices > 1:
        failures = [None] * dist.get_world_size()
        dist.all_gather_object(failures, failure)
    told = next((each for each in failures if each is not None), None)
    if isinstance(told, InputError):
        raise told
    if told is not None:
        raise InputError.of(**told)


@contextmanager
def _visited(modules: Sequence[torch.nn.Module]) -> Iterator[list[str]]:
    """Note which modules are running, innermost last."""
    running: list[str] = []
    handles = []
    for module in modules:
        for name, inner in module.named_modules():
            handles.append(
                inner.register_forward_pre_hook(lambda _, __, name=name: running.append(name))
            )
            handles.append(inner.register_forward_hook(lambda _, __, ___: running.__delitem__(-1)))
    try:
        yield running
    finally:
        for handle in handles:
            handle.remove()


def _told(error: Exception, running: Sequence[str], plan: ExecutionPlan) -> dict[str, Any]:
    said = next(iter(str(error).strip().splitlines()), "")
    operator = _OPERATOR.search(str(error))
    where = next((name for name in reversed(running) if name), "module")
    axis = "tp" if plan.tp > 1 else "pp" if plan.pp > 1 else "dp"
    return {
        "code": "OperatorNotSplit",
        "field": where,
        "message": (
            f"{operator.group() if operator else 'an operator'} cannot be carried out under"
            f" {axis} {getattr(plan, axis)}: {type(error).__name__}: {said}"
        ),
        "hint": f"take a plan with {axis} 1",
    }
