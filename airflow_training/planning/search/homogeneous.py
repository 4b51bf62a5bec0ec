"""Exact search on equal devices: splits in the order of their bounds, priced a table at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cluster import ClusterView
from airflow_training.planning.plan import Candidates, Costs, Workload
from airflow_training.planning.search import bounds, space, table
from airflow_training.planning.search.constraints import Constraints
from airflow_training.planning.search.objectives import Objective
from airflow_training.planning.search.prices import Rates, scores, tokens_per_sample
from airflow_training.planning.search.ranking import Ranking

Evaluate = Callable[[Workload, ClusterView, Candidates], Costs]
Floats = npt.NDArray[np.float64]

_ROWS = 16_384
"""Rows that are priced at once: enough to pay for a call, few enough for a small memory."""
_SURE = 1.0 + 1e-9
"""A bound has to be worse by more than rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is searched for, on one group of equal devices."""

    workload: Workload
    cluster: ClusterView
    constraints: Constraints
    objective: Objective
    rates: Rates
    work: bounds.Work


def rank(question: Question, splits: Candidates, *, top_k: int, evaluate: Evaluate) -> Ranking:
    """Return the best strategies on these splits, and the fastest on each device count of the front.

    No strategy is left out that could be among the k best, or the fastest of a count in
    `front_counts`: what a bound cuts is not priced, but counted and remembered.
    """
    ranking = Ranking(top_k=top_k)
    modes = space.modes(question.constraints)
    _count(ranking, splits, modes)
    floor_seconds, floor_score = _floors(question, splits)
    devices = table.devices(splits)
    in_front = np.isin(devices, front_counts(int(devices.max(initial=0))))
    order = np.lexsort((np.arange(len(devices)), floor_score))
    waiting = order[np.isfinite(floor_score[order])]
    while len(waiting):
        hopeless = floor_score[waiting] > ranking.worst_kept * _SURE
        slow = floor_seconds[waiting] > ranking.to_beat(devices[waiting]) * _SURE
        cut = hopeless & (slow | ~in_front[waiting])
        if cut.any():
            ranking.note(table.take(splits, waiting[cut]), floor=floor_score[waiting[cut]])
        waiting = waiting[~cut]
        step = max(1, _ROWS // max(1, table.size(modes)))
        _price(question, ranking, table.take(splits, waiting[:step]), modes, evaluate)
        waiting = waiting[step:]
    return ranking


def front_counts(most: int) -> list[int]:
    """Return the device counts of the front of time against money: all, a half, a quarter, ..."""
    return [most >> half for half in range(most.bit_length()) if most % (1 << half) == 0]


def _price(
    question: Question,
    ranking: Ranking,
    splits: Candidates,
    modes: Candidates,
    evaluate: Evaluate,
) -> None:
    rows = space.expand(splits, modes)
    memory_bytes = question.cluster.groups[0].device.memory_bytes
    least = bounds.least_bytes(question.work, rows, precision=question.workload.precision)
    too_big = least > memory_bytes
    if too_big.any():
        big = table.take(rows, too_big)
        ranking.note(big, excess_bytes=least[too_big] - memory_bytes)
        rows = table.take(rows, ~too_big)
    if not table.size(rows):
        return
    costs = evaluate(question.workload, question.cluster, rows)
    ranking.add(rows, costs, _scores(question, rows, costs.step_seconds), memory_bytes=memory_bytes)


def _floors(question: Question, splits: Candidates) -> tuple[Floats, Floats]:
    """Return the least wall seconds and the least score of each split."""
    group = question.cluster.groups[0]
    seconds = bounds.least_seconds(
        question.work,
        splits,
        peak_flops=bounds.peak_flops(group),
        global_batch=question.workload.global_batch,
    )
    found = _scores(question, splits, seconds)
    return found.wall_seconds, found.score


def _scores(question: Question, rows: Candidates, seconds: Floats):
    workload = question.workload
    return scores(
        question.objective,
        question.rates,
        step_seconds=seconds,
        devices=table.devices(rows)[:, None].astype(np.float64),
        tokens_per_step=workload.global_batch * tokens_per_sample(workload.view),
    )


def _count(ranking: Ranking, splits: Candidates, modes: Candidates) -> None:
    """Count the candidates of every family, those that bounds will cut too."""
    allowed = space.allowed_modes(splits, modes)
    per_split, per_mode = allowed.sum(axis=1), allowed.sum(axis=0)
    for name in table.COLUMNS:
        own = name in space.MODE_COLUMNS
        column = np.asarray(getattr(modes if own else splits, name), dtype=np.int64)
        weights = per_mode if own else per_split
        for value in np.unique(column):
            ranking.families[name, int(value)].candidates = int(weights[column == value].sum())
