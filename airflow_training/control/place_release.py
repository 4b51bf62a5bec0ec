"""Gives places back that nobody can use: some instances of a job are refused, and it needs all of them.

Two jobs that hold half of a quota each would else hold each other for ever. Pure: what is random in the
wait follows from the run, so that two of them do not come back together.
"""

from __future__ import annotations

import zlib
from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.model import ActivePhase, InstanceEntry
from airflow_training.control.recovery import needs_all, record_restart_point
from airflow_training.control.running_time import trains
from airflow_training.control.transitions import next_attempt
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.documents.text import counted

__all__ = ["PATIENCE_SECONDS", "release_held_places", "wake_to_release_places"]

PATIENCE_SECONDS = 120.0
"""How long nothing may move before places are given back."""
_WAIT_SECONDS = (30.0, 120.0)
"""Until the next try: at least, and at most."""


def release_held_places(draft: Draft) -> None:
    """End what holds a place while others of its job are refused and nothing moves; try again later."""
    if draft.job.crowded_since is not None and not _refused(draft) and _active(draft):
        draft.job = replace(draft.job, crowded_since=None)
    due_at = _due_at(draft)
    if due_at is not None and draft.now >= due_at:
        _release_places(draft, _refused(draft), [each for each in _active(draft) if each.uid])


def wake_to_release_places(draft: Draft) -> None:
    """Ask to be called when places will have been held in vain for too long."""
    draft.wake(_due_at(draft))


def _due_at(draft: Draft) -> float | None:
    """Return when places are given back if nothing moves till then; None: nobody waits in vain."""
    if draft.spec.scheduling.gang != "none" or not needs_all(draft.spec):
        return None
    active, refused = _active(draft), _refused(draft)
    holding = [each for each in active if each.uid]
    if draft.job.paused_at is not None or not refused or not holding:
        return None
    first = min(map(_wanted_since, refused))
    if any(_is_at_work(draft, each, before=first) for each in holding):
        return None
    return PATIENCE_SECONDS + max(
        max(each.last_transition_at, _wanted_since(each)) for each in active
    )


def _active(draft: Draft) -> list[InstanceEntry]:
    """Return the instances that are to be there now, of roles that are of no use one by one."""
    together = {role.name for role in draft.spec.roles if _starts_with_others(draft.spec, role)}
    return [
        each
        for each in draft.instances.values()
        if isinstance(each.phase, ActivePhase) and each.role in together
    ]


def _starts_with_others(job: ResolvedJob, role: ResolvedRole) -> bool:
    """Return whether a role trains with the others from the start: no helper, and none that comes later."""
    return trains(job, role.name) and all(each.status == "AddressKnown" for each in role.depends_on)


def _refused(draft: Draft) -> list[InstanceEntry]:
    return [each for each in _active(draft) if not each.uid]


def _wanted_since(entry: InstanceEntry) -> float:
    return entry.phase.desired_since if isinstance(entry.phase, ActivePhase) else 0.0


def _is_at_work(draft: Draft, entry: InstanceEntry, *, before: float) -> bool:
    """Return whether an instance trains, or ran already before the first refused one was wanted."""
    seen = draft.objects.get(entry.uid)
    reports = seen is not None and seen.progress is not None
    return reports or (entry.state == "running" and entry.last_transition_at < before)


def _release_places(
    draft: Draft, refused: list[InstanceEntry], holding: list[InstanceEntry]
) -> None:
    wait = _wait_seconds(draft)
    since = min(map(_wanted_since, refused))
    message = (
        f"{counted(len(refused), 'instance')} refused for {draft.now - since:.0f} s"
        f" while {len(holding)} held their places: they are given back, next try in {wait:.0f} s"
    )
    draft.record_event(reasons.PLACES_GIVEN_BACK, message, of=refused[0], level="warning")
    record_restart_point(draft)
    draft.job = replace(
        draft.job,
        state="Restarting",
        reason=reasons.PLACES_GIVEN_BACK,
        message=message,
        job_attempt=draft.job.job_attempt + 1,
        restart_at=draft.now + wait,
        crowded_since=draft.job.crowded_since or since,
    )
    for entry in list(draft.instances.values()):
        if not entry.final and not entry.retired:
            again = replace(entry, last_try=False)
            next_attempt(draft, again, reason=reasons.PLACES_GIVEN_BACK, message=message)
    for name, role in draft.roles.items():
        draft.set_role(name, created=0)
        if role.state in ("Starting", "Running"):
            draft.set_role(
                name, state="Restarting", reason=reasons.PLACES_GIVEN_BACK, message=message
            )


def _wait_seconds(draft: Draft) -> float:
    """Return a wait that is another one for each job, and each time."""
    shortest, longest = _WAIT_SECONDS
    seed = f"{draft.spec.name} {draft.job.submitted_at} {draft.job.job_attempt}"
    return shortest + (longest - shortest) * (zlib.crc32(seed.encode()) % 1000) / 1000
