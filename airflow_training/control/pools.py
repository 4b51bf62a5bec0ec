"""Whether a training group fits into Airflow's pools that count deferred tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_training.errors import InputError, Problem

__all__ = ["WaitingTask", "needed_slots", "refuse_small_pools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTask:
    """A task of a group that spends its life deferred."""

    task_id: str
    pool: str
    slots: int = 1
    """Its `pool_slots`."""
    role: str = ""
    """Empty: `reconcile`."""
    sensor: bool = False


def needed_slots(tasks: Sequence[WaitingTask]) -> Mapping[str, int]:
    """Return pool -> slots that must be there for the group's deferred tasks, all at once.

    In each pool: `reconcile` + the sum over the roles of max(its sensors, its run task).

    - `reconcile` is deferred from `plan` to the end, beside everything else.
    - All roles count, also those that wait for each other: a role that waits is held by its
      sensors, and roles of one job may all need each other to get on (a rendezvous).
    - Of one role either the sensors are deferred or the run task, which follows them.
    - `plan`, `rollup` and `cleanup` need a slot only before or after all of these. So does
      `reconcile` when it fails on a worker: its own slot is free by then.

    With one slot less, tasks that start on a worker (roles of the generic DAG) wait for a slot of
    tasks that wait for them, for ever. Tasks that start in the triggerer are deferred without
    asking the pool: they overdraw it, and nothing else of the pool starts until they end.

    Each index of a mapped group is a group of its own: none waits for another one's slots, as
    its tasks start in the triggerer.
    """
    needed: dict[str, int] = defaultdict(int)
    phases: dict[tuple[str, str], dict[bool, int]] = defaultdict(lambda: {True: 0, False: 0})
    for task in tasks:
        if task.role:
            phases[task.pool, task.role][task.sensor] += task.slots
        else:
            needed[task.pool] += task.slots
    for (pool, _), slots in phases.items():
        needed[pool] += max(slots.values())
    return dict(needed)


def refuse_small_pools(tasks: Sequence[WaitingTask], pools: Mapping[str, int]) -> None:
    """Raise InputError (`not_supported`) where the group does not fit.

    `pools`: slots of each pool that counts deferred tasks; those that do not are no matter.
    """
    problems = [
        Problem(
            code="not_supported",
            field="pool",
            value=pool,
            message=f"pool {pool!r} has {_slots(pools[pool])} and counts deferred tasks"
            f" (include_deferred), but this group holds up to {needed} in it at the same time:"
            f" {', '.join(task.task_id for task in tasks if task.pool == pool)}",
            hint=f"give the pool at least {_slots(needed)}, put the group into another pool,"
            " or turn include_deferred off; then clear `plan`",
        )
        for pool, needed in sorted(needed_slots(tasks).items())
        if needed > pools.get(pool, needed)
    ]
    if problems:
        raise InputError(problems=problems)


def _slots(number: int) -> str:
    return "1 slot" if number == 1 else f"{number} slots"
