"""Jobs, frameworks and addresses that show only what a case is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import Problem
from airflow_training.frameworks.naming import service_host
from airflow_training.frameworks.pods import training_container
from airflow_training.frameworks.registry import LoadedFramework, load_for
from airflow_training.frameworks.render import InstancePlace, Rendering
from airflow_training.frameworks.resolve import resolve
from airflow_training.frameworks.runtime_facts import RuntimeFacts
from airflow_training.runtimes.registry import adapter_of


@dataclass(frozen=True)
class Place:
    """An address: what a runtime fixes in `prepare`."""

    host: str
    ports: Mapping[str, int] = field(default_factory=dict)


def a_document(framework: Any, roles: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a job; a role is its number of instances or its fields."""
    return {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "digits"},
        "spec": {
            "framework": framework,
            "command": ["python", "train.py"],
            "roles": [
                {"name": name, "replicas": wanted}
                if isinstance(wanted, int)
                else {"name": name, **wanted}
                for name, wanted in roles.items()
            ],
            **spec,
        },
    }


def a_job(framework: Any, roles: Mapping[str, Any], **spec: Any) -> TrainingJob:
    return TrainingJob.model_validate(a_document(framework, roles, **spec), by_alias=True)


def resolve_job(
    job: TrainingJob,
    *,
    runtime: str | RuntimeFacts = "kubernetes",
    loaded: LoadedFramework | None = None,
    **more: Any,
) -> tuple[ResolvedJob, list[Problem]]:
    """Return what a framework makes of a job. `runtime`: one of ours by name, or what is known of another."""
    facts = adapter_of(runtime).facts if isinstance(runtime, str) else runtime
    loaded = loaded or load_for(job, base_dir="", fetch=False)
    return resolve(job, loaded, runtime=facts, **more)


def a_resolved_job(
    framework: Any, roles: Mapping[str, Any], *, runtime: str = "kubernetes", **spec: Any
) -> ResolvedJob:
    """Return the resolved job; fails on a job with mistakes."""
    made, problems = resolve_job(a_job(framework, roles, **spec), runtime=runtime)
    assert not problems, list(map(str, problems))
    return made


def container_of(job: ResolvedJob, role: str) -> Mapping[str, Any]:
    """Return the container of a role that trains."""
    made = job.role(role)
    return training_container(made.template, None, name=made.container)


def codes(found: Sequence[Any]) -> list[tuple[str, str]]:
    return [(problem.code, problem.field) for problem in found]


def addresses_of(job: ResolvedJob, *, most: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return one address per instance: service names, or loopback ports counted from 40000."""
    known: dict[str, list[Place]] = {}
    port = 40000
    for role in job.roles:
        known[role.name] = []
        for index in range((most or {}).get(role.name, role.replicas)):
            if job.runtime == "local":
                place = Place("127.0.0.1", {name: port + i for i, name in enumerate(role.ports)})
                port += max(len(role.ports), 1)
            else:
                host = service_host("digits", job.namespace, role.name, index)
                place = Place(host, dict(role.ports))
            known[role.name].append(place)
    return known


def rendering_of(
    job: ResolvedJob,
    role: str,
    index: int = 0,
    *,
    replicas: Mapping[str, int] | None = None,
    **place: int,
) -> Rendering:
    sizes = {each.name: (replicas or {}).get(each.name, each.replicas) for each in job.roles}
    return Rendering(
        job=job,
        place=InstancePlace(role=role, index=index, **place),
        run_id="r1",
        prefix="digits",
        addresses=addresses_of(job, most=sizes),
        replicas=sizes,
        runtime=adapter_of(job.runtime).facts,
        output_dir=adapter_of(job.runtime).output_dir,
    )


def environment_of(job: ResolvedJob, role: str, index: int = 0, **more: Any) -> dict[str, str]:
    """Return what the framework sets: the environment without our own TRAINING_ names."""
    env = rendering_of(job, role, index, **more).environment()
    return {
        name: value
        for name, value in env.items()
        if not name.startswith("TRAINING_") or name == "TRAINING_UPDATE_INTERVAL"
    }
