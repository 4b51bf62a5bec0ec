"""A plan that changes while those who carry it out keep their processes: may it, and who is which rank then. Pure.

A re-plan that survivors can follow is a *revision* inside the job attempt. Its number and its resolved job are stored together;
whoever drives the run then tells every instance, which happens again after each change of drivers and changes nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_training.control.actions import RevisePlan
from airflow_training.control.draft import Draft
from airflow_training.control.model import ActivePhase, Event, InstanceEntry, Ledger
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.documents.resolved_blocks import ResolvedPlan
from airflow_training.frameworks.ranks import chief_role

__all__ = [
    "PlaceInPlan",
    "is_engine_plan",
    "place_in_plan",
    "revise_ledger",
    "revision_obstacle",
    "tell_revision",
]

_DEGREES = ("tp", "pp", "dp", "cp")
"""Whose product is how many ranks a strategy takes."""
_AT_START = ("NCCL_",)
"""Variables that begin so are read once, when a process forms its first group."""


@dataclass(frozen=True, slots=True)
class PlaceInPlan:
    """Which rank an instance is under the plan of now."""

    rank: int
    world: int


def is_engine_plan(plan: ResolvedPlan | None) -> bool:
    """Whether a plan starts the training itself: only then ranks look whether it has changed."""
    return plan is not None and "engine" in plan.document


def revision_obstacle(old: ResolvedJob, new: ResolvedJob, *, replaces_files: bool) -> str:
    """Return why ranks cannot follow from one resolved job to another in their processes; empty where they can.

    `replaces_files`: the runtime can give files to instances that run. With `new` as `old` it says whether any revision can be.
    """
    before, after = old.plan, new.plan
    if before is None or after is None or not (is_engine_plan(before) and is_engine_plan(after)):
        return "its command is not the plan's own (no engine in apply), and would not look for another plan"
    if old.restart.scope != "Instance":
        return f"restart.scope is {old.restart.scope}: a lost rank ends all others"
    if not replaces_files:
        return f"the runtime {old.runtime} cannot give instances another plan while they run"
    if old.elastic:
        return "the framework forms its group itself"
    if old.scheduling.gang != "none":
        return f"a {old.scheduling.gang} gang is admitted for one size"
    for job in (old, new):
        instances = sum(role.replicas for role in _ranked(job))
        if _devices(job.plan) != instances:
            return f"the split takes {_devices(job.plan)} ranks on {instances} instances: torchrun starts those"
    return next(_needs_processes(old, new), "")


def place_in_plan(job: ResolvedJob, ledger: Ledger, key: InstanceKey) -> PlaceInPlan | None:
    """Return which rank an instance is; None where it takes none or several, or is not one of the job's any more.

    Ranks are dense whatever indexes are left; index 0 of the chief's role is always the first.
    """
    team = [
        entry.key
        for role in _ranked(job)
        for entry in sorted(ledger.instances.values(), key=lambda each: each.index)
        if entry.role == role.name and not (entry.retired or entry.joining)
    ]
    # several in each: torchrun starts those, and tells them
    if key not in team or _devices(job.plan) != len(team):
        return None
    return PlaceInPlan(team.index(key), len(team))


def revise_ledger(
    job: ResolvedJob, ledger: Ledger, event: Event, *, generation: int
) -> tuple[Ledger, tuple[Event, ...]]:
    """Return the ledger with which a run goes on as `job` under the next revision of its plan, and its events.

    The job attempt stays, and nobody is charged. Instances that are too many now, those that are lost first, end as by
    scaling; the next decision sees to them, and to those that come new.
    """
    draft = Draft(job, ledger, now=event.at, generation=generation)
    draft.job = replace(draft.job, plan_revision=draft.job.plan_revision + 1)
    for role in job.roles:
        draft.set_role(role.name, replicas=role.replicas)
    draft.events.append(event)
    return draft.ledger(), tuple(draft.events)


def tell_revision(draft: Draft) -> None:
    """Give the plan's revision to all ranks, once all that it counts run.

    Until then those that train go on as they are: who comes new finds the revision at its start, and waits for them.
    Where one of them is lost, all wait for it anyway.
    """
    number = draft.job.plan_revision
    if not number:
        return
    team = [
        entry
        for role in _ranked(draft.spec)
        for entry in draft.instances_of(role.name)
        if not entry.joining
    ]
    if not all(_runs(entry) for entry in team):
        return
    for entry in team:
        if entry.uid in draft.objects:
            draft.actions.append(RevisePlan(key=entry.key, uid=entry.uid, number=number))


def _runs(entry: InstanceEntry) -> bool:
    return isinstance(entry.phase, ActivePhase) and entry.state == "running"


def _ranked(job: ResolvedJob) -> list[ResolvedRole]:
    return [role for role in job.roles if role.rank_offset is not None]


def _devices(plan: ResolvedPlan | None) -> int:
    product = 1
    for degree in _DEGREES:
        product *= int((plan.strategy if plan else {}).get(degree, 1))
    return product


def _needs_processes(old: ResolvedJob, new: ResolvedJob) -> Iterator[str]:
    """Yield what differs between two jobs that a process reads only at its start."""
    before, after = old.plan, new.plan
    if before is None or after is None:
        return
    if before.document["engine"] != after.document["engine"]:
        yield "what is trained changes"
    batches = [plan.strategy.get("global_batch") for plan in (before, after)]
    if batches[0] != batches[1]:
        yield f"the samples of a step change from {batches[0]} to {batches[1]}"
    planned = {
        name for name in before.applied_env | after.applied_env if not name.startswith(_AT_START)
    }
    names = [role.name for role in old.roles]
    if names != [role.name for role in new.roles]:
        yield "the roles change"
        return
    for was in old.roles:
        becomes = new.role(was.name)
        if was.name == chief_role(old) and not becomes.replicas:
            yield f"role {was.name} has rank 0, and none would be left"
        if _process(was, planned) != _process(becomes, planned):
            yield f"what instances of role {was.name} are started with changes"
    if _besides(old) != _besides(new):
        yield "more of the job changes than its plan"


def _process(role: ResolvedRole, planned: set[str]) -> tuple[ResolvedRole, Mapping[str, Any]]:
    """Return what an instance's process is started with: neither how many there are, nor what the plan says."""
    env = {name: value for name, value in role.env.items() if name not in planned}
    paths = {file.path: None for file in role.files}
    return replace(role, replicas=0, rank_offset=None, env={}, files=()), {**env, **paths}


def _besides(job: ResolvedJob) -> ResolvedJob:
    return replace(job, roles=(), plan=None)
