"""The cost model that a search asks: tables of strategies at once, or one strategy in detail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cluster import ClusterView
from airflow_training.planning.plan import Candidates, Estimate, Workload
from airflow_training.planning.strategy import Strategy

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """What can be asked; the answers agree on every strategy."""

    floors: Callable[[Workload, ClusterView, Candidates], Callable[[Candidates], Floats]]
    """Made ready for a table: a quick function to seconds that steps of its rows never beat."""
    memory_bytes: Callable[[Workload, ClusterView, Candidates], Floats]
    """Of the fullest device."""
    memory_floors: Callable[[Workload, ClusterView, Candidates], MemoryFloors]
    """Made ready for a table."""
    step_seconds: Callable[[Workload, ClusterView, Candidates], Floats]
    estimate: Callable[[Workload, ClusterView, Strategy], Estimate]
    pass_seconds: Callable[[Workload, ClusterView, Candidates], tuple[Floats, Floats]]
    """Of a forward and a backward pass over each unit: (units, rows) each."""
    overheads: Callable[[Workload, ClusterView, Candidates], tuple[Floats, Floats]]
    """What replicas add at least: a share of the passes, and seconds."""
    arranged: Arranging


class MemoryFloors(Protocol):
    """Bounds on the memory of the rows of a table; more recomputation and more sharding never keep more."""

    def bytes_held(self, rows: Candidates, /) -> Floats:
        """Return bytes that the fullest device never goes below, on equal nodes."""
        ...

    def most_layers(self, rows: Candidates, memory_bytes: float, in_flight: Floats, /) -> Floats:
        """Return layers that no stage can hold more of, with so many micro-batches in flight."""
        ...


class Costed(Protocol):
    """Costs of rows that share stages."""

    @property
    def step_seconds(self) -> Floats: ...

    @property
    def spare_bytes(self) -> Floats:
        """(rows, stages): below 0 a stage does not fit."""
        ...


class Arranging(Protocol):
    """Prices rows on given layers and kinds of nodes for each stage."""

    def __call__(
        self,
        workload: Workload,
        cluster: ClusterView,
        table: Candidates,
        /,
        *,
        stage_layers: tuple[int, ...],
        stage_devices: tuple[str, ...],
    ) -> Costed: ...
