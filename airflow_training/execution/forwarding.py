"""What stands around a module's forward pass, without a module more: names of parameters stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["cuda_devices", "run_eagerly", "wrap_forward"]


def wrap_forward(module: torch.nn.Module, wrap: Callable[[Callable[..., Any]], Any]) -> None:
    """Replace the forward pass of one instance by `wrap` of it; a copy of the instance computes with its own parameters."""
    before = module.__dict__.get("forward")

    def run(own: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if before is None:
            forward = partial(type(own).forward, own)  # torch.fx writes it anew now and then
        else:
            forward = partial(before.__func__, own) if isinstance(before, MethodType) else before
        return wrap(forward)(*args, **kwargs)

    module.forward = MethodType(run, module)  # `copy.deepcopy` binds a method to the copy


def cuda_devices(modules: Iterable[torch.nn.Module]) -> list[torch.device]:
    """List the CUDA devices that hold parameters: whose generators modules draw from; others stay untouched."""
    found = (each.device for module in modules for each in module.parameters())
    return list(dict.fromkeys(device for device in found if device.type == "cuda"))


def run_eagerly() -> Any:
    """Return a context in which nothing is compiled: hooks of modules can be called inside of loops and branches, too."""
    import torch

    return torch.compiler.set_stance("force_eager")
