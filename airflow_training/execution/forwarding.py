"""What stands around a module's forward pass, without a module more: names of parameters stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["cuda_devices", "wrap_forward"]


def wrap_forward(module: torch.nn.Module, wrap: Callable[[Callable[..., Any]], Any]) -> None:
    """Replace the forward pass of one instance by `wrap` of it."""

    def bare(*args: Any, **kwargs: Any) -> Any:
        return type(module).forward(module, *args, **kwargs)  # torch.fx writes it anew now and then

    module.forward = wrap(module.__dict__.get("forward", bare))


def cuda_devices(modules: Iterable[torch.nn.Module]) -> list[torch.device]:
    """List the CUDA devices that hold parameters: whose generators modules draw from; others stay untouched."""
    found = (each.device for module in modules for each in module.parameters())
    return list(dict.fromkeys(device for device in found if device.type == "cuda"))
