"""Where instances go on from that are independent: each has a root, a newest checkpoint and a way back. Pure.

The job's own entry follows the chief's alone; see `recovery`.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.checkpoint_history import add_late, add_newer, previous_checkpoint
from airflow_training.control.draft import Draft
from airflow_training.control.failures import Failure
from airflow_training.control.model import InstanceEntry, JobEntry, Ledger, OwnCheckpoints, Recovery
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved_blocks import CheckpointCommit

__all__ = [
    "entry_for_instance",
    "forget_checkpoints",
    "record_commit",
    "restart_newest",
    "roll_back_instance",
]


def record_commit(draft: Draft, commit: CheckpointCommit) -> InstanceEntry | None:
    """Take in what an instance has committed; return its entry, None where it is of none."""
    role, _, index = commit.uri.rpartition("/")[2].rpartition("-")
    entry = draft.instances.get(InstanceKey(role, int(index))) if index.isdecimal() else None
    if entry is None or commit.at <= draft.job.recovery.stepped_back_at:
        return entry
    newest, recovery = _known(entry)
    changed = add_newer(newest, recovery, commit, now=draft.now)
    if changed is not None:
        draft.put(replace(entry, own=OwnCheckpoints(newest=commit, recovery=changed)))
    elif (late := add_late(newest, recovery, commit)) is not None and entry.own is not None:
        draft.put(replace(entry, own=replace(entry.own, recovery=late)))
    return entry


def roll_back_instance(draft: Draft, failure: Failure) -> None:
    """Let the instance that failed go one checkpoint further back, where it failed since its newest one before."""
    entry = draft.instances[failure.key]
    newest, recovery = _known(entry)
    tried = any(
        record.epoch == draft.job.epoch
        and record.at >= recovery.progressed_at
        and record.key == failure.key
        # the one for this failure is in the trail already
        and record.attempt != failure.attempt
        for record in draft.job.restarts
    )
    back = previous_checkpoint(recovery, now=draft.now)
    if not tried or newest is None or back is None:
        return
    target, changed = back
    changed_entry = draft.put(replace(entry, own=OwnCheckpoints(newest=target, recovery=changed)))
    draft.record_event(
        reasons.STEPPED_BACK,
        f"from step {newest.step} to step {target.step}: it failed again without a newer checkpoint",
        of=changed_entry,
        level="warning",
    )


def restart_newest(draft: Draft) -> None:
    """Let every instance go on from its newest checkpoint again: the job is a fresh one."""
    for entry in list(draft.instances.values()):
        if entry.own is not None and entry.own.recovery.at_most is not None:
            recovery = replace(entry.own.recovery, at_most=None)
            draft.put(replace(entry, own=replace(entry.own, recovery=recovery)))


def forget_checkpoints(draft: Draft) -> None:
    """Let every instance go on from what the job says: training begins anew, or somebody chose the step."""
    for entry in list(draft.instances.values()):
        if entry.own is not None:
            draft.put(replace(entry, own=None))


def entry_for_instance(ledger: Ledger, entry: InstanceEntry) -> JobEntry:
    """Return the job's entry as an instance is told of it: with its own checkpoints in place of the chief's."""
    own = entry.own
    if own is None:
        return ledger.job
    recovery = replace(ledger.job.recovery, at_most=own.recovery.at_most, exactly=False)
    return replace(ledger.job, checkpoint=own.newest, recovery=recovery)


def _known(entry: InstanceEntry) -> tuple[CheckpointCommit | None, Recovery]:
    if entry.own is None:
        return None, Recovery()
    return entry.own.newest, entry.own.recovery
