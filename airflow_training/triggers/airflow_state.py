"""What Airflow says about the tasks of a group right now, asked from inside a trigger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import GetTaskStates, TaskStatesResult

__all__ = ["ACTIVE", "OVER", "DagRunGone", "states_of"]

ACTIVE: frozenset[str | None] = frozenset(
    {
        None,
        "scheduled",
        "queued",
        "running",
        "deferred",
        "up_for_retry",
        "up_for_reschedule",
        "restarting",
        "awaiting_input",
    }
)
"""States of a task that runs or will run. None: it exists and was not scheduled yet."""

OVER = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


class DagRunGone(Exception):
    """Airflow knows no such task instance any more: the run (or its DAG) was deleted."""


async def states_of(ti: Any, task_ids: Sequence[str]) -> Mapping[str, str | None]:
    """Return task id -> state, for the tasks of `ti`'s run at its map index.

    A task that Airflow does not list is absent. Raises DagRunGone when it lists none of them and
    not `ti` itself either.
    """
    wanted = list(dict.fromkeys([*task_ids, ti.task_id]))
    answer = await task_runner.SUPERVISOR_COMMS.asend(
        GetTaskStates(dag_id=ti.dag_id, run_ids=[ti.run_id], task_ids=wanted)
    )
    if not isinstance(answer, TaskStatesResult):
        raise ConnectionError(f"Airflow did not tell the task states: {answer!r}")
    listed = answer.task_states.get(ti.run_id, {})
    if not listed:
        raise DagRunGone(f"{ti.dag_id} {ti.run_id}: Airflow has no such run any more")
    suffix = "" if ti.map_index < 0 else f"_{ti.map_index}"
    states = {}
    for task_id in wanted:
        for spelled in (task_id + suffix, task_id):
            if spelled in listed:
                states[task_id] = listed[spelled]
                break
    return states
