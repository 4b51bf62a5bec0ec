"""A job and its framework become one resolved job: defaults filled in, templates merged, checked.

Pure apart from the hook of an installed framework. What needs the dependency graph (waves, the
choice of `startup`) is proved later by `control`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from airflow_training.documents.base import Model
from airflow_training.documents.models import TrainingJobSpec
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.policies import ExitCodes
from airflow_training.documents.quantities import parse_quantity
from airflow_training.documents.resolved import (
    PREFLIGHT_PORT,
    ExitCodeTable,
    FailureRule,
    FileTemplate,
    MemoryGrowth,
    ResolvedFailurePolicy,
    ResolvedJob,
    ResolvedPreflight,
    ResolvedRole,
    ResolvedSpot,
    ResolvedSuccessPolicy,
    RestartRules,
    Scheduling,
    UnfitNodePolicy,
)
from airflow_training.documents.resolved_blocks import (
    ResolvedCheckpoint,
    ResolvedCode,
    ResolvedData,
    ResolvedEnvironment,
    ResolvedLogPattern,
)
from airflow_training.documents.roles import Role
from airflow_training.errors import Problem
from airflow_training.frameworks.dependencies import dependencies_of
from airflow_training.frameworks.exit_codes import TABLES
from airflow_training.frameworks.judge import FrameworkFacts, judge
from airflow_training.frameworks.model import ExitCodeDefinition as FrameworkExitCodes
from airflow_training.frameworks.model import (
    FrameworkSpec,
)
from airflow_training.frameworks.network_policies import port_problems, resolve_policy
from airflow_training.frameworks.pods import (
    container_env,
    merge_role_template,
    ports_of,
    training_container,
)
from airflow_training.frameworks.registry import LoadedFramework
from airflow_training.frameworks.runtime_facts import RuntimeFacts

__all__ = ["resolve"]

_PREFLIGHT_NUMBER = 29399
"""Of the port, unless the role has one of that number."""


def resolve(
    job: TrainingJob,
    loaded: LoadedFramework,
    *,
    runtime: RuntimeFacts,
    variables: Mapping[str, Any] | None = None,
    base_dir: str = "",
    document: Mapping[str, Any] | None = None,
) -> tuple[ResolvedJob, list[Problem]]:
    """Return the job after everything its framework says about it, and what it refuses.

    With problems the job is only good enough to look for more of them.

    Args:
        job: as parsed; only what the user set counts as theirs.
        loaded: the framework it names.
        runtime: what is known of the runtime, already chosen.
        variables: what template expressions see (`params`, `run_id`, ...).
        base_dir: folder of the job file, absolute; "" where there is none.
        document: the document as written, for `export`.
    """
    spec = job.spec
    framework = loaded.framework.spec
    facts, problems = judge(job, loaded, runtime=runtime)
    roles = []
    offset = 0
    present = {role.name for role in spec.roles}
    for role in facts.ordered:
        definition = facts.definitions[role.name]
        template = merge_role_template(
            spec,
            role,
            definition,
            framework,
            layers=facts.layers(role.name),
            command_prefix=facts.command_prefix(role.name),
            runtime=runtime.name,
        )
        problems += _nothing_to_start(role, facts, template, by=loaded.framework.name)
        ports = ports_of(template, framework, definition)
        problems += _nowhere_to_measure(role, ports, job)
        resolved = ResolvedRole(
            name=role.name,
            replicas=role.replicas,
            min_replicas=role.min_replicas,
            max_replicas=role.max_replicas,
            depends_on=dependencies_of(role, framework.role(role.name), present=present),
            restart_policy=role.restart_policy
            or definition.restart_policy
            or framework.restart_policy,
            backoff_limit=role.backoff_limit,
            max_restarts=role.max_restarts,
            min_succeeded=role.min_succeeded,
            min_failed=role.min_failed,
            tracked=definition.tracked if role.tracked is None else role.tracked,
            container=framework.container,
            ports=_with_preflight_port(ports, job),
            spot=_spot(role),
            warm_spares=role.warm_spares,
            template=template,
            env=_environment(role.name, facts, template),
            files=_files(role.name, facts),
            rank_offset=offset if definition.ranked else None,
            chief=role.name == facts.chief,
        )
        roles.append(resolved)
        if definition.ranked:
            offset += role.replicas
    ports_by_role = {role.name: role.ports for role in roles}
    problems += port_problems(spec.roles, ports_by_role)
    policies = {role.name: resolve_policy(role, ports_by_role) for role in spec.roles}
    roles = [replace(role, network_policy=policies[role.name]) for role in roles]
    answer = _assemble(
        job,
        loaded,
        facts=facts,
        roles=tuple(roles),
        runtime=runtime.name,
        variables=variables or {},
        base_dir=base_dir,
        document=document,
    )
    if framework.hook and loaded.may_hook:
        answer = _run_hook(framework.hook, answer)
    return answer, problems


def _nothing_to_start(
    role: Role, facts: FrameworkFacts, template: Mapping[str, Any], *, by: str
) -> list[Problem]:
    """Return `missing` where words of the framework start a command that nobody has written."""
    prefix = facts.command_prefix(role.name)
    container = training_container(template, facts.framework)
    if not (prefix and role.replicas) or [
        *container.get("command", ()),
        *(container.get("args") or ()),
    ] != list(prefix):
        return []
    return [
        Problem(
            code="missing",
            field="spec.command",
            message=f"the framework {by} needs a command for '{role.name}'",
            hint=facts.definitions[role.name].description,
        )
    ]


# --- environment and files ----------------------------------------------------------------------


def _environment(role: str, facts: FrameworkFacts, template: Mapping[str, Any]) -> dict[str, str]:
    """Return name -> template of what the framework sets in this role."""
    container = training_container(template, facts.framework)
    users = {entry.get("name") for entry in container_env(container)}
    return {
        env.name: env.value
        for env in facts.framework.env
        if facts.applies(env, role) and not (env.overridable and env.name in users)
    }


def _files(role: str, facts: FrameworkFacts) -> tuple[FileTemplate, ...]:
    return tuple(
        FileTemplate(
            path=file.path,
            content=file.content,
            reads_addresses=file.live,
            executable=file.executable,
        )
        for file in facts.framework.files
        if facts.applies(file, role)
    )


# --- the whole job ------------------------------------------------------------------------------


def _assemble(
    job: TrainingJob,
    loaded: LoadedFramework,
    *,
    facts: FrameworkFacts,
    roles: tuple[ResolvedRole, ...],
    runtime: str,
    variables: Mapping[str, Any],
    base_dir: str,
    document: Mapping[str, Any] | None,
) -> ResolvedJob:
    spec, framework = job.spec, loaded.framework.spec
    scheduling = spec.scheduling_policy
    spread = scheduling.spread
    output_role = framework.output_role
    if output_role not in {role.name for role in roles if role.replicas}:
        output_role = facts.chief
    return ResolvedJob(
        name=job.metadata.name,
        namespace=job.metadata.namespace,
        labels=dict(job.metadata.labels),
        annotations=dict(job.metadata.annotations),
        framework=loaded.framework.name,
        parameters=facts.parameters,
        runtime=runtime,
        connection=spec.runtime.connection or "",
        runtime_options=spec.runtime.options,
        roles=roles,
        success_policy=_success_policy(job, framework),
        failure_policy=_failure_policy(job, framework),
        restart=_restart(job, framework, elastic=facts.elastic),
        scheduling=Scheduling(
            gang=scheduling.gang,
            min_available=scheduling.min_available,
            startup="ordered" if scheduling.startup == "auto" else scheduling.startup,
            queue=scheduling.queue or "",
            priority_class_name=scheduling.priority_class_name or "",
            priority=scheduling.priority,
            schedule_timeout_seconds=scheduling.schedule_timeout_seconds,
            never_fits=scheduling.never_fits,
            unfit_nodes=_unfit_nodes(job),
            preempts_lower_priority=scheduling.preemption_policy == "PreemptLowerPriority",
            avoids_excluded=scheduling.excluded_nodes == "Avoid",
            spread=spread.model_dump(by_alias=True) if spread else None,
        ),
        preflight=_preflight(job),
        active_deadline_seconds=spec.active_deadline_seconds,
        stop_until=spec.stop.until if spec.stop else "",
        stop_over=spec.stop.over if spec.stop else "rank 0",
        ttl_seconds_after_finished=_either(
            spec, "ttl_seconds_after_finished", framework.ttl_seconds_after_finished
        ),
        clean_pod_policy=_either(spec, "clean_pod_policy", framework.clean_pod_policy),
        reconcile_seconds=spec.reconcile_seconds,
        suspend=spec.suspend,
        elastic=facts.elastic,
        code=ResolvedCode.from_document(_document(spec.code)) if spec.code else None,
        environment=ResolvedEnvironment.from_document(_document(spec.environment))
        if spec.environment
        else None,
        data=ResolvedData.from_document(_document(spec.data)),
        checkpoint=ResolvedCheckpoint.from_document(_document(spec.checkpoint))
        if spec.checkpoint
        else None,
        output_uri=spec.output.uri if spec.output else framework.output_uri or "",
        output_continuous=bool(spec.output and spec.output.continuous),
        output_role=(spec.output.role if spec.output else None) or output_role or facts.chief,
        role_variable=framework.role_variable,
        variables=dict(variables),
        log_patterns=tuple(
            ResolvedLogPattern.from_document(each.model_dump())
            for each in (*spec.logs.patterns, *framework.logs.patterns)
        ),
        base_dir=base_dir,
        document=dict(document) if document is not None else job.to_dict(),
    )


def _preflight(job: TrainingJob) -> ResolvedPreflight | None:
    own = job.spec.preflight
    if own is None:
        return None
    gpus, disk, network = own.gpus, own.disk, own.network
    return ResolvedPreflight(
        timeout_seconds=own.timeout_seconds or job.spec.restart.ready_timeout_seconds,
        gpus=gpus.count if gpus else None,
        gpu_free_bytes=_bytes(gpus.free_memory) if gpus else 0,
        disk_path=(disk.path or "") if disk else "",
        disk_free_bytes=_bytes(disk.free) if disk else 0,
        disk_bandwidth=_bytes(disk.bandwidth) if disk else 0,
        network=network is not None,
        network_bandwidth=_bytes(network.bandwidth) if network else 0,
        network_latency=(network.latency_milliseconds or 0.0) / 1000 if network else 0.0,
        network_wait_seconds=network.wait_seconds if network else 0.0,
    )


def _bytes(quantity: str | None) -> int:
    return int(parse_quantity(quantity)) if quantity else 0


def _unfit_nodes(job: TrainingJob) -> UnfitNodePolicy:
    own = job.spec.scheduling_policy.unfit_nodes
    return UnfitNodePolicy(
        # what keeps no checkpoint would lose all its work by a move
        action=own.action or ("Move" if job.spec.checkpoint else "Warn"),
        max_moves=own.max_moves,
        conditions=None if own.conditions is None else tuple(own.conditions),
        taints=None if own.taints is None else tuple(own.taints),
        labels=dict(own.labels),
    )


def _spot(role: Role) -> ResolvedSpot | None:
    own = role.spot
    if own is None:
        return None
    return ResolvedSpot(from_index=role.replicas - own.replicas, label=own.label, value=own.value)


def _measures_network(job: TrainingJob) -> bool:
    return job.spec.preflight is not None and job.spec.preflight.network is not None


def _nowhere_to_measure(role: Role, ports: Mapping[str, int], job: TrainingJob) -> list[Problem]:
    """Say that instances without ports have no address at which they could ask each other."""
    if ports or role.replicas < 2 or not _measures_network(job):
        return []
    return [
        Problem(
            code="not_supported",
            field="spec.preflight.network",
            message=f"the instances of role {role.name} have no port, and so no address to ask each other at",
            hint="give the role ports: [{name: main, containerPort: 2345}]",
        )
    ]


def _with_preflight_port(ports: Mapping[str, int], job: TrainingJob) -> Mapping[str, int]:
    """Return the ports of a role with the one at which its instances measure the network, last."""
    if not ports or not _measures_network(job):
        return ports
    number = _PREFLIGHT_NUMBER
    while number in ports.values():
        number += 1
    return {**ports, PREFLIGHT_PORT: number}


def _either(spec: TrainingJobSpec, name: str, default: Any) -> Any:
    """Return what the job says of itself, else what its framework does."""
    own = getattr(spec, name)
    given = name in spec.model_fields_set and own is not None
    return own if given or default is None else default


def _document(block: Model | None) -> dict[str, Any]:
    return {} if block is None else block.model_dump(by_alias=True, exclude_none=True)


def _success_policy(job: TrainingJob, framework: FrameworkSpec) -> ResolvedSuccessPolicy:
    own = job.spec.success_policy
    if own is not None:
        return ResolvedSuccessPolicy(operator=own.operator, target_roles=tuple(own.target_roles))
    present = {role.name for role in job.spec.roles if role.replicas}
    default = framework.success_policy
    targets = tuple(role for role in default.target_roles if role in present)
    return ResolvedSuccessPolicy(operator=default.operator, target_roles=targets)


def _failure_policy(job: TrainingJob, framework: FrameworkSpec) -> ResolvedFailurePolicy:
    own = job.spec.failure_policy
    if own is None:
        default = framework.failure_policy
        present = {role.name for role in job.spec.roles}
        return ResolvedFailurePolicy(
            operator=default.operator,
            target_roles=tuple(role for role in default.target_roles if role in present),
            rules=tuple(
                FailureRule(
                    name=rule.name,
                    action=rule.action,
                    on_classes=tuple(rule.on_classes),
                    on_reasons=tuple(rule.on_reasons),
                    on_exit_codes=tuple(rule.on_exit_codes),
                    target_roles=tuple(rule.target_roles),
                )
                for rule in default.rules
            ),
        )
    return ResolvedFailurePolicy(
        operator=own.operator,
        target_roles=tuple(own.target_roles),
        rules=tuple(
            FailureRule(
                name=rule.name or f"rule {i}",
                action=rule.action,
                on_classes=tuple(rule.on_classes),
                on_reasons=tuple(rule.on_reasons),
                on_exit_codes=tuple(rule.on_exit_codes.values) if rule.on_exit_codes else (),
                exit_code_operator=rule.on_exit_codes.operator if rule.on_exit_codes else "In",
                on_message_pattern=rule.on_message_pattern,
                target_roles=tuple(rule.target_roles),
            )
            for i, rule in enumerate(own.rules)
        ),
    )


def _restart(job: TrainingJob, framework: FrameworkSpec, *, elastic: bool) -> RestartRules:
    own = job.spec.restart
    default = framework.restart.scope
    if elastic and framework.elastic is not None:
        default = framework.elastic.scope
    codes: str | ExitCodes | FrameworkExitCodes = framework.exit_codes
    if "exit_codes" in own.model_fields_set:
        codes = own.exit_codes
    return RestartRules(
        scope=own.scope or default,
        max_restarts=own.max_restarts,
        window_seconds=own.window.seconds if own.window else None,
        window_max_restarts=own.window.max_restarts if own.window else None,
        backoff_initial_seconds=own.backoff.initial_seconds,
        backoff_factor=own.backoff.factor,
        backoff_max_seconds=own.backoff.max_seconds,
        exit_codes=TABLES[codes]
        if isinstance(codes, str)
        else ExitCodeTable(
            name="custom", retryable=tuple(codes.retryable), permanent=tuple(codes.permanent)
        ),
        then=own.then or ("FreshJob" if job.spec.checkpoint else "Fail"),
        max_fresh_jobs=own.max_fresh_jobs,
        fresh_from=own.fresh_from,
        ready_timeout_seconds=own.ready_timeout_seconds,
        on_out_of_memory=MemoryGrowth(
            factor=own.on_out_of_memory.factor,
            up_to_bytes=int(parse_quantity(own.on_out_of_memory.up_to)),
        )
        if own.on_out_of_memory
        else None,
        keep_failed_seconds=own.keep_failed_seconds,
    )


def _run_hook(hook: str, job: ResolvedJob) -> ResolvedJob:
    """Return what the hook of an installed framework makes of the job."""
    from importlib import import_module

    module, _, name = hook.partition(":")
    made = getattr(import_module(module), name)(job)
    if not isinstance(made, ResolvedJob):
        raise TypeError(f"{hook} must return a ResolvedJob, not {type(made).__name__}")
    return made
