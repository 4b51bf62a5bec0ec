"""What a job would create, without creating anything: the answer of `explain`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow_training.admission.check import AdmissionResponse
from airflow_training.control.expected_start import expected_start
from airflow_training.control.gang import StartupChoice
from airflow_training.control.policies import required_count
from airflow_training.control.waves import waves
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.documents.schedules import cron_of, next_starts, start_of, zone_of
from airflow_training.documents.text import counted
from airflow_training.errors import InputError, Problem
from airflow_training.frameworks.ranks import number
from airflow_training.runtimes.registry import adapter_of
from airflow_training.runtimes.rendering import expected_addresses, render_instance

__all__ = ["explain"]

_MOST_INSTANCES = 100
"""Shown of each role."""
_STARTS = 3
_MOST_CHARACTERS = 8 * 1024 * 1024
"""Of all environments: where each holds the addresses of all others, they grow with the square."""


def explain(
    checked: AdmissionResponse,
    *,
    now: datetime,
    run_uid: str = "",
    run_id: str = "",
    waits: Sequence[float] = (),
) -> dict[str, Any]:
    """Return the answer of `airflow-training explain` for a job without mistakes.

    Args:
        checked: of `admission.check.check_file` with the runtime that is asked about.
        now: after which the next starts of a schedule are listed.
        run_uid: opaque id of a run whose hash the names shall carry; "" leaves it out.
        run_id: what instances find as TRAINING_RUN_ID.
        waits: of earlier runs of the job, from submission until all of it ran.

    Raises InputError with the mistakes of a job that has some.
    """
    laid = checked.layout
    if laid is None:
        raise InputError(problems=checked.problems, path=checked.path)
    job = laid.resolved
    run = RunRef(uid=run_uid, job=job.name, namespace=job.namespace, controller="")
    prefix = run.prefix if run_uid else job.name
    instances = _instances(job, run, prefix=prefix, run_id=run_id)
    return {
        "job": job.name,
        "framework": job.framework,
        "environment": None if job.environment is None else job.environment.to_document(),
        "schedule": _schedule(checked.job, now),
        "expectedStart": _expected_start(waits),
        "waves": waves(job),
        "gang": _gang(job, laid.startup),
        "roles": _roles(job),
        "successPolicy": _success_policy(job),
        "trainer": _trainer(job),
        "instances": instances,
        "services": [*adapter_of(job.runtime).services(job, prefix)],
        "defaults": [dict(entry) for entry in laid.defaults],
        "warnings": [
            _problem(warning)
            for warning in (*checked.warnings, *_left_out(job.instances - len(instances)))
        ],
    }


def _trainer(job: ResolvedJob) -> dict[str, Any] | None:
    """Return the network that a job trains without a script; None for others."""
    trainer = job.trainer
    if trainer is None:
        return None
    network = trainer.network
    return {
        "network": network.document["metadata"]["name"],
        "digest": network.digest,
        "saved": network.name or None,
        "version": network.version,
        "epochs": trainer.settings["epochs"],
        "batchSize": trainer.settings["batchSize"],
        "format": trainer.settings["data"]["format"],
    }


def _schedule(job: TrainingJob | None, now: datetime) -> dict[str, Any] | None:
    """Return the next starts of a job that a clock starts; None for others."""
    dag = job.spec.dag if job is not None else None
    cron = cron_of(dag.schedule) if dag is not None else ""
    if dag is None or not cron:
        return None
    zone = zone_of(dag.start_date, dag.timezone)
    after = now
    if dag.start_date:  # itself a moment to start at
        start = start_of(dag.start_date, dag.timezone)
        after = max(now, start - timedelta(microseconds=1))
    return {
        "cron": cron,
        "timezone": str(zone),
        "next": [
            {
                "inZone": each.isoformat(timespec="seconds"),
                "utc": each.astimezone(timezone.utc).isoformat(timespec="seconds"),
            }
            for each in next_starts(cron, zone, after=after, count=_STARTS)
        ],
    }


def _expected_start(waits: Sequence[float]) -> dict[str, Any] | None:
    expected = expected_start(waits)
    if expected is None:
        return None
    return {
        "medianSeconds": expected.median_seconds,
        "shortestSeconds": expected.shortest_seconds,
        "longestSeconds": expected.longest_seconds,
        "runs": expected.runs,
        "message": str(expected),
    }


def _left_out(count: int) -> list[Problem]:
    if not count:
        return []
    message = f"{counted(count, 'more instance')}, of the same kinds, not shown"
    return [Problem(code="too_many", field="spec.roles", value=count, message=message)]


def _gang(job: ResolvedJob, choice: StartupChoice | None) -> dict[str, Any]:
    scheduling = job.scheduling
    return {
        "kind": scheduling.gang,
        "minAvailable": job.gang_size,
        "startup": scheduling.startup,
        "reason": choice.reason if choice else "",
        "advice": adapter_of(job.runtime).gang_advice(job),
        "idleInstanceSecondsBound": choice.idle_instance_seconds_bound if choice else None,
    }


def _roles(job: ResolvedJob) -> list[dict[str, Any]]:
    return [
        {
            "name": role.name,
            "replicas": role.replicas,
            "dependsOn": [dependency.role for dependency in role.depends_on],
            "restartPolicy": role.restart_policy,
            "minSucceeded": required_count(role.min_succeeded, role.replicas),
            "minFailed": required_count(role.min_failed, role.replicas),
            "tracked": role.tracked,
        }
        for role in job.roles
    ]


def _success_policy(job: ResolvedJob) -> dict[str, Any]:
    policy = job.success_policy
    targets = policy.target_roles or [role.name for role in job.roles if role.tracked]
    return {"operator": policy.operator, "targetRoles": list(targets)}


def _instances(job: ResolvedJob, run: RunRef, *, prefix: str, run_id: str) -> list[dict[str, Any]]:
    addresses = expected_addresses(job, prefix)
    shown: list[dict[str, Any]] = []
    characters = 0
    for role in job.roles:
        for index in range(min(role.replicas, _MOST_INSTANCES)):
            if characters > _MOST_CHARACTERS:
                return shown
            spec = render_instance(
                job, run, addresses, role=role.name, index=index, prefix=prefix, run_id=run_id
            )
            characters += sum(map(len, spec.env.values())) + sum(map(len, spec.files.values()))
            shown.append(
                {
                    "role": role.name,
                    "index": index,
                    "rank": number(job, role.name, index).rank,
                    "name": spec.name,
                    "hostname": addresses[role.name][index].host,
                    "container": spec.container,
                    "image": spec.image,
                    "command": list(spec.command),
                    "args": list(spec.args),
                    "ports": dict(spec.ports),
                    "env": dict(spec.env),
                    "files": {**spec.files, **spec.live_files},
                }
            )
    return shown


def _problem(problem: Problem) -> Mapping[str, Any]:
    return {**dataclasses.asdict(problem), "allowed": list(problem.allowed)}
