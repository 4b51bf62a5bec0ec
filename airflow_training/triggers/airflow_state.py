"""What Airflow says about the tasks of a group right now, asked from inside a trigger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_training import airflow_compat
from airflow_training.airflow_compat import GetTaskStates, TaskStatesResult
from airflow_training.errors import TrainingError

__all__ = ["LOST", "OVER", "DagRunGoneError", "TaskStates", "fetch_task_states"]

OVER = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
"""States in which a task has no future; every other one, None too, has."""

LOST = OVER - {"success"}


class DagRunGoneError(TrainingError):
    """Airflow knows no such task instance any more: the run (or its DAG) was deleted."""


class TaskStates:
    """States of tasks of one DAG run, by task id and map index."""

    def __init__(self, listed: Mapping[str, str | None]) -> None:
        """`listed`: as Airflow answers: `task_id`, and `task_id_3` for map index 3."""
        self._listed = listed

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._listed

    def at(self, task_id: str, map_index: int = -1) -> str | None:
        """Return the state; None where the task was not scheduled yet or is not listed."""
        return self._listed.get(_spelled(task_id, map_index))

    def has(self, task_id: str, map_index: int = -1) -> bool:
        """Return whether Airflow knows the task instance."""
        return _spelled(task_id, map_index) in self._listed


def _spelled(task_id: str, map_index: int) -> str:
    return task_id if map_index < 0 else f"{task_id}_{map_index}"


async def fetch_task_states(ti: Any, task_ids: Sequence[str]) -> TaskStates:
    """Return the states of `ti` and of other tasks of its DAG run.

    Raises DagRunGoneError where Airflow knows none of them, ConnectionError where it does not answer.
    """
    wanted = list(dict.fromkeys([*task_ids, ti.task_id]))
    question = GetTaskStates(dag_id=ti.dag_id, run_ids=[ti.run_id], task_ids=wanted)
    try:
        answer = await airflow_compat.SUPERVISOR_COMMS.asend(question)
    except AirflowRuntimeError as error:  # its database was busy or away
        raise ConnectionError(f"Airflow did not tell the task states: {error}") from error
    if not isinstance(answer, TaskStatesResult):
        raise ConnectionError(f"Airflow did not tell the task states: {answer!r}")
    listed = answer.task_states.get(ti.run_id)
    if not listed:
        raise DagRunGoneError(f"{ti.dag_id} {ti.run_id}: Airflow has no such run any more")
    return TaskStates(listed)
