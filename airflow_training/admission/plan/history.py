"""What a plan learns from earlier runs and from its own: steps, memory, and the links of its nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow_training.errors import InputError
from airflow_training.planning.cost.constants import TimeConstants
from airflow_training.planning.cost.measurements import MeasuredStep, steps_of, subject
from airflow_training.planning.search.measured import measured_pricing
from airflow_training.planning.search.pricing import Pricing
from airflow_training.planning.sources.documents import parse_strategy
from airflow_training.planning.sources.measured import MeasuredLink, links_of_metrics
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.plan import Workload
from airflow_training.state.records import Measurement

if TYPE_CHECKING:
    from airflow_training.state.store import Store

__all__ = ["NO_HISTORY", "History", "MeasuredNodes", "history_of", "pricing_of"]

MEASURING_JOB = "measure-cluster"
"""Name of the job whose newest run says what links reach: `examples/measure_cluster`."""
_NEWEST = 20
"""Runs of it that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredNodes:
    """The links of some nodes, as a run measured them."""

    run_id: str
    nodes: frozenset[str]
    """Names of those that it ran on."""
    links: Sequence[MeasuredLink]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What runs measured, asked for when it is needed."""

    steps: Callable[[str], Sequence[Measurement]]
    """Returns what was measured about a subject, the newest first."""
    nodes: Callable[[str], MeasuredNodes | None]
    """Returns the newest measurement of links on a runtime; None: there is none."""


NO_HISTORY = History(steps=lambda _: (), nodes=lambda _: None)


def history_of(store: Store) -> History:
    """Measurements of earlier runs in a store, read anew for each question."""

    def nodes(runtime: str) -> MeasuredNodes | None:
        known = store.runs(limit=_NEWEST, states=("Succeeded",), job=MEASURING_JOB)
        for run in (run for run in known if run.runtime == runtime):
            metrics = store.metrics.newest(run.uid)
            links = [link for each in metrics.values() for link in links_of_metrics(each)]
            if links:
                team = store.ledger(run.uid).instances.values()
                names = frozenset(entry.node for entry in team if entry.node)
                return MeasuredNodes(run_id=run.key.run_id, nodes=names, links=links)
        return None

    return History(steps=store.measurements.about, nodes=nodes)


def pricing_of(
    constants: TimeConstants, workload: Workload, cluster: ClusterView, *, history: History
) -> tuple[Pricing, dict[str, Any]]:
    """Return the cost model that knows what runs measured, and what a plan's document says of that.

    The document has `subject`, under which runs of the plan keep what they measure, and where runs
    have measured before `factor`, `strategies` and `runs`. Raises as `history` does.
    """
    about = subject(workload, cluster)
    steps = steps_of(_steps(history.steps(about)))
    pricing, correction = measured_pricing(constants, workload, cluster, steps)
    said = {} if correction is None else asdict(correction)
    return pricing, {"subject": about, **said}


def _steps(found: Sequence[Measurement]) -> Iterator[MeasuredStep]:
    for each in found:
        with contextlib.suppress(InputError):  # a strategy as another version wrote it
            yield MeasuredStep(
                strategy=parse_strategy(each.strategy),
                step_seconds=each.step_seconds,
                memory_bytes=each.memory_bytes,
            )
