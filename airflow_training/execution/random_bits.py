"""Operators that draw random numbers, with numbers that follow from a key and from places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod, tau
from typing import Any

import torch
from torch.distributed.tensor import DTensor

__all__ = ["draw_by_position"]

_STEP = -0x61C8864680B583EB
_FIRST = -0x40A7B892E31B1A47
_SECOND = -0x6B2FB644ECCEEE15
"""Constants of SplitMix64, as signed numbers."""
_BITS = 24
"""Of each number: as many as fp32 tells apart."""


def draw_by_position(
    operator: Any, key: int, positions: range, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Do what an operator of torch does, with numbers that follow from `key` and the places of the samples.

    The samples are along dimension 0; where there are several rows for each, they lie together. An operator that is not known
    moves its generator.
    """
    draw = _OPERATORS.get(str(operator))
    if draw is None:
        return operator(*args, **kwargs)
    return draw(lambda like, number=0: _bits_like(like, key + number, positions), args, kwargs)


def _bernoulli(bits: Callable[..., Any], args: tuple[Any, ...], _: Mapping[str, Any]) -> Any:
    """Fill a tensor, as dropout does its mask: 1 with a probability, else 0."""
    values, probability = args[0], args[1] if len(args) > 1 else 0.5
    return values.copy_(bits(values) < round(probability * 2**_BITS))


def _dropout(bits: Callable[..., Any], args: tuple[Any, ...], _: Mapping[str, Any]) -> Any:
    values, probability = args[0], args[1]
    kept = bits(values) < round((1 - probability) * 2**_BITS)
    return values * kept * (1 / (1 - probability) if probability < 1 else 0.0), kept


def _rand_like(bits: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    dtype = kwargs.get("dtype") or args[0].dtype
    # below 1, to which half precision rounds
    return (bits(args[0]) / 2**_BITS).to(dtype).clamp(max=1 - torch.finfo(dtype).eps / 2)


def _randn_like(bits: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Draw normal numbers, two uniform ones for each (Box and Muller 1958)."""
    one, other = (bits(args[0], number).double() / 2**_BITS for number in (0, 1))
    normal = torch.sqrt(-2 * torch.log1p(-one)) * torch.cos(tau * other)
    return normal.to(kwargs.get("dtype") or args[0].dtype)


_OPERATORS: Mapping[str, Callable[..., Any]] = {
    "aten.bernoulli_.float": _bernoulli,
    "aten.native_dropout.default": _dropout,
    "aten.rand_like.default": _rand_like,
    "aten.randn_like.default": _randn_like,
}


def _bits_like(like: torch.Tensor, key: int, positions: range) -> torch.Tensor:
    """Return whole numbers below 2**24 for a tensor, or for the part of it that this rank holds."""
    if not isinstance(like, DTensor):
        return _bits(key, positions, like.shape, (0,) * like.dim(), like.shape, like.device)
    local = like.to_local()
    first = like.__create_chunk_list__()[0].offsets if local.numel() else (0,) * like.dim()
    found = _bits(key, positions, like.shape, first, local.shape, local.device)
    return DTensor.from_local(
        found,
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )


def _bits(
    key: int, positions: range, whole: Any, first: Any, shape: Any, device: torch.device
) -> torch.Tensor:
    """Number the places of a part of a tensor, sample by sample, and mix them."""
    if not len(shape):
        return _bits(key, positions, (1,), (0,), (1,), device).reshape(())
    count = len(positions) if whole[0] % len(positions) == 0 else 1
    rows = torch.arange(first[0], first[0] + shape[0], device=device)
    of_sample = max(whole[0] // count, 1)
    inner = prod(whole[1:])
    streams = _mix((positions.start + rows // of_sample + 1) * _STEP + _signed(key))
    places = (rows % of_sample) * inner
    for dim in range(1, len(shape)):
        along = torch.arange(first[dim], first[dim] + shape[dim], device=device)
        places = places.unsqueeze(-1) + along * prod(whole[dim + 1 :])
        streams = streams.unsqueeze(-1)
    return _right(_mix((places + 1) * _STEP + streams), 64 - _BITS)


def _mix(values: torch.Tensor) -> torch.Tensor:
    values = (values ^ _right(values, 30)) * _FIRST
    values = (values ^ _right(values, 27)) * _SECOND
    return values ^ _right(values, 31)


def _right(values: torch.Tensor, count: int) -> torch.Tensor:
    """Shift to the right, without a sign."""
    return (values >> count) & ((1 << (64 - count)) - 1)


def _signed(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63
