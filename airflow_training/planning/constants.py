"""The constants of the cost model, fitted once and frozen (`benchmarks/fit_planner.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeConstants:
    """What data sheets do not say about time. Shares are of the device's or link's own rate."""

    matmul_efficiency: float = 0.9
    """Share of the highest measured matrix-multiply rate that training sustains."""
    k_half: float = 100.0
    """Depth k at which filling and draining the pipeline costs as much as the product itself."""
    wave_quantisation: float = 0.5
    """0: tiles of the last wave are spread; 1: the last wave takes as long as a full one."""
    attention_efficiency: float = 0.55
    attention_backward_efficiency: float = 0.45
    """Share of the peak that fused attention reaches, forward and backward."""
    bandwidth_efficiency: float = 0.8
    kernel_seconds: float = 3e-6
    """Start and end of a kernel on the device."""
    host_seconds: float = 8e-6
    """Time the host takes to launch one kernel, where the runtime has no own."""
    overlap_order: float = 4.0
    """Order of the norm that joins host and device time: high, the longer one alone counts."""
    optimizer_bytes: float = 40.0
    """Memory traffic of the optimizer for each parameter that a device updates."""
    network_efficiency: float = 0.8
    runtimes: Mapping[str, float] = field(default_factory=dict)
