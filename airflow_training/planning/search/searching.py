"""From a workload and a cluster to the answer: what was found, where it lies, why the rest lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from airflow_training.errors import InputError, Problem
from airflow_training.planning import cost
from airflow_training.planning.cluster import ClusterView
from airflow_training.planning.lowering import lower
from airflow_training.planning.plan import Answer, Estimate, Workload
from airflow_training.planning.program import Sharding
from airflow_training.planning.search import bounds, homogeneous, pareto, prices, space, table
from airflow_training.planning.search.constraints import Constraints
from airflow_training.planning.search.contradictions import contradiction
from airflow_training.planning.search.explain import rejected
from airflow_training.planning.search.homogeneous import Question
from airflow_training.planning.search.objectives import Objective, Time, Tokens
from airflow_training.planning.search.placement import placement
from airflow_training.planning.search.pricing import Pricing
from airflow_training.planning.search.ranking import Ranking
from airflow_training.planning.search.smallest import first_fit, smallest
from airflow_training.planning.strategy import Strategy
from airflow_training.spec.words import counted

_GIB = 2.0**30
FREE = Constraints()
FASTEST = Time()
MODEL = Pricing(
    floors=cost.floors,
    memory_bytes=cost.memory_bytes,
    step_seconds=cost.step_seconds,
    estimate=cost.estimate,
)


def search(
    workload: Workload,
    cluster: ClusterView,
    *,
    constraints: Constraints = FREE,
    objective: Objective = FASTEST,
    top_k: int = 5,
    pricing: Pricing = MODEL,
) -> Answer:
    """Return the best plans for a workload on a cluster, and why the others lost.

    Plans may take fewer devices than the cluster has, where that is better.

    Args:
        workload: what is trained.
        cluster: what it may be trained on.
        constraints: what users pin, bound or forbid (`constraints.parse`).
        objective: what plans are compared by (`objectives.parse`).
        top_k: plans to return, at least one.
        pricing: the cost model; another one for calibrated constants.

    Raises:
        InputError: nothing keeps the constraints, nothing fits (it names the smallest cluster on which
            something would), nothing is within the budget, or prices that the objective needs are missing.
    """
    question = question_of(workload, cluster, constraints, objective)
    return search_equal(question, top_k=top_k, pricing=pricing)


def search_equal(question: Question, *, top_k: int, pricing: Pricing) -> Answer:
    """Return the answer for a cluster of equal nodes.

    Raises:
        InputError: nothing keeps the constraints, nothing fits (it names the smallest cluster on which
            something would), or nothing is within the budget.
    """
    limits = space.limits_of(question.workload, question.cluster)
    splits = space.splits(limits, question.constraints)
    modes = space.modes(question.constraints)
    evaluated = int(space.allowed_modes(splits, modes).sum())
    if not evaluated:
        raise contradiction(limits, question.constraints)
    ranking = homogeneous.rank(question, splits, top_k=top_k, pricing=pricing)
    if ranking.rows is None:
        raise _nothing(question, ranking, pricing)
    workload = question.workload
    best = {name: table.value_at(ranking.rows, name, 0) for name in table.COLUMNS}
    strategies = [
        table.strategy_at(ranking.rows, row, workload) for row in range(table.size(ranking.rows))
    ]
    plans = _estimates(question, strategies, pricing)
    return Answer(
        plans=plans,
        placement=[placement(plan.strategy, question.cluster) for plan in plans],
        rejected=rejected(
            ranking.families,
            best=best,
            best_score=float(ranking.score[0]),
            objective=question.objective,
        ),
        front=_estimates(question, _front(ranking, workload), pricing),
        evaluated=evaluated,
        priced=ranking.priced,
    )


def question_of(
    workload: Workload, cluster: ClusterView, constraints: Constraints, objective: Objective
) -> Question:
    """Return what to search on a cluster of equal nodes; raises if it lacks the prices it needs."""
    whole = lower(workload.view, Sharding(precision=workload.precision))
    return Question(
        workload=workload,
        cluster=cluster,
        constraints=constraints,
        objective=objective,
        rates=prices.rates(cluster, objective),
        layer_elements=bounds.layer_elements(whole),
    )


def _estimates(
    question: Question, strategies: Sequence[Strategy], pricing: Pricing
) -> list[Estimate]:
    found = []
    for strategy in strategies:
        estimate = pricing.estimate(question.workload, question.cluster, strategy)
        if question.rates.known:
            scores = prices.scores(
                question.objective,
                question.rates,
                step_seconds=np.asarray([estimate.step_seconds]),
                devices=np.asarray([[float(strategy.devices)]]),
                tokens_per_step=1.0,
            )
            estimate = replace(estimate, price_per_step=float(scores.money[0]))
        found.append(estimate)
    return found


def _front(ranking: Ranking, workload: Workload) -> list[Strategy]:
    fastest = [ranking.fastest[count] for count in sorted(ranking.fastest)]
    seconds = np.asarray([row[0] for row in fastest])
    money = np.asarray([row[1] for row in fastest])
    return [table.strategy_at(fastest[row][2], 0, workload) for row in pareto.front(seconds, money)]


def _nothing(question: Question, ranking: Ranking, pricing: Pricing) -> InputError:
    """Return the error for a search in which nothing fits, or nothing is within the budget."""
    families = ranking.families.values()
    over = min(family.over_budget for family in families)
    if isinstance(question.objective, Tokens) and np.isfinite(over):
        return _over_budget(question.objective, over)
    devices, group = question.cluster.devices, question.cluster.groups[0]
    missing = min(family.excess_bytes for family in families)
    problem = Problem(
        code="does_not_fit",
        field="cluster",
        value=devices,
        message=f"no strategy fits into the memory of {counted(devices, 'device')} "
        f"({group.device.name}): the nearest needs {missing / _GIB:.1f} GiB more on a device",
        hint=_what_would_fit(question, pricing),
    )
    return InputError([problem])


def _over_budget(objective: Tokens, over: float) -> InputError:
    enough = objective.budget * (1 + over)
    return InputError(
        [
            Problem(
                code="over_budget",
                field="objective.budget",
                value=objective.budget,
                message=f"the cheapest plan costs {enough:.6g} for {objective.tokens:g} tokens",
                hint=f"{objective.tokens / (1 + over):.4g} tokens are within the budget",
            )
        ]
    )


def _what_would_fit(question: Question, pricing: Pricing) -> str:
    larger = smallest(question, pricing=pricing)
    ways = []
    if larger is not None:
        row = larger.row
        sizes = ("tp", "pp", "dp", "cp", "micro_batch", "zero", "recompute")
        how = ", ".join(f"{name} {table.value_at(row, name, 0)}" for name in sizes)
        ways.append(f"the smallest cluster that would fit has {larger.devices} of them ({how})")
    limits = space.limits_of(question.workload, question.cluster)
    for key in question.constraints.rules:
        free = replace(question, constraints=question.constraints.without(key))
        if first_fit(free, space.splits(limits, free.constraints), pricing) is not None:
            ways.append(f"without the constraint on {key} it fits")
    return "; ".join(ways) or "no number of such devices would do: choose one with more memory"
