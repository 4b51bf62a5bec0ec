"""The cost model that a search asks: a table of strategies at once, or one strategy in detail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_training.planning.cluster import ClusterView
from airflow_training.planning.plan import Candidates, Costs, Estimate, Workload
from airflow_training.planning.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """Both ways to ask; they agree on every strategy that a table can hold."""

    evaluate: Callable[[Workload, ClusterView, Candidates], Costs]
    estimate: Callable[[Workload, ClusterView, Strategy], Estimate]
