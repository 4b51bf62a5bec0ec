"""The constants of the memory model: what runtimes keep per parameter, and what they hold besides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeMemory:
    """What one training framework keeps on a device. Bytes, or bytes per parameter."""

    gradient_bytes: Mapping[str, float]
    """By precision: 2 as the backward pass leaves them, 4 added up in fp32, 6 for both."""
    base_bytes: float
    """CUDA context, NCCL and library buffers: there before the first tensor."""
    bucket_bytes: float = 0.0
    """Buffers that gradients are gathered in before they are reduced, where there are replicas."""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConstants:
    """What data sheets and shapes do not say about memory."""

    allocation_overhead: float
    """Memory that the allocator holds but cannot use, as a share of what is in use."""
    tight_overhead: float
    """What is left of that share once memory is short and the allocator gives back what it can."""
    runtimes: Mapping[str, RuntimeMemory]

    def runtime(self, name: str) -> RuntimeMemory:
        """Return the constants of a runtime; of `generic` where it is not known."""
        return self.runtimes.get(name, self.runtimes["generic"])


def read(document: Mapping[str, Any]) -> MemoryConstants:
    """Return the constants in the form of the shipped file."""
    return MemoryConstants(
        allocation_overhead=document["allocation_overhead"]["value"],
        tight_overhead=document["tight_overhead"]["value"],
        runtimes={name: RuntimeMemory(**row) for name, row in document["runtimes"].items()},
    )


def _shipped() -> MemoryConstants:
    text = files("airflow_training.planning").joinpath("data/memory.json").read_text("utf-8")
    return read(json.loads(text))


FROZEN = _shipped()
"""Fitted once (`benchmarks/fit_memory.py`)."""
