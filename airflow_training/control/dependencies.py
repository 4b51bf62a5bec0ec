"""Whether a role may start: one answer per dependency, for decisions and for anybody who waits.

Reads the ledger only, so that a sensor in another process gives the same answer as `decide`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from airflow_training.control import reasons
from airflow_training.control.census import Census, HeadCountKey, HeadCounts
from airflow_training.control.clocks import DEPENDENCY, due_at
from airflow_training.control.model import (
    NOTHING_ELAPSED,
    TERMINAL_JOB_STATES,
    InstanceEntry,
    Ledger,
    RoleEntry,
)
from airflow_training.control.waits import wait_of
from airflow_training.documents.resolved import ResolvedDependency, ResolvedJob, ResolvedRole

__all__ = [
    "DependencyState",
    "dependency_key",
    "dependency_state",
    "initializer_answer",
    "judge_dependency",
    "only_upstream_is_slow",
    "timeout_at",
    "waits_briefly",
    "with_upstream_reason",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyState:
    """What one dependency says to the role that waits."""

    dependency: ResolvedDependency
    status: Literal["met", "waiting", "failed", "timed_out"]
    message: str
    """For people: `2 of 3 instances of worker are Running`."""
    timeout_at: float | None = None
    """When the wait ends; None while something else holds the role too, or what it waits for."""


def dependency_key(dependency: ResolvedDependency) -> str:
    """Return the name under which a role remembers how long the dependency has held it."""
    return f"{dependency.role}/{dependency.status}"


def timeout_at(dependency: ResolvedDependency, entry: RoleEntry) -> float | None:
    """Return when the wait for a dependency ends; None while its clock stands."""
    waited = entry.waits.get(dependency_key(dependency), NOTHING_ELAPSED)
    return due_at(waited, dependency.timeout_seconds)


def only_upstream_is_slow(dependency: ResolvedDependency, counts: Census) -> bool:
    """Return whether what is waited for has all that it needs: only then does the wait's clock run.

    Without a place, an image or an instance of its own to wait for, nobody could be there in time.
    """
    heads = [head for head, _ in counts.get(dependency.role, ()) if not head.final]
    missing = [head for head in heads if not _satisfies(head, dependency)]
    running = [head.desired and head.state in DEPENDENCY.counts for head in missing]
    return bool(running) and (all(running) if dependency.require == "All" else any(running))


def dependency_state(
    job: ResolvedJob, ledger: Ledger, role: str, dependency: ResolvedDependency, *, now: float
) -> DependencyState:
    """Return whether `role` still waits for one of its dependencies.

    A role that has once been let through is not held again by what happens later, except for
    instances that are restarted; those are the decision's business, not a sensor's. Raises
    ValueError for a dependency that is none of the role's.
    """
    if dependency not in job.role(role).depends_on:
        raise ValueError(f"role {role} does not wait for {dependency_key(dependency)}")
    entry = ledger.roles[role]
    counts = HeadCounts(ledger.instances.values()).census()
    if entry.state == "Failed" and entry.reason in (
        reasons.DEPENDENCY_FAILED,
        reasons.DEPENDENCY_TIMEOUT,
    ):
        late = entry.reason == reasons.DEPENDENCY_TIMEOUT
        return DependencyState(
            dependency=dependency,
            status="timed_out" if late else "failed",
            message=entry.message,
        )
    begun = entry.state in ("Starting", "Running", "Restarting", "Succeeded")
    if begun or any(head.was_running for head, _ in counts.get(role, ())):
        return DependencyState(
            dependency=dependency, status="met", message=f"role {role} has been let through"
        )
    judged = judge_dependency(dependency, waiting=role, roles=ledger.roles, counts=counts)
    if judged.status != "waiting":
        return judged
    if ledger.job.state in TERMINAL_JOB_STATES:
        return DependencyState(
            dependency=dependency,
            status="failed",
            message=f"the job ended ({ledger.job.state}) while {judged.message}",
        )
    until = timeout_at(dependency, entry)
    return DependencyState(
        dependency=dependency,
        status="timed_out" if until is not None and now >= until else "waiting",
        message=with_upstream_reason(judged, ledger.instances.values()).message,
        timeout_at=until,
    )


def judge_dependency(
    dependency: ResolvedDependency, *, waiting: str, roles: Mapping[str, RoleEntry], counts: Census
) -> DependencyState:
    """Return met, waiting or failed for one dependency; timeouts are the caller's."""
    groups = counts.get(dependency.role, ())
    total = sum(number for _, number in groups)
    good = sum(number for head, number in groups if _satisfies(head, dependency))
    lost = sum(number for head, number in groups if head.final and head.state != "succeeded")
    message = f"{good} of {total} instances of {dependency.role} are {dependency.status}"
    needs_all = dependency.require == "All"

    def answer(status: Literal["met", "waiting", "failed"], text: str) -> DependencyState:
        return DependencyState(dependency=dependency, status=status, message=text)

    upstream = roles[dependency.role]
    if total == 0:
        if needs_all:
            return answer("met", f"role {dependency.role} has no instances")
        return answer("failed", f"role {dependency.role} has no instances, and one is required")
    if dependency.status == "Complete" and needs_all:
        if upstream.state == "Succeeded":
            return answer("met", f"role {dependency.role} is complete")
    elif good == total or (good and not needs_all):
        return answer("met", message)
    if dependency.listener == "Any" and _let_one_through(counts, waiting):
        return answer("met", f"another instance of {waiting} saw it")
    if upstream.state in ("Failed", "Stopped"):
        return answer(
            "failed", f"role {dependency.role} is {upstream.state}: {upstream.message}".rstrip(": ")
        )
    one_lost_is_enough = needs_all and dependency.status != "Complete"
    if lost == total or (lost and one_lost_is_enough):
        return answer("failed", f"{lost} of {total} instances of {dependency.role} failed for good")
    return answer("waiting", message)


