"""From a workload and a cluster to the answer: what was found, where it lies, why the rest lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from airflow_training.documents.spelling import did_you_mean
from airflow_training.documents.text import counted
from airflow_training.errors import InputError, Problem
from airflow_training.planning.cost.constants import FROZEN
from airflow_training.planning.search import homogeneous, pareto, prices, space, table
from airflow_training.planning.search.calibrated import pricing_with
from airflow_training.planning.search.constraints import Constraints
from airflow_training.planning.search.contradictions import contradiction
from airflow_training.planning.search.explain import rejected
from airflow_training.planning.search.heterogeneous import rank_arranged
from airflow_training.planning.search.homogeneous import SearchProblem
from airflow_training.planning.search.objectives import Objective, TimeObjective, TokenObjective
from airflow_training.planning.search.placement import placement
from airflow_training.planning.search.pricing import Pricing
from airflow_training.planning.search.quota import within_quota
from airflow_training.planning.search.ranking import RankedStrategy, StrategyFamily, distinct
from airflow_training.planning.search.smallest import first_fit, smallest
from airflow_training.planning.view.cluster import ClusterView, NodeGroup
from airflow_training.planning.view.plan import Estimate, SearchResult, StrategyTable, Workload
from airflow_training.planning.view.stages import even_layers, layer_span
from airflow_training.planning.view.strategy import Strategy

_GIB = 2.0**30
FREE = Constraints()
FASTEST = TimeObjective()
MODEL = pricing_with(FROZEN)


def search(
    workload: Workload,
    cluster: ClusterView,
    *,
    constraints: Constraints = FREE,
    objective: Objective = FASTEST,
    top_k: int = 5,
    pricing: Pricing = MODEL,
) -> SearchResult:
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
    _known_groups(cluster, constraints)
    constraints = within_quota(constraints, cluster)
    question = question_of(workload, cluster, constraints, objective)
    found = _find(question, top_k, pricing)
    plans = _distinct(question, found.plans)[:top_k]
    if not plans:
        raise _nothing(question, found, pricing)
    best = {name: table.value_at(plans[0].row, name, 0) for name in table.COLUMNS}
    estimates = _estimates(question, plans, pricing)
    return SearchResult(
        plans=estimates,
        placement=[placement(plan.strategy, cluster) for plan in estimates],
        rejected=rejected(
            found.families, best=best, best_score=plans[0].score, objective=objective
        ),
        front=_estimates(question, _front([*found.fastest, *plans]), pricing),
        evaluated=found.evaluated,
        priced=found.priced,
        warnings=found.warnings,
    )


@dataclass(slots=True)
class _SearchOutcome:
    """What the searches over equal nodes and over arrangements of stages found together."""

    plans: list[RankedStrategy] = field(default_factory=list)
    fastest: list[RankedStrategy] = field(default_factory=list)
    families: dict[tuple[str, int], StrategyFamily] = field(default_factory=dict)
    evaluated: int = 0
    priced: int = 0
    warnings: list[str] = field(default_factory=list)

    def to_beat(self, top_k: int) -> float:
        scores = sorted(plan.score for plan in self.plans)
        return scores[top_k - 1] if len(scores) >= top_k else np.inf


def _find(question: SearchProblem, top_k: int, pricing: Pricing) -> _SearchOutcome:
    found = _SearchOutcome()
    groups = question.cluster.groups
    lists = any(key in question.constraints.rules for key in ("stage_layers", "stage_devices"))
    if not lists:
        strongest = sorted(groups, key=lambda group: -group.devices * _peak_flops(group))
        for group in strongest:
            _search_group(question, group, found, top_k, pricing)
    if lists or len(groups) > 1 or _uneven(question.workload):
        _search_arrangements(question, found, top_k, pricing, 1 if lists or len(groups) == 1 else 2)
    return found


def _search_group(
    question: SearchProblem, group: NodeGroup, found: _SearchOutcome, top_k: int, pricing: Pricing
) -> None:
    """Search one group of equal nodes by itself."""
    alone = question_of(
        question.workload,
        replace(question.cluster, groups=(group,)),
        question.constraints,
        question.objective,
    )
    splits = space.splits(space.limits_of(alone.workload, alone.cluster), alone.constraints)
    modes = space.modes(alone.constraints)
    found.evaluated += int(space.allowed_modes(splits, modes).sum())
    ranking = homogeneous.rank(
        alone, splits, top_k=top_k, pricing=pricing, to_beat=found.to_beat(top_k)
    )
    several = len(question.cluster.groups) > 1

    def plan(
        row: StrategyTable,
        *,
        score: float = np.nan,
        seconds: float = np.nan,
        money: float = np.nan,
        spare: float = np.nan,
    ) -> RankedStrategy:
        devices = (group.name,) * int(row.pp[0]) if several else None
        return RankedStrategy(score, seconds, money, spare, row, None, devices)

    if ranking.rows is not None:
        for row, score in enumerate(ranking.score):
            one = table.take(ranking.rows, slice(row, row + 1))
            spare = float(ranking.spare_bytes[row])
            found.plans.append(plan(one, score=float(score), spare=spare))
    found.fastest += [
        plan(row, seconds=seconds, money=money) for seconds, money, row in ranking.fastest.values()
    ]
    found.priced += ranking.priced
    for key, family in ranking.families.items():
        found.families.setdefault(key, StrategyFamily()).join(family)


def _search_arrangements(
    question: SearchProblem, found: _SearchOutcome, top_k: int, pricing: Pricing, least_kinds: int
) -> None:
    """Search layers and kinds of nodes of every stage."""
    arranged = rank_arranged(
        question,
        top_k=top_k,
        pricing=pricing,
        to_beat=found.to_beat(top_k),
        least_kinds=least_kinds,
    )
    found.plans += arranged.best
    found.evaluated += arranged.candidates
    found.priced += arranged.priced
    if np.isfinite(arranged.unexplored) and found.plans:
        best = min(plan.score for plan in found.plans)
        found.warnings.append(
            f"{arranged.priced} strategies over several kinds of nodes were priced; of those left, none "
            f"can be better by more than {max(0.0, 1 - arranged.unexplored / best):.1%}"
        )


def _distinct(question: SearchProblem, plans: Sequence[RankedStrategy]) -> list[RankedStrategy]:
    """Return every plan once, best first; stages are listed only where they are not as usual."""
    begin, end = layer_span(question.workload.view.units)
    rules = question.constraints.rules
    one_kind = len(question.cluster.groups) == 1

    def plain(plan: RankedStrategy) -> RankedStrategy:
        even = tuple(even_layers(end - begin, int(plan.row.pp[0])).tolist())
        layers = None if plan.stage_layers == even else plan.stage_layers
        return replace(
            plan,
            stage_layers=plan.stage_layers if "stage_layers" in rules else layers,
            stage_devices=None if one_kind and "stage_devices" not in rules else plan.stage_devices,
        )

    once: dict[Strategy, RankedStrategy] = {}
    for plan in distinct([plain(plan) for plan in plans]):
        once.setdefault(_strategy(question, plan), plan)
    return list(once.values())


def _peak_flops(group: NodeGroup) -> float:
    """Return the highest rate of any precision that a device of the group can run at."""
    return max(group.device.peak_flops.values())


def _uneven(workload: Workload) -> bool:
    """Return whether layers differ, so that as many on every stage need not be the best."""
    begin, end = layer_span(workload.view.units)
    return end - begin > max(unit.repeat for unit in workload.view.units)


def question_of(
    workload: Workload, cluster: ClusterView, constraints: Constraints, objective: Objective
) -> SearchProblem:
    """The search problem on a cluster of equal nodes; raises if the cluster lacks the prices it needs."""
    return SearchProblem(
        workload=workload,
        cluster=cluster,
        constraints=constraints,
        objective=objective,
        rates=prices.rates(cluster, objective),
    )


def _estimates(
    question: SearchProblem, plans: Sequence[RankedStrategy], pricing: Pricing
) -> list[Estimate]:
    found = []
    for plan in plans:
        strategy = _strategy(question, plan)
        estimate = pricing.estimate(question.workload, question.cluster, strategy)
        price = None
        if question.rates.known:
            seconds = np.asarray([estimate.step_seconds])
            price = float(question.scores_of(seconds, _used(question, strategy)).money[0])
        found.append(replace(estimate, price_per_step=price))
    return found


def _strategy(question: SearchProblem, plan: RankedStrategy) -> Strategy:
    return replace(
        table.strategy_at(plan.row, 0, question.workload),
        stage_layers=plan.stage_layers,
        stage_devices=plan.stage_devices,
    )


def _used(question: SearchProblem, strategy: Strategy) -> npt.NDArray[np.float64]:
    """Return how many devices of each group a strategy takes: (1, groups)."""
    names = [group.name for group in question.cluster.groups]
    width = strategy.devices // strategy.pp
    on = strategy.stage_devices or (names[0],) * strategy.pp
    return np.asarray([[float(width * on.count(name)) for name in names]])


def _front(plans: Sequence[RankedStrategy]) -> list[RankedStrategy]:
    """Return the plans that nobody beats in both time and money; those that know both."""
    seconds = np.asarray([plan.wall_seconds for plan in plans])
    money = np.asarray([plan.money for plan in plans])
    return [plans[row] for row in pareto.front(seconds, money)]


def _known_groups(cluster: ClusterView, constraints: Constraints) -> None:
    """Raise if `stage_devices` names groups that the cluster has not."""
    names = [group.name for group in cluster.groups]
    rule = constraints.rule("stage_devices")
    lists = [*([rule.pinned] if rule.pinned else []), *rule.forbidden]
    problems = [
        Problem(
            code="not_allowed",
            field="constraints.stage_devices",
            value=name,
            message=f"'{name}' is no group of nodes of the cluster",
            allowed=names,
            hint=did_you_mean(name, names),
        )
        for listed in lists
        for name in listed
        if name not in names
    ]
    if problems:
        raise InputError(problems)


def _nothing(question: SearchProblem, found: _SearchOutcome, pricing: Pricing) -> InputError:
    """Return the error for a search in which nothing fits, or nothing is within the budget."""
    if not found.evaluated:
        return contradiction(
            space.limits_of(question.workload, question.cluster), question.constraints
        )
    families = found.families.values()
    over = min((family.over_budget for family in families), default=np.inf)
    if isinstance(question.objective, TokenObjective) and np.isfinite(over):
        return _over_budget(question.objective, over)
    devices, group = question.cluster.devices, question.cluster.groups[0]
    missing = min((family.excess_bytes for family in families), default=np.inf)
    lacking = f": the nearest needs {missing / _GIB:.1f} GiB more on a device"
    return InputError.of(
        code="does_not_fit",
        field="cluster",
        value=devices,
        message=f"no strategy fits into the memory of {counted(devices, 'device')} "
        f"({group.device.name})" + (lacking if np.isfinite(missing) else ""),
        hint=_what_would_fit(question, pricing),
    )


def _over_budget(objective: TokenObjective, over: float) -> InputError:
    enough = objective.budget * (1 + over)
    return InputError.of(
        code="over_budget",
        field="objective.budget",
        value=objective.budget,
        message=f"the cheapest plan costs {enough:.6g} for {objective.tokens:g} tokens",
        hint=f"{objective.tokens / (1 + over):.4g} tokens are within the budget",
    )


def _what_would_fit(question: SearchProblem, pricing: Pricing) -> str:
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
            quota = key == "devices" and question.cluster.quota is not None
            ways.append(
                f"{'with a larger quota' if quota else f'without the constraint on {key}'} it fits"
            )
    return "; ".join(ways) or "no number of such devices would do: choose one with more memory"
