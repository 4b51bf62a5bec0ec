"""The constants of time: what data sheets do not say. Fitted once (`benchmarks/fit_planner.py`), frozen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Any

from airflow_training.planning.view.computation import Phase

_HOST_SECONDS: Mapping[str, float] = {"pytorch": 40e-6}
"""Seconds between launches of runtimes that no row was fitted on. PyTorch without a compiler: a linear layer of a few
numbers takes 0.3 ms forward and backward, for seven of what a view counts as kernels (one H200, `data/h200.json`)."""
_DTENSOR_DISPATCH: Mapping[str, float] = {"pytorch": 5.0}
"""How much longer the host of a runtime takes for each kernel where tensors are DTensors, as under tensor parallelism: a
small linear layer 0.62 ms forward and backward against 0.13 (PyTorch 2.13, one EPYC)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeConstants:
    """Shares are of the device's or link's own rate."""

    matmul_efficiency: float
    """Share of the highest measured matrix-multiply rate that training sustains."""
    k_half: float
    """Depth k at which filling and draining the multipliers costs as much as the product itself."""
    wave_quantisation: float
    """0: tiles of the last wave are spread; 1: the last wave takes as long as a full one."""
    attention: Mapping[str, float]
    """Share of the peak that fused attention reaches forward, by how a device's name begins; "" for
    all others."""
    attention_backward: float
    """Rate of fused attention's backward pass against its forward pass."""
    bandwidth_efficiency: float
    """Share of the memory bandwidth that kernels bound by memory reach."""
    kernel_seconds: float
    """Start and end of a kernel on the device."""
    host_seconds: float
    """Time the host takes to launch what a view counts as one kernel."""
    overlap_order: float
    """Order of the norm that joins host and device time: high, the longer one alone counts."""
    optimizer_passes: float
    """Times that the optimizer's states go through memory in an update."""
    overlap_contention: float
    """Share of a transfer beside compute by which it slows that compute."""
    network_efficiency: float
    """Share of what a group between nodes reaches alone that it reaches in a step."""
    straggling: float
    """Standard deviation of the time of equal replicas, as a share of it."""
    runtime_host_seconds: Mapping[str, float]
    """`host_seconds` of runtimes that were measured where the host sets the pace."""
    runtime_handover_seconds: Mapping[str, float]
    """What runtimes take to hand a tensor to a stage on another node, beside sending it."""
    runtime_factors: Mapping[str, float]
    """What runtimes take for a step, against what their kernels and collectives do."""
    fitted_devices: tuple[str, ...] = ()
    """Devices that the constants were fitted on."""
    spread_known: tuple[float, float] = (1.0, 1.0)
    """Tenth and ninetieth percentile of measured against estimated time, of runtimes and devices that
    were fitted, each row estimated by constants that have not seen its model."""
    spread_unknown: tuple[float, float] = (1.0, 1.0)
    """The same of clusters that the constants have not seen."""

    def attention_share(self, device: str, phase: Phase) -> float:
        """Return the share of the peak that fused attention reaches on a device."""
        longest = max((name for name in self.attention if device.startswith(name)), key=len)
        return self.attention[longest] * (1.0 if phase == "forward" else self.attention_backward)

    def host_seconds_of(self, runtime: str) -> float:
        """Return the seconds between launches of a runtime."""
        known = _HOST_SECONDS.get(runtime, self.host_seconds)
        return self.runtime_host_seconds.get(runtime, known)

    def dispatch_factor_of(self, runtime: str) -> float:
        """Return how much longer the host takes for each kernel under tensor parallelism."""
        return _DTENSOR_DISPATCH.get(runtime, 1.0)

    def handover_seconds_of(self, runtime: str) -> float:
        """Seconds of a hand-over between nodes beside sending; 0 where it was never measured."""
        return self.runtime_handover_seconds.get(runtime, 0.0)

    def runtime_factor(self, runtime: str) -> float:
        """Return the factor of a runtime; 1 where it was never measured."""
        return self.runtime_factors.get(runtime, 1.0)

    def spread(self, runtime: str, devices: Sequence[str]) -> tuple[float, float]:
        """Return the factors from an estimate to its tenth and ninetieth percentile."""
        measured = {
            *self.runtime_host_seconds,
            *self.runtime_handover_seconds,
            *self.runtime_factors,
        }
        known = runtime in measured and all(device in self.fitted_devices for device in devices)
        return self.spread_known if known else self.spread_unknown


def read(document: Mapping[str, Any]) -> TimeConstants:
    """Return the constants in the form of the shipped file: by name, with lists for pairs."""
    values: dict[str, Any] = {
        field.name: document[field.name]["value"] for field in fields(TimeConstants)
    }
    for name, value in values.items():
        values[name] = tuple(value) if isinstance(value, list) else value
    return TimeConstants(**values)


def _shipped() -> TimeConstants:
    text = files("airflow_training.planning").joinpath("data/constants.json").read_text("utf-8")
    return read(json.loads(text))


FROZEN = _shipped()
