"""A tensor in few numbers whose differences are as large as the tensor's own.

Each number of the tensor goes, with a random sign, into one of 256 sums. The norm of the difference of two sketches is that of the
tensors but for about a tenth (Charikar, Chen and Farach-Colton, 2002, "Finding frequent items in data streams").
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["sketch_tensor"]

_SUMS = 256


def sketch_tensor(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Sketch a tensor in fp64 on the CPU; signs follow from its `name`, so that runs draw the same. Small ones stay whole."""
    import torch

    flat = tensor.detach().reshape(-1).cpu()
    flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    flat = flat.double()
    if flat.numel() <= _SUMS:
        return flat.clone()
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    signs = torch.randint(0, 2, flat.shape, generator=generator, dtype=torch.int8)
    signed = torch.where(signs.bool(), flat, -flat)
    padded = torch.nn.functional.pad(signed, (0, -flat.numel() % _SUMS))
    return padded.reshape(-1, _SUMS).sum(0)
