"""Whether a running job goes on as it is, on a spare, or under a new plan when its cluster changes.

The new plan is what a search on the changed cluster finds, and nothing is remembered of the search before
but what is the same for every search (lowered views, prices of shardings): a re-plan answers as a cold
search does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_training.documents.text import counted
from airflow_training.errors import InputError
from airflow_training.planning.reshard.relayout import Relayout, relayout
from airflow_training.planning.search.constraints import Constraints
from airflow_training.planning.search.objectives import MoneyObjective, Objective
from airflow_training.planning.search.pricing import Pricing
from airflow_training.planning.search.searching import FASTEST, FREE, MODEL, search
from airflow_training.planning.view.capacity import has_room
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.plan import Estimate, Workload
from airflow_training.planning.view.strategy import Strategy

__all__ = ["ReplanDecision", "RestartCost", "RunningJob", "replan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """How far a job is, and under which strategy."""

    strategy: Strategy
    steps_left: int
    steps_since_checkpoint: int
    """Steps that are run again if it stops now."""
    broken: bool = False
    """A device that it ran on is gone: it stands still, whatever is decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartCost:
    """What stopping and starting takes."""

    restart_seconds: float
    """From the stop to the first step, without reading the checkpoint."""
    read_bytes_per_second: float
    """Rate at which one device reads a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanDecision:
    """What to do, and why."""

    action: Literal["stay", "replace", "move"]
    """Go on; start the same split on spare devices; stop and start the new plan."""
    plan: Estimate
    """What runs from now on, priced on the changed cluster."""
    reason: str
    saved_seconds: float = 0.0
    """What the remaining steps take less than if it stayed; 0 where it cannot stay."""
    cost_seconds: float = 0.0
    """Restart, reading the checkpoint, and running lost steps again."""
    relayout: Relayout | None = None
    """What is read of the checkpoint; None where nothing stops."""

    @property
    def cost_steps(self) -> float:
        """How many steps of the plan moving to it costs."""
        return self.cost_seconds / self.plan.step_seconds


def replan(
    workload: Workload,
    running: RunningJob,
    cluster: ClusterView,
    moving: RestartCost,
    *,
    constraints: Constraints = FREE,
    objective: Objective = FASTEST,
    pricing: Pricing = MODEL,
) -> ReplanDecision:
    """Decide how a job goes on now that its cluster is `cluster`.

    - It broke, and its split still has room: the same split starts on spares. Nothing is searched.
    - Its split has no room any more: the best plan of the changed cluster starts.
    - Otherwise that plan starts only if the remaining steps save more than moving costs: time, or money
      where the objective is money (devices are paid for while they wait).

    Args:
        workload: what is trained.
        running: the job now.
        cluster: the cluster as it is now, without what is lost.
        moving: what stopping and starting takes.
        constraints: of the search.
        objective: what plans are compared by.
        pricing: the cost model.

    Raises:
        InputError: it cannot go on, and nothing fits the changed cluster. It names the smallest that would.
    """
    staying = _priced(workload, running.strategy, cluster, pricing)
    if running.broken and staying is not None:
        return _replaced(workload, running, staying, moving)
    found = search(
        workload, cluster, constraints=constraints, objective=objective, top_k=1, pricing=pricing
    )
    best = found.plans[0]
    if staying is None:
        return _forced(workload, running, best, moving, cluster)
    if best.strategy == running.strategy:
        return ReplanDecision(action="stay", plan=staying, reason="the split is still the best one")
    return _weighed(
        workload,
        cluster,
        running,
        staying,
        best,
        moving,
        objective=objective,
        pricing=pricing,
    )


def _priced(
    workload: Workload, strategy: Strategy, cluster: ClusterView, pricing: Pricing
) -> Estimate | None:
    """Return the estimate of a strategy; None where it has no room or does not fit."""
    if not has_room(strategy, cluster):
        return None
    try:
        estimate = pricing.estimate(workload, cluster, strategy)
    except InputError:
        return None  # the nodes that are left cannot be laid out so
    return estimate if estimate.fits else None


def _replaced(
    workload: Workload, running: RunningJob, staying: Estimate, moving: RestartCost
) -> ReplanDecision:
    read = relayout(workload.view, running.strategy, running.strategy)
    return ReplanDecision(
        action="replace",
        plan=staying,
        reason="spare devices take the place of those lost; the split stays",
        cost_seconds=_cost(running, staying, moving, read),
        relayout=read,
    )


def _forced(
    workload: Workload,
    running: RunningJob,
    best: Estimate,
    moving: RestartCost,
    cluster: ClusterView,
) -> ReplanDecision:
    read = relayout(workload.view, running.strategy, best.strategy)
    needed, there = running.strategy.devices, cluster.usable
    reason = (
        f"the split takes {needed} devices and {there} are there"
        if needed > there
        else "the split no longer fits the devices that are there"
    )
    return ReplanDecision(
        action="move",
        plan=best,
        reason=reason,
        cost_seconds=_cost(running, best, moving, read),
        relayout=read,
    )


def _weighed(
    workload: Workload,
    cluster: ClusterView,
    running: RunningJob,
    staying: Estimate,
    best: Estimate,
    moving: RestartCost,
    *,
    objective: Objective,
    pricing: Pricing,
) -> ReplanDecision:
    read = relayout(workload.view, running.strategy, best.strategy)
    cost = _cost(running, best, moving, read)
    saved = (staying.step_seconds - best.step_seconds) * running.steps_left
    if isinstance(objective, MoneyObjective):
        # At list prices, both: the search's plan may be priced as spot.
        stays = _money(staying)
        moves = _money(pricing.estimate(workload, cluster, best.strategy))
        gain = (stays - moves) * running.steps_left
        price = cost / best.step_seconds * moves
        words = f"{gain:.4g} of money", f"{price:.4g}"
    else:
        gain, price = saved, cost
        words = f"{gain:.4g} s", f"{price:.4g} s"
    reason = (
        f"the best split saves {words[0]} over {counted(running.steps_left, 'step')}, "
        f"moving costs {words[1]}"
    )
    if gain <= price:
        return ReplanDecision(action="stay", plan=staying, reason=reason)
    return ReplanDecision(
        action="move",
        plan=best,
        reason=reason,
        saved_seconds=saved,
        cost_seconds=cost,
        relayout=read,
    )


def _cost(running: RunningJob, plan: Estimate, moving: RestartCost, read: Relayout) -> float:
    """Return the seconds from the stop until the plan is where the job was."""
    reading = read.busiest_bytes / moving.read_bytes_per_second
    again = running.steps_since_checkpoint * plan.step_seconds
    return moving.restart_seconds + reading + again


def _money(estimate: Estimate) -> float:
    """Return the price of a step; a search for the least money has made sure that there is one."""
    return estimate.price_per_step or 0.0
