"""Where training goes on from when something is started again, and what an instance is told of it. Pure.

A *group* is what writes one checkpoint together: the whole job, or one instance where instances are
independent. The job's entry follows the whole job's, or the chief's; for the others see `instance_checkpoints`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from airflow_training.control import instance_checkpoints, reasons
from airflow_training.control.attempts import AttemptId
from airflow_training.control.checkpoint_history import add_late, add_newer, previous_checkpoint
from airflow_training.control.draft import Draft
from airflow_training.control.failures import Failure
from airflow_training.control.model import JobEntry, Recovery, RestartRecord
from airflow_training.control.reports import RejectedCheckpoint
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import FailureClass, ResolvedJob
from airflow_training.documents.resolved_blocks import (
    CheckpointCommit,
    ResolvedCheckpoint,
    SaveInterval,
)
from airflow_training.frameworks.ranks import chief_role, ranked_roles

__all__ = [
    "begin",
    "checkpoint_root",
    "counts_as_restart",
    "is_one_group",
    "is_shared",
    "limit_restore_step",
    "order",
    "record_checkpoints",
    "record_rejected",
    "record_restart_point",
    "rejection_text",
    "restore_requested_step",
    "roll_back",
    "run_address",
    "save_grace",
]

_MAY_BE_THE_STATE: frozenset[FailureClass] = frozenset({"user", "unknown"})
"""Classes of failure that a restored state may have caused; a lost machine was not."""
_REJECTED_KEPT = 32
_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


# groups --------------------------------------------------------------------------------------------
def is_shared(job: ResolvedJob) -> bool:
    """Return whether all instances write one checkpoint together.

    They do where they restart together, where they re-form, and where the framework gives them
    ranks among each other.
    """
    if job.restart.scope != "Instance" or job.elastic:
        return True
    return any("WORLD_SIZE" in job.role(name).env for name in ranked_roles(job))


def needs_all(job: ResolvedJob) -> bool:
    """Return whether no instance of a job is of use before all of them are there."""
    return is_shared(job) and not job.elastic and job.instances > 1


def is_one_group(job: ResolvedJob) -> bool:
    """Return whether the ledger's checkpoint is that of everything in the job."""
    return is_shared(job) or job.instances == 1


def run_address(uri: str, *, run_id: str, run_uid: str) -> str:
    """Return the address below which all of a run keeps its checkpoints, a folder for each lineage.

    The run's hash is in it: run ids are unique only per DAG, and mapped jobs share one.
    """
    return f"{uri.rstrip('/')}/{_PLAIN.sub('-', run_id)}-{run_uid[:5]}"


def checkpoint_root(
    job: ResolvedJob, lineage: int, *, uri: str, run_id: str, run_uid: str, role: str, index: int
) -> str:
    """Return the address below which an instance's group keeps its checkpoints."""
    base = f"{run_address(uri, run_id=run_id, run_uid=run_uid)}/{lineage}"
    return base if is_shared(job) else f"{base}/{role}-{index}"


# what an instance is told ----------------------------------------------------------------------------
def order(
    job: ResolvedJob,
    entry: JobEntry,
    *,
    root: str,
    role: str,
    attempt: AttemptId,
    command: Sequence[str],
    image: str,
    env: Mapping[str, str],
) -> dict[str, Any]:
    """Return the content of `TRAINING_CHECKPOINT` for one attempt of one instance.

    `command`, `image` and `env` (the user's own) are what its `environment` is the digest of.
    """
    asked = job.checkpoint or ResolvedCheckpoint()
    shared, recovery = is_shared(job), entry.recovery
    number = recovery.order if shared else attempt.attempt
    environment = json.dumps(
        {"image": image, "command": list(command), "env": dict(env)}, sort_keys=True
    )
    return {
        "root": root,
        # equal for all that are started together, another one each time they are
        "incarnation": f"{entry.epoch}.{attempt.job_attempt}.{number}",
        "order": number,
        "group": "job" if shared else "instance",
        "every": _interval(asked.every),
        "keep": asked.keep,
        "keep_every": asked.keep_every,
        "resume": {
            "kind": "none" if asked.resume == "none" else "latest",
            "not_after": recovery.at_most,
            "exactly": recovery.exactly,
        },
        "initial": _initial(asked, root),
        "grace_seconds": save_grace(job, entry, role),
        "environment": f"sha256:{hashlib.sha256(environment.encode()).hexdigest()}",
    }


def _initial(asked: ResolvedCheckpoint, root: str) -> Mapping[str, Any] | None:
    """Return what a group begins with while it has nothing: the job's, or its instance's own."""
    found = asked.initial or asked.initial_of_each.get(root.rpartition("/")[2])
    return None if found is None else found.to_document()


def _interval(every: SaveInterval) -> dict[str, Any]:
    return {"auto": True} if every == "auto" else asdict(every)


def save_grace(job: ResolvedJob, entry: JobEntry, role: str) -> float:
    """Return how long an instance that is told to end has: enough to save, as far as that is known."""
    grace = job.grace_of(role)
    if job.checkpoint is None or entry.checkpoint is None:
        return grace
    return max(grace, 2 * (entry.checkpoint.seconds or 0.0))


# the ledger ------------------------------------------------------------------------------------------
def begin(job: ResolvedJob, *, after: Recovery | None = None) -> Recovery:
    """Return the recovery of a run that was accepted, or begun anew (`after`: what was before)."""
    wanted = job.checkpoint and job.checkpoint.resume
    step = wanted if isinstance(wanted, int) else None
    return Recovery(
        lineage=0 if after is None else after.lineage + 1,
        order=0 if after is None else after.order + 1,
        at_most=step,
        exactly=step is not None,
    )


