"""Every field that has a default: its value in this job, and who said so. Reads, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from airflow_training.documents.base import Model
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.resolved import ExitCodeTable, ResolvedJob, ResolvedRole
from airflow_training.documents.resolved_blocks import SaveEverySeconds
from airflow_training.frameworks.model import FrameworkSpec

__all__ = ["Default", "list_defaults"]

Origin = Literal["user", "framework", "airflow-training"]
Default = dict[str, Any]
"""`{field, value, from}`, as `explain` prints it."""
_OURS: Origin = "airflow-training"


def list_defaults(
    job: TrainingJob, resolved: ResolvedJob, *, framework: FrameworkSpec
) -> list[Default]:
    """Return one entry per field with a default, in the order of the document."""
    return [
        {"field": field, "value": _shorten(value), "from": origin}
        for field, value, origin in _entries(job, resolved, framework)
    ]


def _shorten(value: Any) -> Any:
    """Return 600 for 600.0: numbers look as a user would write them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Entry = tuple[str, Any, Origin]


def _entries(job: TrainingJob, resolved: ResolvedJob, framework: FrameworkSpec) -> Iterator[Entry]:
    spec = job.spec
    yield _ours("metadata.namespace", job.metadata, "namespace", resolved.namespace)
    for name, schema in framework.parameters.items():
        if name in spec.parameters:
            yield f"spec.parameters.{name}", spec.parameters[name], "user"
        elif "default" in schema:
            yield f"spec.parameters.{name}", schema["default"], "framework"
    yield _ours("spec.runtime.name", spec.runtime, "name", resolved.runtime)
    yield from _trainer(job)
    for i, role in enumerate(spec.roles):
        where = f"spec.roles[{i}]"
        made = resolved.role(role.name)
        yield _ours(f"{where}.replicas", role, "replicas", made.replicas)
        yield from _dependencies(where, job, i, made)
        whose = _theirs if spec.trainer is None else _ours
        yield whose(f"{where}.restartPolicy", role, "restart_policy", made.restart_policy)
        yield _ours(f"{where}.backoffLimit", role, "backoff_limit", made.backoff_limit)
        yield _ours(f"{where}.maxRestarts", role, "max_restarts", made.max_restarts)
        yield _ours(f"{where}.minSucceeded", role, "min_succeeded", made.min_succeeded)
        yield _ours(f"{where}.minFailed", role, "min_failed", made.min_failed)
        yield _theirs(f"{where}.tracked", role, "tracked", made.tracked)
        definition = framework.role(role.name)
        if definition is not None and definition.own_command and role.command is None:
            command = _command(made)
            if command is not None:
                yield f"{where}.command", command, "framework"
    yield from _policies(job, resolved)
    yield from _restart(job, resolved)
    yield from _scheduling(job, resolved)
    yield from _preflight(job, resolved)
    for name, value in (
        ("active_deadline_seconds", resolved.active_deadline_seconds),
        ("ttl_seconds_after_finished", resolved.ttl_seconds_after_finished),
        ("clean_pod_policy", resolved.clean_pod_policy),
        ("reconcile_seconds", resolved.reconcile_seconds),
        ("suspend", resolved.suspend),
    ):
        theirs = getattr(framework, name, None) is not None
        whose = _theirs if theirs else _ours
        yield whose(f"spec.{_camel(type(spec), name)}", spec, name, value)
    yield from _checkpoint(job, resolved)
    if spec.output is None and framework.output_uri is not None:
        yield "spec.output.uri", framework.output_uri, "framework"
    if spec.output is None:
        yield "spec.output.role", resolved.output_role, "framework"
    else:
        yield _theirs("spec.output.role", spec.output, "role", resolved.output_role)
        yield _ours("spec.output.continuous", spec.output, "continuous", spec.output.continuous)
    dag = spec.dag
    if dag is not None:
        schedule = dag.schedule
        shown = schedule.model_dump(by_alias=True) if isinstance(schedule, Model) else schedule
        yield _ours("spec.dag.schedule", dag, "schedule", shown)
        yield _ours("spec.dag.timezone", dag, "timezone", dag.timezone)
        yield _ours("spec.dag.maxActiveRuns", dag, "max_active_runs", dag.max_active_runs)
        yield _ours("spec.dag.catchup", dag, "catchup", dag.catchup)


def _trainer(job: TrainingJob) -> Iterator[Entry]:
    trainer = job.spec.trainer
    if trainer is None:
        return
    yield _ours("spec.framework", job.spec, "framework", job.spec.framework_name)
    for prefix, model in (
        ("spec.trainer", trainer),
        ("spec.trainer.data", trainer.data),
        ("spec.trainer.optimizer", trainer.optimizer),
    ):
        for name, field in type(model).model_fields.items():
            value = getattr(model, name)
            if (
                not field.is_required()
                and not isinstance(value, Model)
                and value not in (None, [], {})
            ):
                yield _ours(f"{prefix}.{_camel(type(model), name)}", model, name, value)


def _dependencies(
    where: str, job: TrainingJob, position: int, made: ResolvedRole
) -> Iterator[Entry]:
    role = job.spec.roles[position]
    own = "depends_on" in role.model_fields_set
    if not own and made.depends_on:
        names = [dependency.role for dependency in made.depends_on]
        yield f"{where}.dependsOn", names, "framework"
    for j, dependency in enumerate(made.depends_on):
        at = f"{where}.dependsOn[{j}]"
        for name, value in (
            ("status", dependency.status),
            ("require", dependency.require),
            ("listener", dependency.listener),
            ("answer", dependency.answer),
            ("timeout_seconds", dependency.timeout_seconds),
            ("poll_seconds", dependency.poll_seconds),
        ):
            key = _CAMEL.get(name, name)
            if own:
                yield _ours(f"{at}.{key}", role.depends_on[j], name, value)
            else:
                origin: Origin = _OURS if name in _CAMEL else "framework"
                yield f"{at}.{key}", value, origin


