"""`tune(job, space=...)`: runs of a job with different parameters, and the task that picks the best."""

from __future__ import annotations

from typing import Any, Literal

from airflow.sdk import TaskGroup, XComArg

from airflow_training.compiler.group import current_folder, training
from airflow_training.compiler.search_space import Space, trials_of
from airflow_training.compiler.source import JobSource
from airflow_training.errors import InputError
from airflow_training.operators.best import BestTrialOperator

__all__ = ["tune"]


def tune(
    job: Any,
    *,
    space: Space,
    metric: str,
    goal: Literal["max", "min"] = "max",
    trials: int | None = None,
    seed: int = 0,
    group_id: str = "",
    **group_options: Any,
) -> XComArg:
    """Run a job once for each trial inside the current DAG; return the result of the best one.

    A trial that fails counts as worst and fails nothing else; the DAG run fails when all do.

    Args:
        job: As for `training`.
        space: Parameter of `dag.params` -> the values to try: a list, or a `Range`.
        metric: Name of a metric that the job reports as progress; its newest value counts.
        goal: Whether more (`max`) or less (`min`) of it is better.
        trials: How many random sets of parameters to try; by default every combination.
        seed: Of the random choice: the same seed gives the same trials.
        group_id: Name of the group; the job's name by default.
        group_options: Further options of Airflow's TaskGroup around it.

    The result is `{"params", "metric", "value", "trial", "run", "output", "tried", "succeeded"}`.

    Raises:
        InputError: for a document, space, goal or number of trials that cannot work; at most
            1000 trials.

    >>> from airflow.sdk import DAG
    >>> from airflow_training import Range, TrainingJob, tune
    >>> job = TrainingJob(
    ...     metadata={"name": "digits"},
    ...     spec={
    ...         "framework": "custom",
    ...         "command": ["python", "train.py", "--lr", "{{ params.lr }}"],
    ...         "roles": [{"name": "worker"}],
    ...         "dag": {"params": {"lr": {"type": "number", "default": 0.1}}},
    ...     },
    ... )
    >>> with DAG("tuned"):
    ...     best = tune(
    ...         job,
    ...         space={"lr": Range(1e-4, 1.0, log=True)},
    ...         metric="loss",
    ...         goal="min",
    ...         trials=5,
    ...     )
    >>> best
    XComArg(<Task(BestTrialOperator): digits.best>)
    """
    source = JobSource.of(job, folder=current_folder())
    document = source.read()
    declared = document.spec.dag.params if document.spec.dag else {}
    if goal not in ("max", "min"):
        raise InputError.of(
            code="not_allowed",
            field="goal",
            value=goal,
            message="is not one of the values that exist",
            allowed=["max", "min"],
        )
    chosen = trials_of(space, declared=declared, trials=trials, seed=seed)
    with TaskGroup(group_id or document.metadata.name, **group_options):
        group = training.partial(job, group_id="trials").expand(params=chosen)
        # one bad set of parameters is a result like any other: `best` decides about the run
        _end_of(group).on_failure_fail_dagrun = False
        best = BestTrialOperator(
            task_id="best",
            trials=chosen,
            trials_group=str(group.group_id),
            metric=metric,
            goal=goal,
            trigger_rule="all_done",
            retries=0,
        )
        group >> best
    return XComArg(best)


def _end_of(group: TaskGroup) -> Any:
    """Return `rollup` of a job's group."""
    return group.children[f"{group.group_id}.rollup"]