def with_upstream_reason(
    state: DependencyState, instances: Iterable[InstanceEntry]
) -> DependencyState:
    """Return a dependency that waits with what its upstream waits for, in the words of that.

    `instances`: of the whole run, or of the upstream's role.
    """
    name = state.dependency.role
    wait = wait_of([each for each in instances if each.role == name])
    if state.status != "waiting" or wait is None:
        return state
    said = ": ".join(filter(None, wait))
    return replace(state, message=f"{state.message}; {name} waits: {said}")


def waits_briefly(job: ResolvedJob, ledger: Ledger) -> bool:
    """Return whether a role that may start waits for others only to be up, not for their end."""
    waiting = {
        entry.role
        for entry in ledger.instances.values()
        if entry.reason == reasons.WAITING_FOR_DEPENDENCY
    }
    return any(
        ledger.roles[name].activated
        and all(each.status != "Complete" for each in job.role(name).depends_on)
        for name in waiting
    )


def initializer_answer(role: ResolvedRole) -> Literal["List", "Confirmation"]:
    """The word that an instance in the initializer receives on release."""
    reads = any(file.reads_addresses for file in role.files)
    for dependency in role.depends_on:
        if dependency.answer == "List" or (dependency.answer == "Auto" and reads):
            return "List"
    return "List" if reads and not role.depends_on else "Confirmation"


def _satisfies(head: HeadCountKey, dependency: ResolvedDependency) -> bool:
    # what has succeeded was reachable once: a short role must not block those that follow it
    if head.state == "succeeded":
        return True
    if head.final or not head.desired or head.state != "running":
        return False
    return {
        "Running": True,
        "AddressKnown": head.address_live,
        "PortOpen": head.port_open,
        "Ready": head.ready,
        "Complete": False,
    }[dependency.status]


def _let_one_through(counts: Census, role: str) -> bool:
    return any(head.desired and head.released for head, _ in counts.get(role, ()))
