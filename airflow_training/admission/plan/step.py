"""The plan step: what `spec.plan` asks, of which machines, is searched; `planned` says what comes of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_training.admission.plan.cluster import Nodes, cluster_of
from airflow_training.admission.plan.engine import engine_problems, execution_problems
from airflow_training.admission.plan.history import NO_HISTORY, History, pricing_of
from airflow_training.admission.plan.job_plan import JobPlan, make_job_plan
from airflow_training.admission.plan.network_model import (
    DATA_ONLY,
    NOT_SPLIT,
    axis_problems,
    network_obstacles,
    pinned_problems,
)
from airflow_training.admission.plan.sizes import Sizes, sizes_of
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.plan import Objective, Plan
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.resolved_blocks import PlanCapacity
from airflow_training.errors import InputError, Problem
from airflow_training.planning.answers.report import answer_document
from airflow_training.planning.search import objectives
from airflow_training.planning.search import search as search_plan
from airflow_training.planning.search.constraints import Constraints
from airflow_training.planning.search.constraints import parse as constraints_of
from airflow_training.planning.search.pricing import Pricing
from airflow_training.planning.sources.calibration import chosen_constants
from airflow_training.planning.sources.models import is_reference, read_model
from airflow_training.planning.sources.networks import is_network
from airflow_training.planning.view.plan import SearchResult, Workload
from airflow_training.planning.view.stages import layer_span
from airflow_training.settings import load_settings

if TYPE_CHECKING:
    from airflow_training.planning.view.cluster import ClusterView
    from airflow_training.planning.view.computation import ComputationView
    from airflow_training.runtimes.port import ClusterSnapshot as Machines
    from airflow_training.runtimes.port import Runtime

__all__ = [
    "ALTERNATIVES",
    "PlanRequest",
    "as_job_problem",
    "check_plan",
    "make_plan_request",
    "plan_for_request",
    "plan_job",
]

_HERE = ("spec", "plan")
ALTERNATIVES = 5
"""Plans that are kept: the best, and the next ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What the planner is asked for a job."""

    workload: Workload
    cluster: ClusterView
    constraints: Constraints
    objective: objectives.Objective
    pricing: Pricing
    measurements: Mapping[str, Any]
    """What the pricing learned from runs, as a plan's document says it."""
    sizes: Sizes
    warnings: tuple[str, ...]
    capacity: PlanCapacity = "all"


def plan_job(
    job: TrainingJob,
    resolved: ResolvedJob,
    *,
    runtime: Callable[[ResolvedJob], Runtime],
    history: History,
) -> JobPlan:
    """Return the best plan of a job. Blocks for the search, seconds at most.

    `runtime` is asked for its machines where the cluster is `nodes`, `history` for what runs
    measured (`history_of(store)`). Raises InputError: something
    of `spec.plan` cannot be read, contradicts itself, or fits nowhere (then with the smallest
    cluster that would do), RuntimeUnavailable.
    """

    def nodes(asking: ResolvedJob) -> Machines:
        return asyncio.run(runtime(asking).cluster_view(asking))

    return plan_for_request(
        job.spec.plan, make_plan_request(job, resolved, nodes=nodes, history=history)
    )


def plan_for_request(plan: Plan, question: PlanRequest) -> JobPlan:
    """Return the answer to a question, as `plan_job` does."""
    started = time.perf_counter()
    try:
        answer = search_plan(
            question.workload,
            question.cluster,
            constraints=question.constraints,
            objective=question.objective,
            top_k=ALTERNATIVES,
            pricing=question.pricing,
        )
    except InputError as error:
        raise InputError(problems=[as_job_problem(problem) for problem in error.problems]) from None
    answer = replace(answer, seconds=time.perf_counter() - started)
    if "engine" in plan.apply:
        answer = _carried_out(answer, plan, question.workload.precision)
    begin, end = layer_span(question.workload.view.units)
    return make_job_plan(
        answer,
        plan=plan,
        model=question.workload.view,
        layers=end - begin,
        cluster=question.cluster,
        sizes=question.sizes,
        measurements=question.measurements,
        capacity=question.capacity,
        warnings=question.warnings,
    )


def _carried_out(answer: SearchResult, plan: Plan, precision: str) -> SearchResult:
    """Put the plans that our programs carry out first; raises InputError where they carry out none."""
    documents = answer_document(answer)["plans"]
    reasons = [_obstacles(document, plan, precision) for document in documents]
    if all(reasons):
        raise InputError.of(
            code="not_supported",
            field="spec.plan.apply",
            value="engine",
            message=f"engine carries out none of the {len(reasons)} best plans: {reasons[0][0]}",
            hint="exclude it by constraints",
        )
    order = sorted(range(len(reasons)), key=lambda place: bool(reasons[place]))
    return replace(
        answer,
        plans=[answer.plans[place] for place in order],
        placement=[answer.placement[place] for place in order],
    )


def _obstacles(document: Mapping[str, Any], plan: Plan, precision: str) -> list[str]:
    """Return why a plan cannot be carried out, in words; empty where it can."""
    found = execution_problems(document)
    if isinstance(plan.model, Mapping) and is_network(plan.model) and plan.engine is None:
        asked = network_obstacles(plan.model, document["strategy"], precision=precision)
        found += [message for _, message in asked]
    return found