def restore_requested_step(draft: Draft) -> None:
    """Go back to the step that the document names, where it names one: somebody cleared the run."""
    first = begin(draft.spec)
    if first.at_most is not None:
        draft.job = replace(
            draft.job,
            recovery=replace(
                draft.job.recovery,
                at_most=first.at_most,
                exactly=first.exactly,
                stepped_back_at=draft.now,
            ),
        )
        instance_checkpoints.forget_checkpoints(draft)


def record_checkpoints(draft: Draft, committed: Sequence[CheckpointCommit]) -> None:
    """Take in checkpoints that were committed in the lineage of now.

    They may come late, twice, and after the job stepped back behind them.
    """
    chief = (chief_role(draft.spec), 0)
    for commit in sorted(committed, key=lambda each: (each.at, each.step)):
        if not is_one_group(draft.spec):
            entry = instance_checkpoints.record_commit(draft, commit)
            if entry is not None and entry.key != chief:
                continue
        job = draft.job
        recovery = add_newer(job.checkpoint, job.recovery, commit, now=draft.now)
        if recovery is None:
            late = add_late(job.checkpoint, job.recovery, commit)
            if late is not None:
                draft.job = replace(draft.job, recovery=late)
            continue
        step, newer = commit.step, recovery.highest_step > job.recovery.highest_step
        draft.job = replace(draft.job, checkpoint=commit, recovery=recovery)
        if newer and is_one_group(draft.spec):
            _forgive(draft)
        draft.record_event(
            reasons.CHECKPOINT_COMMITTED, f"step {step}", checkpoint=commit.to_document()
        )
        if job.paused_at is not None:
            said = f"the checkpoint of step {step} is committed"
            draft.job = replace(draft.job, message=f"{job.message.partition(';')[0]}; {said}")


def record_rejected(
    draft: Draft, rejected: Sequence[tuple[InstanceKey, RejectedCheckpoint]]
) -> None:
    """Tell of checkpoints that were not restored. They are reported again as long as their process lives."""
    for key, each in sorted(rejected, key=lambda pair: pair[1].at):
        recovery = draft.job.recovery
        if any(each.is_same(known) for known in recovery.rejected):
            continue
        kept = (*recovery.rejected, each)[-_REJECTED_KEPT:]
        draft.job = replace(draft.job, recovery=replace(recovery, rejected=kept))
        draft.record_event(
            reasons.CHECKPOINT_REJECTED,
            rejection_text(each),
            of=draft.instances.get(key),
            level="warning",
            step=each.step,
        )


def rejection_text(rejected: RejectedCheckpoint) -> str:
    """Return which checkpoint was not restored, and why."""
    if rejected.step is None:
        return rejected.why
    return f"step {rejected.step} is not restored: {rejected.why}"


def _forgive(draft: Draft) -> None:
    """Let every instance have all its restarts again; `counts_as_restart` does so for the whole job's."""
    for entry in list(draft.instances.values()):
        if entry.restarts:
            draft.put(replace(entry, restarts=0))


def limit_restore_step(entry: JobEntry, step: int) -> JobEntry:
    """Return the job's entry such that no step after this one is restored next."""
    at_most = entry.recovery.at_most
    if at_most is not None and at_most <= step:
        return entry
    return replace(entry, recovery=replace(entry.recovery, at_most=step, exactly=False))


def counts_as_restart(job: ResolvedJob, entry: JobEntry, record: RestartRecord) -> bool:
    """Return whether a restart counts against `maxRestarts`: a newer checkpoint forgives it.

    That of independent instances says nothing about the others, so only the whole job's count.
    """
    if not (is_one_group(job) or record.scope != "Instance"):
        return True
    return record.at >= entry.recovery.progressed_at


def record_restart_point(
    draft: Draft, failure: Failure | None = None, *, fresh: bool = False
) -> None:
    """Write down where all of the job goes on from when it is started again.

    `failure`: what it is started again for, where it failed. `fresh`: as a fresh job.
    """
    recovery = draft.job.recovery
    if fresh and draft.spec.restart.fresh_from == "scratch":
        anew = begin(draft.spec, after=recovery)
        draft.job = replace(
            draft.job, recovery=replace(anew, stepped_back_at=draft.now), checkpoint=None
        )
        instance_checkpoints.forget_checkpoints(draft)
        return
    draft.job = replace(draft.job, recovery=replace(recovery, order=recovery.order + 1))
    if fresh:
        draft.job = replace(
            draft.job, recovery=replace(draft.job.recovery, at_most=None, exactly=False)
        )
        instance_checkpoints.restart_newest(draft)
    elif failure is not None:
        roll_back(draft, failure)


def roll_back(draft: Draft, failure: Failure) -> None:
    """Go one checkpoint further back where the newest one did not help: its state may be the cause.

    Of independent instances only the one that failed does.
    """
    if failure.failure_class not in _MAY_BE_THE_STATE:
        return
    if not is_one_group(draft.spec):
        instance_checkpoints.roll_back_instance(draft, failure)
        return
    job, recovery = draft.job, draft.job.recovery
    tried = any(
        record.epoch == job.epoch
        and record.at >= recovery.progressed_at
        # the one for this failure is in the trail already
        and record.attempt_key != failure.attempt_key
        for record in job.restarts
    )
    back = previous_checkpoint(recovery, now=draft.now)
    if not tried or back is None or job.checkpoint is None:
        return
    target, changed = back
    draft.job = replace(draft.job, checkpoint=target, recovery=changed)
    draft.record_event(
        reasons.STEPPED_BACK,
        f"from step {job.checkpoint.step} to step {target.step}: it failed again without a newer checkpoint",
        level="warning",
    )
