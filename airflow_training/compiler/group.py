"""A job as Airflow tasks: plan, sensors, role tasks, reconcile, rollup, cleanup. Runs nothing.

plan ──┬─► reconcile ─────────────────────────┬─► rollup
       └─► [worker] await_master ─► run ──────┤
           [master] run ──────────────────────┴─► cleanup     (both teardowns)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, TaskGroup, task_group

from airflow_training.airflow_compat import DagContext, TaskGroupContext
from airflow_training.compiler.shape import RoleShape, shape_of
from airflow_training.compiler.source import JobSource
from airflow_training.operators.cleanup import CleanupOperator
from airflow_training.operators.plan import PlanOperator
from airflow_training.operators.reconcile import ReconcileOperator
from airflow_training.operators.role import RoleOperator
from airflow_training.operators.rollup import RollupOperator
from airflow_training.sensors.dependency import DependencySensor

__all__ = [
    "RECONCILE_WEIGHT",
    "TASK_NAMES",
    "add_end",
    "add_tasks",
    "compile_job",
    "document_outlets",
    "training",
]

TASK_NAMES = frozenset({"plan", "reconcile", "rollup", "cleanup"})
"""A role of such a name gets its task group under `<name>_role`."""

_OWN_PACE: Mapping[str, Any] = {"retries": 0, "weight_rule": "absolute"}
"""Of sensors and role tasks: the job has its own restarts, and `reconcile` must come first."""
RECONCILE_WEIGHT = 1000
"""Above everything a DAG usually asks for, so that waiting tasks cannot starve the loop."""


def add_tasks(
    roles: Sequence[RoleShape],
    *,
    group_id: str,
    plan: PlanOperator,
    outlets: Sequence[Asset] = (),
) -> RollupOperator:
    """Add everything that follows `plan` to the current task group; return `rollup`."""
    watched: list[str] = []
    starts: list[Any] = []
    ends: list[RoleOperator] = []
    for role in roles:
        folder = f"{role.name}_role" if role.name in TASK_NAMES else role.name
        with TaskGroup(folder, tooltip=f"role {role.name}"):
            sensors = [
                DependencySensor(
                    task_id=f"await_{upstream}",
                    role=role.name,
                    upstream=upstream,
                    group_id=group_id,
                    **_OWN_PACE,
                )
                for upstream in role.waits_for
            ]
            run = RoleOperator(task_id="run", role=role.name, group_id=group_id, **_OWN_PACE)
            if sensors:
                sensors >> run
            starts += sensors or [run]
        watched += [task.task_id for task in (*sensors, run)]
        ends.append(run)
    reconcile = ReconcileOperator(
        task_id="reconcile",
        group_id=group_id,
        watched=tuple(watched),
        weight_rule="absolute",
        priority_weight=RECONCILE_WEIGHT,
    )
    plan >> [reconcile, *starts]
    return add_end([reconcile, *ends], group_id=group_id, outlets=outlets)


def add_end(
    tasks: Sequence[Any], *, group_id: str, outlets: Sequence[Asset] = ()
) -> RollupOperator:
    """Add `rollup` and `cleanup` behind these tasks; return `rollup`."""
    rollup = RollupOperator(task_id="rollup", group_id=group_id, outlets=list(outlets))
    cleanup = CleanupOperator(task_id="cleanup", group_id=group_id)
    for task in tasks:
        task >> [rollup, cleanup]  # side by side: neither needs the other, and each takes a worker
    # Teardowns run whatever happened before, also when the run was marked failed. None of the
    # tasks is a setup: the teardowns of a setup that failed would be skipped.
    rollup.as_teardown(on_failure_fail_dagrun=True)
    cleanup.as_teardown()
    return rollup


def current_folder() -> Path:
    """Return the folder of the DAG file that is being parsed; relative job paths start there."""
    dag = DagContext.get_current()
    return Path(dag.fileloc).parent if dag is not None and dag.fileloc else Path.cwd()


def compile_job(
    job: Any,
    *,
    params: Any = None,
    group_id: str = "",
    outlets: Sequence[Asset] = (),
    folder: Path | None = None,
    **group_options: Any,
) -> TaskGroup:
    """Return the task group of a job inside the current DAG.

    Args:
        job: A TrainingJob, its document as a mapping, or the path of a job file (relative to the
            DAG file; `file.yaml#name` picks one of several jobs).
        params: Values of the job's parameters: a mapping that may hold XCom arguments, or one
            XCom argument that is a mapping.
        group_id: Name of the group; the job's name by default.
        outlets: Assets that a successful run updates, besides those of the document.
        folder: Where relative paths start; the folder of the DAG file by default.
        group_options: Further options of Airflow's TaskGroup, for example `default_args`.

    Raises:
        InputError: for mistakes of the document itself; what depends on parameters, framework
            and runtime fails the task `plan`.

    >>> from airflow.sdk import DAG
    >>> from airflow_training import TrainingJob
    >>> job = TrainingJob(
    ...     metadata={"name": "digits"},
    ...     spec={"framework": "custom", "command": ["true"], "roles": [{"name": "worker"}]},
    ... )
    >>> with DAG("retrain"):
    ...     group = compile_job(job, default_args={"pool": "gpu"})
    >>> sorted(group.children)
    ['digits.cleanup', 'digits.plan', 'digits.reconcile', 'digits.rollup', 'digits.worker']
    """
    source = JobSource.of(job, folder=folder or current_folder())
    document = source.read()
    with TaskGroup(group_id or document.metadata.name, **group_options) as group:
        _fill(source, document, params=params, outlets=outlets)
    return group


def _fill(source: JobSource, document: Any, *, params: Any, outlets: Sequence[Asset]) -> None:
    """Add the tasks of a job to the current task group."""
    group = TaskGroupContext.get_current()
    group_id = (group.group_id if group is not None else None) or ""
    plan = PlanOperator(
        task_id="plan", source=source, arguments=params or {}, group_id=group_id, retries=0
    )
    add_tasks(
        shape_of(document, base_dir=source.base_dir),
        group_id=group_id,
        plan=plan,
        outlets=[*document_outlets(document), *outlets],
    )


def document_outlets(document: Any) -> list[Asset]:
    """Return the assets that the document says a successful run updates."""
    return [Asset(uri) for uri in document.spec.dag.outlets] if document.spec.dag else []


class _Training:
    """The task group of a job inside any DAG; the arguments are those of `compile_job`.

    `training(job, params=...)` runs it once. `training.partial(job).expand(params=[...])` runs it
    once for each set of parameters, which may be the output of a task. What follows the group
    starts when the job has succeeded; its result is the output of `rollup`.

    Raises:
        InputError: for mistakes of the document itself; what depends on parameters, framework
            and runtime fails the task `plan`.

    >>> from airflow.sdk import DAG
    >>> from airflow_training import TrainingJob, training
    >>> job = TrainingJob(
    ...     metadata={"name": "digits"},
    ...     spec={
    ...         "framework": "custom",
    ...         "command": ["python", "train.py", "--lr", "{{ params.lr }}"],
    ...         "roles": [{"name": "worker", "replicas": 2}],
    ...         "dag": {"params": {"lr": {"type": "number", "default": 0.1}}},
    ...     },
    ... )
    >>> with DAG("retrain") as dag:
    ...     once = training(job, params={"lr": 0.2})
    ...     each = training.partial(job, group_id="each").expand(params=[{"lr": 0.1}, {"lr": 0.01}])
    ...     once >> each
    <...>
    >>> once.get_child_by_label("rollup").output
    XComArg(<Task(RollupOperator): digits.rollup>)
    """

    def __call__(
        self,
        job: Any,
        *,
        params: Any = None,
        group_id: str = "",
        outlets: Sequence[Asset] = (),
        **group_options: Any,
    ) -> TaskGroup:
        return compile_job(job, params=params, group_id=group_id, outlets=outlets, **group_options)

    def partial(
        self, job: Any, *, group_id: str = "", outlets: Sequence[Asset] = (), **group_options: Any
    ) -> _MappedGroup:
        """Return what `expand` maps: one run of the job for each set of parameters."""
        return _MappedGroup(job, group_id=group_id, outlets=outlets, options=group_options)


class _MappedGroup:
    def __init__(
        self, job: Any, *, group_id: str, outlets: Sequence[Asset], options: Mapping[str, Any]
    ) -> None:
        self._source = JobSource.of(job, folder=current_folder())
        self._document = self._source.read()
        self._group_id = group_id or self._document.metadata.name
        self._outlets = outlets
        self._options = options

    def expand(self, *, params: Any) -> TaskGroup:
        """Return a mapped task group. `params`: a list of mappings, or an XCom argument of one."""

        def one(params: Any) -> None:
            _fill(self._source, self._document, params=params, outlets=self._outlets)

        factory: Callable[..., Any] = task_group(group_id=self._group_id, **self._options)
        group: TaskGroup = factory(one).expand(params=params)
        return group


training = _Training()
"""The task group of a job, inside any DAG; see `compile_job` for the arguments."""
