"""One pass forward and backward on the example, before training: what torch cannot split is named then."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from airflow_training.errors import InputError
from airflow_training.execution.execution_plan import ExecutionPlan
from airflow_training.execution.forwarding import cuda_devices
from airflow_training.planning.view.control_flow import NODES

if TYPE_CHECKING:
    import torch

__all__ = ["try_passes"]

_HIGHER_ORDER = "_higher_order_ops"
"""The folder of torch in which loops and branches are run, each in a file of its name."""
_HIGHER_ORDER_ERROR = re.compile(r"[Hh]igher.?[Oo]rder|FakeTensor")
"""What torch says where it cannot run one; a module's own mistake inside of it has other words."""
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
    with torch.random.fork_rng(cuda_devices(modules)):
        try:
            passes()
        except InputError as error:
            failure = error
        except Exception as error:
            failure = _not_recomputed(error, plan)
            if failure is None and plan.devices == 1:
                raise  # no split is the cause: the traceback says where the module's own code is wrong
            failure = failure or _told(error, _innermost(error, modules), plan)
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


def _innermost(error: Exception, modules: Sequence[torch.nn.Module]) -> str:
    """Return the name of the module in whose forward pass an error came up; "" for none that has a name.

    By its traceback: hooks of modules cannot be compiled with loops and branches that call them.
    """
    import torch

    names = {inner: name for module in modules for name, inner in module.named_modules()}
    frames = (frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__))
    running = [each for each in frames if isinstance(each, torch.nn.Module)]
    return next((found for each in reversed(running) if (found := names.get(each, ""))), "")


def _not_recomputed(error: Exception, plan: ExecutionPlan) -> dict[str, Any] | None:
    """Return the problem of a loop or branch that torch was running when an error came up; None where there is none."""
    if plan.recompute == "none" or not _HIGHER_ORDER_ERROR.search(
        f"{type(error).__name__}: {error}"
    ):
        return None
    files = (Path(frame.f_code.co_filename) for frame, _ in walk_tb(error.__traceback__))
    ours = (each.stem for each in files if each.parent.name == _HIGHER_ORDER)
    flow = next((each for each in ours if each in NODES), None)
    if flow is None:
        return None
    return {
        "code": "OperatorNotSplit",
        "field": "strategy.recompute",
        "value": plan.recompute,
        "message": f"{flow}: torch does not compute it again in the backward pass ({type(error).__name__})",
        "hint": "take a plan with recompute none",
    }


def _told(error: Exception, where: str, plan: ExecutionPlan) -> dict[str, Any]:
    said = next(iter(str(error).strip().splitlines()), "")
    operator = _OPERATOR.search(str(error))
    axis = "tp" if plan.tp > 1 else "pp" if plan.pp > 1 else "dp"
    return {
        "code": "OperatorNotSplit",
        "field": where or "module",
        "message": (
            f"{operator.group() if operator else 'an operator'} cannot be carried out under"
            f" {axis} {getattr(plan, axis)}: {type(error).__name__}: {said}"
        ),
        "hint": f"take a plan with {axis} 1",
    }
