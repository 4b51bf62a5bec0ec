"""The smallest cluster of the same nodes on which something fits, where nothing fits on the one given."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from airflow_training.planning.plan import Candidates
from airflow_training.planning.search import bounds, space, table
from airflow_training.planning.search.homogeneous import Question
from airflow_training.planning.search.pricing import Pricing

_MOST_DOUBLINGS = 12
_ROWS = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Smallest:
    """The fewest devices that hold the model, and a strategy on them."""

    devices: int
    row: Candidates


def smallest(question: Question, *, pricing: Pricing) -> Smallest | None:
    """Return the smallest cluster that would fit, at most 4,096 times as large; None: there is none.

    The device counts that are tried are those of `counts.device_counts`.
    """
    group = question.cluster.groups[0]
    tried = question.cluster.devices
    for doubling in range(1, _MOST_DOUBLINGS + 1):
        larger = replace(group, count=group.count << doubling)
        cluster = replace(question.cluster, groups=(larger,))
        wider = replace(question, cluster=cluster)
        limits = space.limits_of(wider.workload, cluster)
        most = [count for count in limits.counts if count > tried]
        constraints = question.constraints.without("devices")
        splits = space.splits(limits, constraints)
        if first_fit(wider, _on(splits, most[-1]), pricing) is not None:
            for count in most:
                row = first_fit(wider, _on(splits, count), pricing)
                if row is not None:
                    return Smallest(devices=count, row=row)
        tried = cluster.devices
    return None


def _on(splits: Candidates, devices: int) -> Candidates:
    return table.take(splits, table.devices(splits) == devices)


def first_fit(question: Question, splits: Candidates, pricing: Pricing) -> Candidates | None:
    """Return a strategy that fits, or None after all were tried; small micro-batches come first."""
    modes = space.modes(question.constraints)
    order = np.argsort(splits.micro_batch, kind="stable")
    step = max(1, _ROWS // max(1, table.size(modes)))
    limit = question.memory_bytes
    for start in range(0, len(order), step):
        rows = space.expand(table.take(splits, order[start : start + step]), modes)
        least = bounds.least_bytes(
            question.layer_elements, rows, precision=question.workload.precision
        )
        rows = table.take(rows, least <= limit)
        if not table.size(rows):
            continue
        held = pricing.memory_bytes(question.workload, question.cluster, rows)
        tightest = int(np.argmin(held))
        if held[tightest] <= limit:
            return table.take(rows, slice(tightest, tightest + 1))
    return None
