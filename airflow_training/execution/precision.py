"""The numbers a plan computes with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_training.errors import InputError
from airflow_training.execution.forwarding import wrap_forward

if TYPE_CHECKING:
    import torch

__all__ = ["autocast_forward", "set_precision", "whole_products"]


def set_precision(module: torch.nn.Module, precision: str, device_type: str) -> None:
    """Bring parameters into the type that is stored: fp64 for fp64, else fp32 (bf16 and fp16 cast in each pass).

    Raises:
        InputError: the device has no such numbers.

    """
    import torch

    if precision == "tf32" and device_type != "cuda":
        raise InputError.of(
            code="NoPrecision",
            field="strategy.precision",
            message=f"{device_type} does not train in {precision}",
            value=precision,
            allowed=("fp32", "bf16", "fp16", "fp64"),
        )
    module.to(torch.float64 if precision == "fp64" else torch.float32)
    if device_type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"


@contextmanager
def whole_products() -> Iterator[None]:
    """Let GPUs compute fp32 as it is meanwhile: in tf32 a part of a batch may be rounded otherwise than the whole."""
    import torch

    products: Any = torch.backends.cuda.matmul
    convolutions: Any = torch.backends.cudnn
    name: str = "allow_tf32"
    whole: Any = False
    try:
        kept = products.allow_tf32, convolutions.allow_tf32
    except (
        RuntimeError
    ):  # the user set the newer name, beside which torch does not tell the older one
        name, whole, convolutions = "fp32_precision", "ieee", convolutions.conv
        kept = products.fp32_precision, convolutions.fp32_precision
    places = (products, convolutions)
    for place in places:
        setattr(place, name, whole)
    try:
        yield
    finally:
        for place, value in zip(places, kept, strict=True):
            setattr(place, name, value)


def autocast_forward(module: torch.nn.Module, precision: str, device_type: str) -> None:
    """Let a module compute in bf16 or fp16 where torch holds that for safe, and return fp32."""
    import torch

    if precision not in ("bf16", "fp16"):
        return
    dtype = torch.bfloat16 if precision == "bf16" else torch.float16

    def widen(value: Any) -> Any:
        return value.float() if getattr(value, "dtype", None) == dtype else value

    def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with torch.autocast(device_type, dtype=dtype):
                result = forward(*args, **kwargs)
            return torch.utils._pytree.tree_map(widen, result)

        return wrapped

    wrap_forward(module, wrap)
