"""The constants of the memory model: what runtimes keep per parameter, and what they hold besides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from airflow_training.planning.cost.model_states import BytesPerParameter


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeMemory:
    """What one training framework keeps on a device."""

    mixed: Mapping[str, BytesPerParameter]
    """Bytes per parameter in `fp16` and in `bf16`."""
    overhead: float | None
    """Its own share of memory that the allocator wastes; None: the common one."""
    bucket_bytes: float
    """Buffers in which gradients are gathered before they are reduced, where there are replicas."""
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConstants:
    """What data sheets and shapes do not say about memory."""

    base_bytes: float
    """CUDA context, NCCL's and libraries' buffers: there before the first tensor.

    For devices that do not say themselves (`Device.context_bytes`).
    """
    overhead: float
    """Memory that the allocator holds but cannot use, as a share of what is in use."""
    runtimes: Mapping[str, RuntimeMemory]

    def runtime(self, name: str) -> RuntimeMemory:
        """Return the constants of a runtime; of `generic` where it is not known."""
        return self.runtimes.get(name, self.runtimes["generic"])


def read(document: Mapping[str, Any]) -> MemoryConstants:
    """Return the constants in a document of the form of `data/memory.json`."""
    return MemoryConstants(
        base_bytes=document["base_bytes"],
        overhead=document["overhead"],
        runtimes={name: _runtime(row) for name, row in document["runtimes"].items()},
    )


def _runtime(row: Mapping[str, Any]) -> RuntimeMemory:
    return RuntimeMemory(
        mixed={precision: BytesPerParameter(**row[precision]) for precision in ("fp16", "bf16")},
        overhead=row["overhead"],
        bucket_bytes=row["bucket_bytes"],
        source=row["source"],
    )


def _shipped() -> MemoryConstants:
    text = files("airflow_training.planning").joinpath("data/memory.json").read_text("utf-8")
    return read(json.loads(text))


FROZEN = _shipped()
"""Fitted once (`benchmarks/fit_memory.py`)."""
