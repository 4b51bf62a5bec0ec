"""The smallest cluster of the same nodes on which something fits, where nothing fits on the one given."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from airflow_training.planning.search import space, table
from airflow_training.planning.search.counts import device_counts
from airflow_training.planning.search.homogeneous import SearchProblem
from airflow_training.planning.search.pricing import Pricing
from airflow_training.planning.view.plan import StrategyTable

_MOST_DOUBLINGS = 12
_ROWS = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallestFit:
    """The fewest devices that hold the model, and a strategy on them."""

    devices: int
    row: StrategyTable


def smallest(question: SearchProblem, *, pricing: Pricing) -> SmallestFit | None:
    """Return the smallest cluster that would fit, at most 4,096 times as large; None: there is none.

    The device counts that are tried are those of `counts.device_counts`.
    """
    group = question.cluster.groups[0]
    tried = question.cluster.devices
    for doubling in range(1, _MOST_DOUBLINGS + 1):
        whole = _with_nodes(question, group.count << doubling)
        if _fit_on(whole, pricing) is not None:
            for count in (n for n in device_counts(whole.cluster) if n > tried):
                one = _with_nodes(question, count // group.devices_per_node)
                row = _fit_on(one, pricing)
                if row is not None:
                    return SmallestFit(devices=count, row=row)
        tried = whole.cluster.devices
    return None


def first_fit(
    question: SearchProblem, splits: StrategyTable, pricing: Pricing
) -> StrategyTable | None:
    """Return a strategy that fits, or None after all were tried; small micro-batches come first."""
    modes = space.modes(question.constraints)
    order = np.argsort(splits.micro_batch, kind="stable")
    step = max(1, _ROWS // max(1, table.size(modes)))
    limit = question.memory_bytes
    for start in range(0, len(order), step):
        rows = space.expand(table.take(splits, order[start : start + step]), modes)
        least = pricing.memory_floors(question.workload, question.cluster, rows)
        rows = table.take(rows, least.bytes_held(rows) <= limit)
        if not table.size(rows):
            continue
        held = pricing.memory_bytes(question.workload, question.cluster, rows)
        tightest = int(np.argmin(held))
        if held[tightest] <= limit:
            return table.take(rows, slice(tightest, tightest + 1))
    return None


def _with_nodes(question: SearchProblem, nodes: int) -> SearchProblem:
    """Return the question on so many nodes, whatever the constraints say of their number."""
    group = replace(question.cluster.groups[0], count=nodes)
    return replace(
        question,
        cluster=replace(question.cluster, groups=(group,)),
        constraints=question.constraints.without("devices"),
    )


def _fit_on(question: SearchProblem, pricing: Pricing) -> StrategyTable | None:
    """Return a strategy that takes all devices and fits."""
    limits = space.limits_of(question.workload, question.cluster)
    splits = space.splits(limits, question.constraints)
    everything = table.devices(splits) == question.cluster.devices
    return first_fit(question, table.take(splits, everything), pricing)
