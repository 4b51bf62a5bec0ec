"""Which roles may start now, and for how long exactly one dependency has held each of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_training.control.census import Census
from airflow_training.control.clocks import due_at, follow, is_used_up
from airflow_training.control.dependencies import (
    DependencyState,
    dependency_key,
    judge_dependency,
    only_upstream_is_slow,
)
from airflow_training.control.lifetimes import NO_LIVES, Lifetimes
from airflow_training.control.model import NOTHING_ELAPSED, Elapsed, RoleEntry
from airflow_training.documents.resolved import ResolvedRole

__all__ = ["Gate", "gate_of", "wave_waits"]

_NO_NEWS: Mapping[str, Lifetimes] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The answer for a role some of whose instances want to start."""

    waiting: Sequence[DependencyState]
    failed: DependencyState | None
    activated: bool
    waits: Mapping[str, Elapsed]
    """As the role must remember it."""
    wave_waits: bool = False
    timed_out: DependencyState | None = None
    wake_at: float | None = None

    @property
    def open(self) -> bool:
        return self.activated and not self.waiting and self.failed is None and not self.wave_waits


def wave_waits(
    role: ResolvedRole,
    *,
    wave: Sequence[ResolvedRole],
    roles: Mapping[str, RoleEntry],
    counts: Census,
) -> bool:
    """Return whether a role must wait for others of its wave, which start as one gang with it.

    Created earlier, it would only stand in the gang's queue and count as not schedulable.
    """
    if roles[role.name].state != "Waiting":
        return False
    mates = [m for m in wave if m.name != role.name and roles[m.name].state == "Waiting"]
    return any(
        not roles[mate.name].activated
        or any(
            judge_dependency(each, waiting=mate.name, roles=roles, counts=counts).status
            == "waiting"
            for each in mate.depends_on
        )
        for mate in mates
    )


def gate_of(
    role: ResolvedRole,
    *,
    roles: Mapping[str, RoleEntry],
    counts: Census,
    held_otherwise: bool,
    now: float,
    lives: Mapping[str, Lifetimes] = _NO_NEWS,
    wave: Sequence[ResolvedRole] = (),
) -> Gate:
    """Return the gate of a role.

    `held_otherwise`: something that is no dependency holds it too (backoff, an unadmitted gang),
    so no clock runs; what was counted stays. `lives`: what each role did since the last decision. `wave`: roles that start as one gang with it, if any. Activation is no such thing: in a DAG it comes only after the dependencies.
    """
    entry = roles[role.name]
    judged = [
        judge_dependency(each, waiting=role.name, roles=roles, counts=counts)
        for each in role.depends_on
    ]
    failed = next((each for each in judged if each.status == "failed"), None)
    waiting = [each for each in judged if each.status == "waiting"]
    mates_wait = wave_waits(role, wave=wave, roles=roles, counts=counts)
    look_at = min((now + each.dependency.poll_seconds for each in waiting), default=None)
    only = waiting[0] if len(waiting) == 1 and not held_otherwise and failed is None else None
    waited = {
        dependency_key(each.dependency): _waited(
            entry,
            each,
            runs=each is only and only_upstream_is_slow(each.dependency, counts),
            lives=lives.get(each.dependency.role, NO_LIVES) if each is only else NO_LIVES,
            now=now,
        )
        for each in (() if failed else waiting)
    }
    clock = NOTHING_ELAPSED if only is None else waited[dependency_key(only.dependency)]
    limit = 0.0 if only is None else only.dependency.timeout_seconds
    late = only is not None and is_used_up(clock, limit, now=now)
    wakes = [at for at in (look_at, due_at(clock, limit)) if at is not None]
    return Gate(
        waiting=waiting,
        failed=failed,
        activated=entry.activated,
        waits={key: each for key, each in waited.items() if each != NOTHING_ELAPSED},
        wave_waits=mates_wait,
        timed_out=only if late else None,
        wake_at=min(wakes, default=None),
    )


def _waited(
    entry: RoleEntry, state: DependencyState, *, runs: bool, lives: Lifetimes, now: float
) -> Elapsed:
    """Return how long a dependency has held the role that nothing else held."""
    waited = entry.waits.get(dependency_key(state.dependency), NOTHING_ELAPSED)
    if runs or waited.runs:
        return follow(waited, runs=runs, now=now, ended=min(lives.ends, default=now))
    return replace(waited, seconds=waited.seconds + lives.unseen_seconds)
