"""How a gang and a start order live together: the choice, and the proof that it cannot deadlock.

A gang scheduler starts nothing of a gang before as many of its members exist as the gang needs;
once it has started, later members are placed one by one. So a start order deadlocks exactly when
the instances that can be created before anything runs are fewer than the gang needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_training.control.waves import waves
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole, Startup
from airflow_training.errors import Problem

__all__ = [
    "StartupChoice",
    "choose_startup",
    "first_created",
    "gang_sizes",
    "prove_startup",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupChoice:
    """Which startup a job uses, why, and what it costs."""

    startup: Startup
    reason: str
    idle_instance_seconds_bound: float | None
    """Instance-seconds that may be spent holding a place without working, when every dependency
    is met just in time, by the clocks that stand while images are pulled and places looked for;
    None: no bound (a role waits for another to be complete)."""


def choose_startup(job: ResolvedJob, requested: str) -> StartupChoice:
    """Return the startup to use for `auto` or a named one; proves nothing about a named one."""
    if requested != "auto":
        named: Startup = requested  # type: ignore[assignment]  # the document's model has checked it
        return _choice(job, named, "as requested")
    if job.scheduling.gang == "none":
        return _choice(job, "ordered", "there is no gang, so any order is safe")
    if prove_startup(job, "ordered") is None:
        return _choice(
            job,
            "ordered",
            f"the first {first_created(job)} instances are all the gang needs to start",
        )
    if any(each.status == "Complete" for role in job.roles for each in role.depends_on):
        return _choice(
            job,
            "perWave",
            "a role waits for another to be complete: held inside, it would keep its place idle"
            " all that time",
        )
    return _choice(
        job,
        "createAllHold",
        f"the gang needs {job.gang_size} instances and the order would create only"
        f" {first_created(job)} of them before it starts",
    )


def prove_startup(job: ResolvedJob, startup: str) -> Problem | None:
    """Return None where gang and order cannot deadlock, else the problem and the way out.

    `createAllHold` creates all members at once, `firstWaveReserveAll` needs no more than the first
    wave, and under `perWave` every wave finds the earlier ones running or complete: all are safe.
    """
    if startup != "ordered" or job.scheduling.gang == "none":
        return None
    wants, gets = job.gang_size, first_created(job)
    if gets >= wants:
        return None
    later = [role.name for role in job.roles if role.replicas and not _starts_at_once(job, role)]
    return Problem(
        code="gang_order_deadlock",
        field="spec.schedulingPolicy.startup",
        message=f"the gang starts nothing before {wants} instances exist, but the dependency order"
        f" creates only {gets} before anything runs: {', '.join(later)} would wait for ever",
        value=startup,
        allowed=("auto", "perWave", "firstWaveReserveAll", "createAllHold"),
        hint=f"use startup: auto, or minAvailable: {gets}" if gets else "use startup: auto",
    )


def first_created(job: ResolvedJob) -> int:
    """Return how many instances can be created while nothing runs yet."""
    return sum(role.replicas for role in job.roles if _starts_at_once(job, role))


def gang_sizes(job: ResolvedJob, startup: Startup) -> Mapping[str, int]:
    """Return role -> members that the gang of this role waits for."""
    if startup == "perWave":
        size = {name: _replicas(job, wave) for wave in waves(job) for name in wave}
    elif startup == "firstWaveReserveAll":
        first = max(1, first_created(job))
        size = {role.name: min(first, job.gang_size) for role in job.roles}
    else:
        size = {role.name: job.gang_size for role in job.roles}
    return size


def _replicas(job: ResolvedJob, names: list[str]) -> int:
    return sum(job.role(name).replicas for name in names)


def _starts_at_once(job: ResolvedJob, role: ResolvedRole) -> bool:
    """Return whether nothing has to run before this role: an empty role holds nobody back."""
    return all(
        job.role(each.role).replicas == 0 and each.require == "All" for each in role.depends_on
    )


def _choice(job: ResolvedJob, startup: Startup, reason: str) -> StartupChoice:
    return StartupChoice(
        startup=startup, reason=reason, idle_instance_seconds_bound=_idle_bound(job, startup)
    )


def _idle_bound(job: ResolvedJob, startup: Startup) -> float | None:
    """Return the most instance-seconds that later roles hold a place while they wait."""
    if startup in ("ordered", "perWave"):
        return 0.0
    longest: dict[str, float] = {}
    for wave in waves(job):
        for name in wave:
            needs = job.role(name).depends_on
            if any(each.status == "Complete" for each in needs):
                longest[name] = math.inf
                continue
            own = sum(each.timeout_seconds for each in needs)
            longest[name] = own + max((longest[each.role] for each in needs), default=0.0)
    total = sum(role.replicas * longest[role.name] for role in job.roles if role.replicas)
    if job.active_deadline_seconds is not None:
        total = min(total, job.instances * job.active_deadline_seconds)
    return total if math.isfinite(total) else None
