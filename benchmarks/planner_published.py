"""Where configurations that papers published rank among what the planner can choose from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airflow_training.planning import cost
from airflow_training.planning.search import search, space, table
from airflow_training.planning.search.constraints import Constraints
from airflow_training.planning.view.plan import StrategyTable
from benchmarks.planner_rows import Row, published
from benchmarks.report import figure, heading

_FREE = Constraints()
_SAMPLE = 2500
"""Candidates, drawn at random, that stand for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A published configuration among all candidates on its cluster, by predicted time."""

    ours_seconds: float
    """Of the best plan."""
    published_seconds: float
    quicker_share: float
    """Of all candidates, those that fit and are quicker than the published one."""


def rank(row: Row) -> Rank:
    """Return where a published configuration ranks."""
    workload, cluster = row.measured.workload, row.measured.cluster
    theirs = cost.estimate(workload, cluster, row.measured.strategy).step_seconds
    splits = space.splits(space.limits_of(workload, cluster), _FREE)
    rows = _some(space.expand(_some(splits), space.modes(_FREE)))
    memory = cluster.groups[0].device.memory_bytes
    fits = cost.memory_bytes(workload, cluster, rows) <= memory
    seconds = cost.step_seconds(workload, cluster, table.take(rows, fits))
    return Rank(
        ours_seconds=search(workload, cluster, top_k=1).plans[0].step_seconds,
        published_seconds=theirs,
        quicker_share=float(np.sum(seconds < theirs) / table.size(rows)),
    )


def main() -> None:
    """Print the figures."""
    heading("Published configurations among all candidates")
    for row in published():
        found = rank(row)
        gain = found.published_seconds / found.ours_seconds
        note = f"ours is predicted {gain:.2f} times as quick"
        figure(row.id, 100 * found.quicker_share, "% are quicker", target="<= 10 %", note=note)


def _some(rows: StrategyTable) -> StrategyTable:
    chosen = np.random.default_rng(0).permutation(table.size(rows))[:_SAMPLE]
    return table.take(rows, np.sort(chosen))


if __name__ == "__main__":
    main()