def as_job_problem(problem: Problem, *, path: str = "") -> Problem:
    """Return a problem of the search, or of a file beside the job, as one of the job that asked."""
    if path:
        hint = problem.hint
        said = replace(problem, hint="", allowed=())
        return Problem(
            code="bad_reference",
            field="spec.plan",
            message=f"{path}: {said}",
            allowed=problem.allowed,
            hint=hint,
        )
    if problem.field.startswith("spec."):
        return problem
    return replace(problem, field=f"spec.plan.{problem.field}".rstrip("."))


def check_plan(job: TrainingJob, resolved: ResolvedJob) -> list[Problem]:
    """Problems with the texts of a plan. Asks no runtime, and runs no Python of the user."""
    plan = job.spec.plan
    mistakes = []
    if job.spec.trainer is not None:
        mistakes = axis_problems(plan)
    if isinstance(plan.model, Mapping) or not is_reference(plan.model or ""):
        _or_mistakes(mistakes, lambda: _view(plan, resolved))
    if plan.cluster != "nodes":
        _or_mistakes(
            mistakes, lambda: cluster_of(plan.cluster, resolved, nodes=_nobody, history=NO_HISTORY)
        )
    _or_mistakes(mistakes, lambda: objectives.parse(_goal(plan), where="spec.plan.objective"))
    given = _snake(plan.constraints)
    given.pop("global_batch", None)
    found = _or_mistakes(mistakes, lambda: constraints_of(given, where="spec.plan.constraints"))
    _or_mistakes(mistakes, lambda: sizes_of(job, resolved))
    if job.spec.trainer is not None and not mistakes:
        mistakes += pinned_problems(plan, found)
    return [*mistakes, *engine_problems(job, resolved)]


def _nobody(_: ResolvedJob) -> Machines:
    raise AssertionError("only `nodes` asks a runtime")


def make_plan_request(
    job: TrainingJob,
    resolved: ResolvedJob,
    *,
    nodes: Nodes,
    history: History,
    traced: ComputationView | None = None,
) -> PlanRequest:
    """The planner's question for a job: model, cluster, limits and objective.

    `traced`: of a model that is Python, which is then not called again.

    Raises InputError with every mistake, and as `nodes` and `history` do.
    """
    plan = job.spec.plan
    mistakes: list[Problem] = engine_problems(job, resolved)
    if job.spec.trainer is not None:
        mistakes += axis_problems(plan)
    if mistakes:  # before the user's Python is called
        raise InputError(problems=mistakes)
    view = traced or _or_mistakes(mistakes, lambda: _view(plan, resolved))
    found = _or_mistakes(
        mistakes, lambda: cluster_of(plan.cluster, resolved, nodes=nodes, history=history)
    )
    sizes = sizes_of(job, resolved)
    objective = _or_mistakes(
        mistakes, lambda: objectives.parse(_goal(plan), where="spec.plan.objective")
    )
    given = _snake(plan.constraints)
    batch = plan.global_batch or given.pop("global_batch", None)
    given.pop("global_batch", None)
    if "engine" in plan.apply:
        given |= NOT_SPLIT
    elif job.spec.trainer is not None:
        given |= DATA_ONLY
    if view is None or found is None or objective is None:
        raise InputError(problems=mistakes)
    split = job.spec.trainer is not None and "engine" in plan.apply
    if split and (
        mistakes := pinned_problems(plan, constraints_of(given, where="spec.plan.constraints"))
    ):
        raise InputError(problems=mistakes)
    cluster = found.view
    bounded = sizes.bound(given, applied=plan.apply, cluster_devices=cluster.devices)
    workload = Workload(
        view=view,
        global_batch=batch,
        precision=plan.precision or ("fp32" if split else _usual_precision(cluster)),
        runtime=resolved.framework,
    )
    constants = chosen_constants(load_settings().planner_constants)
    pricing, measurements = pricing_of(constants, workload, cluster, history=history)
    return PlanRequest(
        workload=workload,
        cluster=cluster,
        constraints=constraints_of(bounded, where="spec.plan.constraints"),
        objective=objective,
        pricing=pricing,
        measurements=measurements,
        sizes=sizes,
        warnings=(*found.warnings, *sizes.warnings),
    )


def _or_mistakes(mistakes: list[Problem], read: Callable[[], Any]) -> Any:
    """Return what `read` returns; None where it refuses, with its problems added to `mistakes`."""
    try:
        return read()
    except InputError as error:
        mistakes += [as_job_problem(problem, path=error.path) for problem in error.problems]
        return None


def _view(plan: Plan, resolved: ResolvedJob) -> ComputationView:
    """Return the view of the model that a plan names; raises InputError."""
    model = plan.model or ""
    if isinstance(model, Mapping) and not is_network(model):
        model = _snake(model)
    return read_model(model, base_dir=resolved.base_dir, at=(*_HERE, "model"))


def _goal(plan: Plan) -> Any:
    goal = plan.objective
    return goal.model_dump(exclude_none=True) if isinstance(goal, Objective) else goal


def _snake(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with its keys spelled as in files of the planner: kvHeads is kv_heads."""
    return {
        "".join(f"_{c.lower()}" if c.isupper() else c for c in key): value
        for key, value in document.items()
    }


def _usual_precision(cluster: ClusterView) -> Any:
    """Return bf16 where every device is faster in it, else fp32."""
    peaks = [group.device.peak_flops for group in cluster.groups]
    faster = all(peak.get("bf16", 0.0) > peak.get("fp32", 0.0) for peak in peaks)
    return "bf16" if faster else "fp32"
