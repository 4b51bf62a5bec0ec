"""What a plan learns from earlier runs and from its own: rows of the store become measured steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from airflow_training.errors import InputError
from airflow_training.planning.cluster import ClusterView
from airflow_training.planning.constants import TimeConstants
from airflow_training.planning.measurements import MeasuredStep, steps_of, subject
from airflow_training.planning.plan import Workload
from airflow_training.planning.search.measured import measured_pricing
from airflow_training.planning.search.pricing import Pricing
from airflow_training.planning.sources.documents import parse_strategy
from airflow_training.state.records import Measurement

__all__ = ["History", "pricing_of"]

History = Callable[[str], Sequence[Measurement]]
"""Returns what runs measured about a subject, the newest first: `Store.measurements`."""


def pricing_of(
    constants: TimeConstants, workload: Workload, cluster: ClusterView, *, history: History
) -> tuple[Pricing, dict[str, Any]]:
    """Return the cost model that knows what runs measured, and what a plan's document says of that.

    The document has `subject`, under which runs of the plan keep what they measure, and where runs
    have measured before `factor`, `strategies` and `runs`. Raises as `history` does.
    """
    about = subject(workload, cluster)
    steps = steps_of(_steps(history(about)))
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
