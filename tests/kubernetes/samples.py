"""Runs, instances and pods for the tests of the Kubernetes adapter."""

from __future__ import annotations

import dataclasses
from typing import Any

from airflow_training.control.attempts import AttemptId
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole, RunRef, Scheduling
from airflow_training.runtimes.kubernetes.facts import RunFacts, facts_of
from airflow_training.runtimes.kubernetes.pods import PodOptions, pod_of
from airflow_training.runtimes.port import InstanceRef, InstanceSpec
from airflow_training.runtimes.registry import keeps_size
from airflow_training.runtimes.rendering import expected_addresses, render_instance

RUN = RunRef(
    uid="0123456789abcdef0123", job="digits", namespace="team", controller="site-1", generation=4
)
OPTIONS = PodOptions(agent_image="agent:1", agent_config_map="digits-01234-agent-x")


def a_container(name: str = "main", **keys: Any) -> dict[str, Any]:
    return {"name": name, "image": "train:1", "command": ["python", "train.py"], **keys}


def a_role(name: str = "worker", replicas: int = 2, **keys: Any) -> ResolvedRole:
    spec = keys.pop("spec", {})
    metadata = keys.pop("metadata", {})
    container = keys.pop("main", a_container())
    template = {"metadata": metadata, "spec": {"containers": [container], **spec}}
    return ResolvedRole(name=name, replicas=replicas, template=template, **keys)


def a_job(*roles: ResolvedRole, gang: str = "none", **keys: Any) -> ResolvedJob:
    wanted = keys.pop("scheduling", {})
    return ResolvedJob(
        name="digits",
        namespace="team",
        runtime="kubernetes",
        roles=roles or (a_role(ports={"main": 2345}),),
        scheduling=Scheduling(gang=gang, keeps_size=keeps_size(gang), **wanted),
        **keys,
    )


def an_instance(
    job: ResolvedJob, role: str = "worker", index: int = 0, **keys: Any
) -> InstanceSpec:
    addresses = expected_addresses(job, RUN.prefix)
    given = (
        "live_files", "files", "replaced", "executables", "avoid_nodes", "excluded_nodes",
    )  # fmt: skip
    changes = {k: keys.pop(k) for k in given if k in keys}
    numbers = {k: keys.pop(k) for k in ("epoch", "job_attempt", "attempt") if k in keys}
    attempt = AttemptId(**numbers)
    spec = render_instance(job, RUN, addresses, role=role, index=index, attempt=attempt, **keys)
    return dataclasses.replace(spec, **changes)


def a_pod(
    job: ResolvedJob | None = None,
    role: str = "worker",
    *,
    options: PodOptions = OPTIONS,
    facts: RunFacts | None = None,
    **keys: Any,
) -> dict[str, Any]:
    job = job or a_job()
    return pod_of(
        an_instance(job, role, **keys), facts or facts_of(RUN, job), "uid-1", options=options
    )


def main_container(pod: dict[str, Any], name: str = "main") -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in pod["spec"]["containers"] if each["name"] == name)
    return found


def an_attempt(**keys: Any) -> InstanceRef:
    return InstanceRef(
        run=RUN,
        key=InstanceKey("worker", 3),
        attempt_id=AttemptId(epoch=1, job_attempt=2, attempt=5),
        **keys,
    )
