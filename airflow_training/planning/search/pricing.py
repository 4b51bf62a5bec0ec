"""The cost model that a search asks: tables of strategies at once, or one strategy in detail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.plan import Estimate, StrategyTable, Workload
from airflow_training.planning.view.strategy import Strategy

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """What can be asked; the answers agree on every strategy."""

    floors: Callable[[Workload, ClusterView, StrategyTable], Callable[[StrategyTable], Floats]]
    """Made ready for a table: a quick function to seconds that steps of its rows never beat."""
    memory_bytes: Callable[[Workload, ClusterView, StrategyTable], Floats]
    """Of the fullest device."""
    memory_floors: Callable[[Workload, ClusterView, StrategyTable], MemoryFloors]
    """Made ready for a table."""
    step_seconds: Callable[[Workload, ClusterView, StrategyTable], Floats]
    estimate: Callable[[Workload, ClusterView, Strategy], Estimate]
    pass_seconds: Callable[[Workload, ClusterView, StrategyTable], tuple[Floats, Floats]]
    """Of a forward and a backward pass over each unit: (units, rows) each."""
    overheads: Callable[[Workload, ClusterView, StrategyTable], tuple[Floats, Floats]]
    """What replicas add at least: a share of the passes, and seconds."""
    arranged: ArrangementPricing


class MemoryFloors(Protocol):
    """Bounds on the memory of the rows of a table; more recomputation and more sharding never keep more."""

    def bytes_held(self, rows: StrategyTable, /) -> Floats:
        """Return bytes that the fullest device never goes below, on equal nodes."""
        ...

    def most_layers(self, rows: StrategyTable, memory_bytes: float, in_flight: Floats, /) -> Floats:
        """Return layers that no stage can hold more of, with so many micro-batches in flight."""
        ...


class CostTable(Protocol):
    """Costs of rows that share stages."""

    @property
    def step_seconds(self) -> Floats: ...

    @property
    def spare_bytes(self) -> Floats:
        """(rows, stages): below 0 a stage does not fit."""
        ...


class ArrangementPricing(Protocol):
    """Prices rows on given layers and kinds of nodes for each stage."""

    def __call__(
        self,
        workload: Workload,
        cluster: ClusterView,
        table: StrategyTable,
        /,
        *,
        stage_layers: tuple[int, ...],
        stage_devices: tuple[str, ...],
    ) -> CostTable: ...