_CAMEL = {"timeout_seconds": "timeoutSeconds", "poll_seconds": "pollSeconds"}


def _policies(job: TrainingJob, resolved: ResolvedJob) -> Iterator[Entry]:
    success = resolved.success_policy
    tracked = [role.name for role in resolved.roles if role.tracked]
    value = {
        "operator": success.operator,
        "targetRoles": list(success.target_roles) or tracked,
    }
    yield "spec.successPolicy", value, "user" if job.spec.success_policy else "framework"
    failure = job.spec.failure_policy
    if failure is None:
        yield "spec.failurePolicy.operator", resolved.failure_policy.operator, _OURS
    else:
        yield _ours("spec.failurePolicy.operator", failure, "operator", failure.operator)


def _restart(job: TrainingJob, resolved: ResolvedJob) -> Iterator[Entry]:
    own, made = job.spec.restart, resolved.restart
    yield _theirs("spec.restart.scope", own, "scope", made.scope)
    yield _ours("spec.restart.maxRestarts", own, "max_restarts", made.max_restarts)
    window = own.window.model_dump(by_alias=True) if own.window else None
    yield _ours("spec.restart.window", own, "window", window)
    backoff = own.backoff
    for name, value in (
        ("initial_seconds", made.backoff_initial_seconds),
        ("factor", made.backoff_factor),
        ("max_seconds", made.backoff_max_seconds),
    ):
        key = _camel(type(backoff), name)
        yield _ours(f"spec.restart.backoff.{key}", backoff, name, value)
    yield _theirs("spec.restart.exitCodes", own, "exit_codes", _table(made.exit_codes))
    yield _ours("spec.restart.then", own, "then", made.then)
    yield _ours("spec.restart.maxFreshJobs", own, "max_fresh_jobs", made.max_fresh_jobs)
    yield _ours("spec.restart.freshFrom", own, "fresh_from", made.fresh_from)
    timeout = made.ready_timeout_seconds
    yield _ours("spec.restart.readyTimeoutSeconds", own, "ready_timeout_seconds", timeout)
    growth = own.on_out_of_memory.model_dump(by_alias=True) if own.on_out_of_memory else None
    yield _ours("spec.restart.onOutOfMemory", own, "on_out_of_memory", growth)
    kept = made.keep_failed_seconds
    yield _ours("spec.restart.keepFailedSeconds", own, "keep_failed_seconds", kept)


def _table(table: ExitCodeTable) -> Any:
    if table.name != "custom":
        return table.name
    return {"retryable": list(table.retryable), "permanent": list(table.permanent)}


def _scheduling(job: TrainingJob, resolved: ResolvedJob) -> Iterator[Entry]:
    own, made = job.spec.scheduling_policy, resolved.scheduling
    for name, value in (
        ("gang", made.gang),
        ("min_available", resolved.gang_size),
        ("startup", own.startup),
        ("priority", made.priority),
        ("schedule_timeout_seconds", made.schedule_timeout_seconds),
        ("never_fits", made.never_fits),
        ("excluded_nodes", own.excluded_nodes),
        ("preemption_policy", own.preemption_policy),
    ):
        yield _ours(f"spec.schedulingPolicy.{_camel(type(own), name)}", own, name, value)
    unfit = own.unfit_nodes
    for name in ("action", "max_moves", "conditions", "taints", "labels"):
        key = _camel(type(unfit), name)
        known = made.unfit_nodes.action if name == "action" else getattr(unfit, name)
        yield _ours(f"spec.schedulingPolicy.unfitNodes.{key}", unfit, name, known)


def _preflight(job: TrainingJob, resolved: ResolvedJob) -> Iterator[Entry]:
    own, made = job.spec.preflight, resolved.preflight
    if own is None or made is None:
        return
    timeout = made.timeout_seconds
    yield _ours("spec.preflight.timeoutSeconds", own, "timeout_seconds", timeout)
    if own.network is not None:
        wait = own.network.wait_seconds
        yield _ours("spec.preflight.network.waitSeconds", own.network, "wait_seconds", wait)


def _checkpoint(job: TrainingJob, resolved: ResolvedJob) -> Iterator[Entry]:
    own, made = job.spec.checkpoint, resolved.checkpoint
    if own is None or made is None:
        return
    if not {"every_seconds", "every_steps", "every"} & own.model_fields_set:
        yield "spec.checkpoint.everySeconds", SaveEverySeconds().seconds, _OURS
    yield _ours("spec.checkpoint.keep", own, "keep", own.keep)
    yield _ours("spec.checkpoint.resume", own, "resume", made.to_document()["resume"])


def _ours(field: str, model: Model, name: str, value: Any) -> Entry:
    """Return an entry whose default is this package's."""
    return field, value, "user" if _is_set(model, name) else _OURS


def _theirs(field: str, model: Model, name: str, value: Any) -> Entry:
    """Return an entry whose default is the framework's."""
    return field, value, "user" if _is_set(model, name) else "framework"


def _is_set(model: Model, name: str) -> bool:
    return name in model.model_fields_set and getattr(model, name) is not None


def _camel(model: type[Model], name: str) -> str:
    return model.model_fields[name].alias or name


def _command(role: ResolvedRole) -> list[str] | None:
    for container in (role.template.get("spec") or {}).get("containers") or ():
        if container.get("name") == role.container:
            return container.get("command")  # type: ignore[no-any-return] # plain JSON data
    return None
