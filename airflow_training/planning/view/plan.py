"""What the planner answers: estimates and plans, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.strategy import Precision, Strategy

Origin = Literal["static", "measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is to be trained: a view and what a step is."""

    view: ComputationView
    global_batch: int
    precision: Precision = "bf16"
    runtime: str = "generic"
    """Training framework, for the one constant each has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyTable:
    """A table of strategies on equal devices, a column each; all columns have one length.

    The columns are the fields of `Strategy`; texts are codes, the index in the type's list of values.
    """

    tp: npt.NDArray[np.int64]
    pp: npt.NDArray[np.int64]
    dp: npt.NDArray[np.int64]
    cp: npt.NDArray[np.int64]
    ep: npt.NDArray[np.int64]
    virtual_stages: npt.NDArray[np.int64]
    micro_batch: npt.NDArray[np.int64]
    zero: npt.NDArray[np.int64]
    sequence_parallel: npt.NDArray[np.bool_]
    recompute: npt.NDArray[np.int64]
    overlap: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Prices of a table of candidates: arrays of its length."""

    step_seconds: npt.NDArray[np.float64]
    memory_bytes: npt.NDArray[np.float64]
    """Highest of any device."""
    time_parts: Mapping[str, npt.NDArray[np.float64]]
    """Seconds by part: they add up to `step_seconds`."""
    memory_parts: Mapping[str, npt.NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakdownLine:
    """One line of a breakdown."""

    name: str
    value: float
    origin: Origin = "static"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one strategy is expected to take."""

    strategy: Strategy
    step_seconds: float
    p10: float
    p90: float
    memory_bytes: float
    fits: bool
    time: Sequence[BreakdownLine]
    memory: Sequence[BreakdownLine]
    """Of the fullest device against its memory."""
    stage_memory: Sequence[tuple[float, float]] = ()
    """For each pipeline stage: bytes of a device, and how many its smallest device has."""
    price_per_step: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedStrategy:
    """Why a family of strategies lost: against the best plan."""

    family: Mapping[str, int | str | bool]
    candidates: int
    reason: Literal["memory", "time", "money", "divides"]
    by: float
    """Bytes too many, or the share by which it is slower or dearer."""
    at_least: bool = False
    """True where a bound cut the family before its best strategy was priced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The result of a search."""

    plans: Sequence[Estimate]
    """Best first."""
    placement: Sequence[Mapping[str, object]]
    """For each plan: which mesh axis lies on which level of the topology, and stages on groups."""
    rejected: Sequence[RejectedStrategy] = ()
    front: Sequence[Estimate] = ()
    """The Pareto front of time against money, fastest first."""
    evaluated: int = 0
    """Strategies that were decided: priced, or cut by a bound that proves that they lose."""
    priced: int = 0
    """Those of them that the whole cost model was worked out for."""
    seconds: float = 0.0
    warnings: Sequence[str] = field(default=())
