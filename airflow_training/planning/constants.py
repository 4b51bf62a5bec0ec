"""The constants of the cost model, fitted once and frozen (`benchmarks/fit_planner.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow_training.planning.computation import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeConstants:
    """What data sheets do not say about time. Shares are of the device's or link's own rate."""

    matmul_efficiency: float = 0.9
    """Share of the highest measured matrix-multiply rate that training sustains."""
    k_half: float = 100.0
    """Depth k at which filling and draining the pipeline costs as much as the product itself."""
    wave_quantisation: float = 0.5
    """0: tiles of the last wave are spread; 1: the last wave takes as long as a full one."""
    attention: Mapping[str, tuple[float, float]] = field(default_factory=lambda: {"": (0.55, 0.45)})
    """Share of the peak that fused attention reaches, forward and backward, by how a device's name
    begins; "" for all others."""
    bandwidth_efficiency: float = 0.8
    kernel_seconds: float = 3e-6
    """Start and end of a kernel on the device."""
    host_seconds: float = 8e-6
    """Time the host takes to launch one kernel, where the runtime has no own."""
    overlap_order: float = 4.0
    """Order of the norm that joins host and device time: high, the longer one alone counts."""
    optimizer_passes: float = 1.3
    """Times that the optimizer's states go through memory in an update."""
    overlap_contention: float = 0.2
    """Share of a transfer beside compute by which it slows that compute."""
    network_efficiency: float = 0.8
    """Share of what a group between nodes reaches alone that it reaches in a step."""
    straggling: float = 0.02
    """Standard deviation of the time of equal replicas, as a share of it."""
    fitted_devices: tuple[str, ...] = ()
    spread_known: tuple[float, float] = (0.9, 1.1)
    spread_unknown: tuple[float, float] = (0.8, 1.25)
    hosts: Mapping[str, float] = field(default_factory=dict)
    runtimes: Mapping[str, float] = field(default_factory=dict)

    def attention_share(self, device: str, phase: Phase) -> float:
        """Return the share of the peak that fused attention reaches on a device."""
        longest = max((name for name in self.attention if device.startswith(name)), key=len)
        return self.attention[longest][phase == "backward"]

    def host_seconds_of(self, runtime: str) -> float:
        return self.hosts.get(runtime, self.host_seconds)

    def runtime_factor(self, runtime: str) -> float:
        return self.runtimes.get(runtime, 1.0)

    def spread(self, runtime: str, devices: Sequence[str]) -> tuple[float, float]:
        """Return the factors from an estimate to the tenth and ninetieth percentile of what it is."""
        known = runtime in self.runtimes and all(
            device in self.fitted_devices for device in devices
        )
        low, high = self.spread_known if known else self.spread_unknown
        return low, high


FROZEN = TimeConstants()
