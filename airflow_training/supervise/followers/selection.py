"""Which followers a run has. What only some runs need is imported only for them."""

from __future__ import annotations

from airflow_training.runtimes.port import HoldsSpares
from airflow_training.supervise.followers.absence import AbsenceFollower
from airflow_training.supervise.followers.delayed_logs import DelayedLogFollower
from airflow_training.supervise.followers.failures import FailureFollower
from airflow_training.supervise.followers.follower import FollowedRun, Follower
from airflow_training.supervise.followers.limits import LimitFollower
from airflow_training.supervise.followers.node_faults import NodeFaultFollower
from airflow_training.supervise.followers.progress import ProgressFollower
from airflow_training.supervise.followers.spares import SpareFollower

__all__ = ["followers_of"]


def followers_of(run: FollowedRun, *, read_logs: bool) -> list[Follower]:
    """Return the followers of a run, in the order in which the loop turns to them."""
    job, _ = run.state()
    others: list[Follower] = [DelayedLogFollower(run)] if read_logs else []
    others.append(FailureFollower(run, read_logs=read_logs))
    if run.runtime.capabilities.excludes_nodes:
        others.append(NodeFaultFollower(run))
    if isinstance(run.runtime, HoldsSpares) and any(role.warm_spares for role in job.roles):
        others.append(SpareFollower(run, run.runtime))
    if job.plan is not None:
        others += _of_a_plan(run)
    if job.checkpoint is not None:
        others += _of_checkpoints(run)
    return [ProgressFollower(run, others=others), AbsenceFollower(run), *others, LimitFollower(run)]


def _of_checkpoints(run: FollowedRun) -> list[Follower]:
    from airflow_training.supervise.followers.checkpointing import CheckpointReferences
    from airflow_training.supervise.followers.processes import Processes

    references = CheckpointReferences(run=run.ref, state=run.state, on_news=run.wake)
    processes = Processes(
        store=run.store,
        uid=run.ref.uid,
        state=run.state,
        instances=lambda: run.watcher.instances,
        root=references.root_of,
        on_progress=references.on_progress,
    )
    return [references, processes]


def _of_a_plan(run: FollowedRun) -> list[Follower]:
    """Return who measures it, and who follows its cluster where the job asks for that."""
    from airflow_training.admission.plan.follow import adaptive_plan
    from airflow_training.admission.plan.history import history_of  # numpy: only with a plan
    from airflow_training.supervise.followers.measuring import Meter
    from airflow_training.supervise.followers.plan_use import PlanUseFollower
    from airflow_training.supervise.followers.regrouping import RegroupingFollower
    from airflow_training.supervise.followers.replanning import Replanner, RunView

    job, _ = run.state()
    use, regrouping = PlanUseFollower(run), RegroupingFollower(run)
    meter = Meter(
        store=run.store, uid=run.ref.uid, state=run.state, on_progress=regrouping.on_progress
    )
    plan = adaptive_plan(job)
    if plan is None:
        return [meter, use, regrouping]

    def view() -> RunView | None:
        if not run.may_create():
            return None
        job, ledger = run.state()
        return RunView(
            job=job,
            ledger=ledger,
            progress={**meter.progress, **run.progress},
            generation=run.ref.generation,
            now=run.now(),
        )

    replanner = Replanner(
        runtime=run.runtime,
        run=run.ref,
        plan=plan,
        history=history_of(run.store),
        state=view,
        on_answer=run.wake,
        every_seconds=job.reconcile_seconds,
    )
    return [meter, use, regrouping, replanner]
