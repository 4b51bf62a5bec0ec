"""What a running job does when its cluster has changed: the planner's rule, and the job it makes of it.

Blocks for a search, so it runs beside the loop. Writes nothing, and touches no runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from airflow_training.admission.plan.cluster import cluster_of
from airflow_training.admission.plan.history import History
from airflow_training.admission.plan.job_plan import JobPlan
from airflow_training.admission.plan.network_model import with_network
from airflow_training.admission.plan.step import (
    PlanRequest,
    as_job_problem,
    make_plan_request,
    plan_for_request,
)
from airflow_training.control import reasons
from airflow_training.control.gang import prove_startup
from airflow_training.control.plan_revision import is_engine_plan, revision_obstacle
from airflow_training.documents.checks import check
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.resolved_blocks import (
    ResolvedCheckpoint,
    ResolvedPlan,
    SaveEverySeconds,
    SaveEverySteps,
)
from airflow_training.errors import InputError
from airflow_training.execution.execution_plan import plan_of
from airflow_training.planning.answers.replan import ReplanDecision, RestartCost, RunningJob, replan
from airflow_training.planning.answers.text import seconds_text, strategy_text
from airflow_training.planning.sources.clusters import parse_cluster, write_cluster
from airflow_training.planning.sources.documents import parse_strategy
from airflow_training.planning.view.changes import changes
from airflow_training.planning.view.serial import unpack_view
from airflow_training.runtimes.port import ClusterSnapshot as Machines

__all__ = [
    "PlanMove",
    "ReplanInput",
    "ReplanVerdict",
    "read_current_cluster",
    "replan_run",
    "steps_at_risk",
]

LAUNCH_SECONDS = 60.0
"""What stopping and starting takes in a run that has not shown it yet."""
REGROUP_SECONDS = 5.0
"""What forming the group of ranks again takes that keep their processes, in a run that has not shown it yet."""
_FP64_WIDER = 2
"""Parameters and moments are fp32, by which `relayout` counts, in all precisions but this."""
READ_BYTES_PER_SECOND = 1e9
"""Rate at which a device reads a checkpoint; nobody has measured it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanInput:
    """A run at the moment at which its cluster changed."""

    job: ResolvedJob
    machines: Machines
    """Of the runtime, where the plan is for them."""
    step: int = 0
    """Steps that are done; 0 where the scripts do not say."""
    total_steps: int | None = None
    launch_seconds: float | None = None
    """How long its instances took to start; None: not known yet."""
    broken: bool = False
    """An instance was on a node that is gone."""
    tight: bool = False
    """Others hold part of the machines: those here are what is left."""
    replaces_files: bool = False
    """The runtime can give instances another plan while they run."""
    regroup_seconds: float | None = None
    """How long its ranks took to go on when they last formed their group again; None: not known yet."""

    @property
    def obstacle(self) -> str:
        """Why no plan can be followed by processes that stay; empty where one may be."""
        return revision_obstacle(self.job, self.job, replaces_files=self.replaces_files)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMove:
    """What it is expected to cost that ranks go on under another split in their processes."""

    lost_steps: int
    """Steps that are done again, at most."""
    seconds: float
    """Of all, without those steps."""
    moved_bytes: int
    """Of the state, what another rank held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanVerdict:
    """What came of it, as an event has it."""

    reason: str
    message: str
    level: Literal["info", "warning"] = "info"
    data: Mapping[str, Any] = field(default_factory=dict)
    job: ResolvedJob | None = None
    """What the run goes on as; None: as it is."""
    move: PlanMove | None = None
    """Of a job whose ranks can follow in their processes: what that is expected to cost; None: all start anew."""


def read_current_cluster(
    wanted: str | Mapping[str, Any], job: ResolvedJob, machines: Machines, history: History
) -> Mapping[str, Any]:
    """Return the document of the cluster that `spec.plan.cluster` of a job means now.

    Raises InputError: its file cannot be read, or no node can run an instance.
    """
    return write_cluster(cluster_of(wanted, job, nodes=lambda _: machines, history=history).view)


def replan_run(
    situation: ReplanInput, *, before: Mapping[str, Any], history: History
) -> ReplanVerdict:
    """Decide how a run goes on now that its cluster differs from the one in the document `before`.

    `history` is asked what runs measured, this one among them. Raises as it does.
    """
    job = situation.job
    asked = with_network(TrainingJob.model_validate(job.document), job.trainer)
    old = job.plan
    if old is None:
        raise ValueError(f"nothing was planned for the job {job.name}")
    try:
        question = make_plan_request(
            asked,
            job,
            nodes=lambda _: situation.machines,
            history=history,
            traced=unpack_view(old.traced) if old.traced else None,
        )
        question = replace(question, capacity="free" if situation.tight else "all")
        changed = list(changes(parse_cluster(before), question.cluster))
        said = "; ".join(changed) or "the cluster changed"
        if situation.tight:
            said = f"counted without what others hold, {said}"
        obstacle = situation.obstacle
        while True:
            decision = _decide(situation, question, old, stays=not obstacle)
            facts: dict[str, Any] = {
                "changes": changed,
                "action": decision.action,
                "why": decision.reason,
            }
            if decision.action != "move":
                return ReplanVerdict(
                    reason=reasons.CLUSTER_CHANGED, message=f"{said}: {decision.reason}", data=facts
                )
            planned, new = _moved(asked, job, question)
            found = obstacle or revision_obstacle(job, new, replaces_files=situation.replaces_files)
            if found == obstacle:
                break
            obstacle = found  # what was weighed is not what it would cost
    except InputError as error:
        problem = as_job_problem(error.problems[0], path=error.path)
        said = f"{problem.field}: {problem.message}"
        said += f" ({problem.hint})" if problem.hint else ""
        return ReplanVerdict(
            reason=reasons.REPLAN_FAILED,
            level="warning",
            message=f"the cluster changed, and no other plan can run: {said}",
        )
    text = (
        f"{said}: {decision.reason}; {strategy_text(old.document)} becomes"
        f" {strategy_text(planned.plan.document)}, which costs {decision.cost_steps:,.0f} steps"
        f" ({seconds_text(decision.cost_seconds)})"
    )
    facts |= {"plan": planned.plan.id, "before": old.id, **_costs(decision)}
    if obstacle:
        if is_engine_plan(old):
            text += f"; all ranks start anew: {obstacle}"
            facts["anew"] = obstacle
        return ReplanVerdict(reason=reasons.REPLANNED, message=text, data=facts, job=new)
    move = _expected(situation, question, old, decision)
    facts["lost_steps"] = move.lost_steps
    facts["moved_bytes"] = move.moved_bytes
    return ReplanVerdict(reason=reasons.REPLANNED, message=text, data=facts, job=new, move=move)


def _decide(
    situation: ReplanInput, question: PlanRequest, old: ResolvedPlan, *, stays: bool
) -> ReplanDecision:
    """Weigh what the changed cluster offers; `stays`: ranks keep their processes where it moves."""
    return replan(
        question.workload,
        _running(situation, old, question.measurements, stays=stays),
        question.cluster,
        _moving(situation, stays=stays),
        constraints=question.constraints,
        objective=question.objective,
        pricing=question.pricing,
    )


def _moved(
    asked: TrainingJob, job: ResolvedJob, question: PlanRequest
) -> tuple[JobPlan, ResolvedJob]:
    """Return the best plan, and the job at its size; raises InputError where a check refuses it."""
    planned = plan_for_request(asked.spec.plan, question)
    new = _at_size(planned.equipped(job), planned.replicas)
    problems = check(planned.sized(asked).spec, job.document)
    unstartable = prove_startup(new, new.scheduling.startup)
    problems = [*problems, *([unstartable] if unstartable else [])]
    if problems:
        raise InputError(problems=problems)
    return planned, new


def _at_size(job: ResolvedJob, replicas: Mapping[str, int]) -> ResolvedJob:
    """Return the job with some roles at another size, and ranks counted anew."""
    roles, offset = [], 0
    for role in job.roles:
        size = replicas.get(role.name, role.replicas)
        ranked = role.rank_offset is not None
        roles.append(replace(role, replicas=size, rank_offset=offset if ranked else None))
        offset += size if ranked else 0
    return replace(job, roles=tuple(roles))


def _running(
    situation: ReplanInput, plan: ResolvedPlan, measurements: Mapping[str, Any], *, stays: bool
) -> RunningJob:
    left = 0 if situation.total_steps is None else situation.total_steps - situation.step
    return RunningJob(
        strategy=parse_strategy(plan.strategy),
        steps_left=max(0, left),
        steps_since_checkpoint=_lost_steps(situation, plan, measurements, stays=stays),
        broken=situation.broken,
    )


def _lost_steps(
    situation: ReplanInput, plan: ResolvedPlan, measurements: Mapping[str, Any], *, stays: bool
) -> int:
    """Return how many steps are done again: none where ranks that stay hold all of the state."""
    if stays and _holds_all(plan):
        return 0
    # the plan is from before the run measured anything
    then = plan.measured_factor
    step_seconds = plan.step_seconds * measurements.get("factor", then) / then
    return steps_at_risk(situation.job.checkpoint, step=situation.step, step_seconds=step_seconds)


def _moving(situation: ReplanInput, *, stays: bool) -> RestartCost:
    known = situation.regroup_seconds if stays else situation.launch_seconds
    usual = REGROUP_SECONDS if stays else LAUNCH_SECONDS
    return RestartCost(
        restart_seconds=usual if known is None else known,
        read_bytes_per_second=READ_BYTES_PER_SECOND,
    )


def _expected(
    situation: ReplanInput, question: PlanRequest, old: ResolvedPlan, decision: ReplanDecision
) -> PlanMove:
    """Return what a move is expected to cost whose ranks keep their processes.

    Where those that stay hold all of the state, it goes to who lacks it; else all read the checkpoint.
    """
    read = decision.relayout
    moved = 0 if read is None else read.moved_bytes
    if not _holds_all(old) and read is not None:
        moved = read.read_bytes
    precision = old.document["engine"].get("precision", old.strategy.get("precision"))
    if precision == "fp64":
        moved *= _FP64_WIDER
    return PlanMove(
        lost_steps=_lost_steps(situation, old, question.measurements, stays=True),
        seconds=_moving(situation, stays=True).restart_seconds,
        moved_bytes=moved,
    )


def _holds_all(plan: ResolvedPlan) -> bool:
    """Whether the ranks of a plan hold all of the state without one of them."""
    carried_out = plan_of(plan.document)
    return carried_out.is_whole or carried_out.is_replicated


def steps_at_risk(checkpoint: ResolvedCheckpoint | None, *, step: int, step_seconds: float) -> int:
    """Return how many steps are run again after a stop: all of them without a checkpoint.

    With one, the whole time between two checkpoints counts: the stop may come at its end.
    """
    if checkpoint is None:
        return step
    if isinstance(checkpoint.every, SaveEverySteps):
        return min(step, checkpoint.every.steps)
    every = SaveEverySeconds() if checkpoint.every == "auto" else checkpoint.every
    return min(step, int(every.seconds / step_seconds) + 1)


def _costs(decision: ReplanDecision) -> dict[str, Any]:
    read = decision.relayout
    return {
        "cost_seconds": round(decision.cost_seconds, 3),
        "cost_steps": round(decision.cost_steps, 3),
        "saved_seconds": round(decision.saved_seconds, 3),
        "read_bytes": 0 if read is None else read.read_bytes,
        "moved_bytes": 0 if read is None else read.moved_bytes,
    }
