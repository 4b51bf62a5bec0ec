"""Where instances go on from that are independent: each has a root, a newest checkpoint and a way back. Pure.

The job's own entry follows the chief's alone; see `recovery`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.failures import Failure
from airflow_training.control.known_checkpoints import one_back, with_late, with_newer
from airflow_training.control.model import InstanceEntry, JobEntry, Ledger, OwnCheckpoints, Recovery

__all__ = ["forget", "learn", "restart_newest", "step_back", "told_to"]


def learn(draft: Draft, reference: Mapping[str, Any]) -> InstanceEntry | None:
    """Take in what an instance has committed; return its entry, None where it is of none."""
    role, _, index = str(reference["uri"]).rpartition("/")[2].rpartition("-")
    entry = draft.instances.get((role, int(index))) if index.isdecimal() else None
    if entry is None or reference["at"] <= draft.job.recovery.turned_at:
        return entry
    newest, recovery = _known(entry)
    changed = with_newer(newest, recovery, reference, now=draft.now)
    if changed is not None:
        draft.change(entry, own=OwnCheckpoints(newest=dict(reference), recovery=changed))
    elif (late := with_late(newest, recovery, reference)) is not None and entry.own is not None:
        draft.change(entry, own=replace(entry.own, recovery=late))
    return entry


def step_back(draft: Draft, failure: Failure) -> None:
    """Let the instance that failed go one checkpoint further back, where it failed since its newest one before."""
    entry = draft.instances[failure.role, failure.index]
    newest, recovery = _known(entry)
    tried = any(
        record.epoch == draft.job.epoch
        and record.at >= recovery.progressed_at
        and (record.role, record.index) == (failure.role, failure.index)
        # the one for this failure is in the trail already
        and record.attempt != failure.attempt
        for record in draft.job.restarts
    )
    back = one_back(recovery, now=draft.now)
    if not tried or newest is None or back is None:
        return
    target, changed = back
    changed_entry = draft.change(entry, own=OwnCheckpoints(newest=target, recovery=changed))
    draft.tell(
        reasons.STEPPED_BACK,
        f"from step {newest['step']} to step {target['step']}: it failed again without a newer checkpoint",
        of=changed_entry,
        level="warning",
    )


def restart_newest(draft: Draft) -> None:
    """Let every instance go on from its newest checkpoint again: the job is a fresh one."""
    for entry in list(draft.instances.values()):
        if entry.own is not None and entry.own.recovery.at_most is not None:
            recovery = replace(entry.own.recovery, at_most=None)
            draft.change(entry, own=replace(entry.own, recovery=recovery))


def forget(draft: Draft) -> None:
    """Let every instance go on from what the job says: training begins anew, or somebody chose the step."""
    for entry in list(draft.instances.values()):
        if entry.own is not None:
            draft.change(entry, own=None)


def told_to(ledger: Ledger, entry: InstanceEntry) -> JobEntry:
    """Return the job's entry as an instance is told of it: with its own checkpoints in place of the chief's."""
    own = entry.own
    if own is None:
        return ledger.job
    recovery = replace(ledger.job.recovery, at_most=own.recovery.at_most, exactly=False)
    return replace(ledger.job, checkpoint=own.newest, recovery=recovery)


def _known(entry: InstanceEntry) -> tuple[Mapping[str, Any] | None, Recovery]:
    if entry.own is None:
        return None, Recovery()
    return entry.own.newest, entry.own.recovery
