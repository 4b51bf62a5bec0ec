"""A JobSet (`jobset.x-k8s.io/v1alpha2`): each of its replicated jobs becomes a role, or a role a job.

What a JobSet counts are Jobs. A Job of one pod is an instance; a Job of several pods is a role, as they fail and succeed
together, so a replicated job with several of these becomes several roles, `NAME-0`, `NAME-1`, ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.batch_job import (
    COMPLETION_INDEX,
    CONTAINER,
    end_of_template,
    first_port,
    size_of,
)
from airflow_training.interchange.jobset_policies import (
    deadline_of,
    limit_of,
    restart_of,
    rules_of,
    success_of,
)
from airflow_training.interchange.metadata import (
    job_document,
    managed_by,
    queue_of_labels,
    suspended,
)
from airflow_training.interchange.pod_templates import HostNames, PodRules, translate_template
from airflow_training.interchange.replicated_jobs import ReplicatedJob

__all__ = ["translate_jobset"]

FOR_EVER = 31_536_000
"""A JobSet waits for its dependencies without an end; a year is as good."""
_LABEL = "jobset.sigs.k8s.io/"
_MAX_ROLES = 1000


def translate_jobset(source: SourceField) -> dict[str, Any]:
    """Return our document for a JobSet."""
    spec = source["spec"].block()
    jobs = list(_replicated(spec["replicatedJobs"]))
    if not jobs:
        source.accounts.mistake(spec["replicatedJobs"].loc, "missing", "a JobSet needs a job")
    restart = restart_of(spec["failurePolicy"].block(), jobs)
    after = _start_order(spec["startupPolicy"].block(), jobs)
    roles = [
        role for each in jobs for role in _roles(each, jobs, source, after, scope=restart["scope"])
    ]
    success = success_of(spec["successPolicy"].block(), jobs, roles)
    rules = rules_of(spec["failurePolicy"]["rules"], jobs, restart)
    _network(spec["network"].block(), source["metadata"]["name"].text())
    spec["coordinator"].refuse("no instance carries the annotation with its address")
    spec["volumeClaimPolicies"].refuse(
        "volumes are not made with a run: name a claim that is there"
    )
    managed_by(spec["managedBy"], own="jobset.sigs.k8s.io/jobset-controller")
    ttl = spec["ttlSecondsAfterFinished"]
    ttl.translate(
        ("spec", "ttlSecondsAfterFinished"),
        "the pods go as they did; the run stays in the history, with its logs",
    )
    queue = queue_of_labels(source)
    return job_document(
        source,
        {
            "framework": "custom",
            "roles": roles,
            "restart": restart,
            **({"successPolicy": success} if success else {}),
            **({"failurePolicy": {"rules": rules}} if rules else {}),
            **({"schedulingPolicy": queue} if queue else {}),
            **deadline_of(jobs),
            **({"ttlSecondsAfterFinished": ttl.whole(0)} if ttl else {}),
            **suspended(spec["suspend"]),
        },
    )


def _replicated(source: SourceField) -> Iterator[ReplicatedJob]:
    first = 0
    for each in source.items():
        name = each["name"].text()
        if not name:
            source.accounts.mistake(each.loc, "missing", "a replicated job needs a name")
        replicas = each["replicas"].whole(1)
        size = size_of(
            each.at("template", "spec").block(), ("spec", "roles", first), always_indexed=True
        )
        jobs = ReplicatedJob(each, name, replicas, size, first)
        if len(jobs.roles) > _MAX_ROLES:
            message = f"{len(jobs.roles)} Jobs of several pods are more roles than a job may have"
            source.accounts.mistake(each["replicas"].loc, "out_of_range", message)
            continue
        yield jobs
        first += len(jobs.roles)


# --- roles --------------------------------------------------------------------------------------


def _roles(
    each: ReplicatedJob,
    jobs: Sequence[ReplicatedJob],
    source: SourceField,
    after: dict[str, list[dict[str, Any]]],
    *,
    scope: str,
) -> Iterator[dict[str, Any]]:
    to: Loc = ("spec", "roles", each.first)
    each.source.anchor(to)
    each.source["name"].keep((*to, "name"))
    count, replicas = each.size.instances, each.source["replicas"]
    if len(each.roles) > 1:
        why = f"{each.replicas} Jobs of {count} pods: a role each, as its pods end together"
        replicas.settle("translated", 1, to=("spec", "roles"), why=why)
        each.source["name"].translate((*to, "name"), "the number of the Job stands behind it")
    else:
        why = "a Job of one pod is an instance" if each.single else "one Job: its pods are the role"
        replicas.settle("translated", 1, to=(*to, "replicas"), why=why)
    group = each.source["groupName"]
    if group.text("default") != "default":
        group.refuse("no pod is labelled with its group")
    else:
        group.drop("only names what labels say")
    depends = [*after.get(each.name, ()), *_depends(each, jobs)]
    metadata = each.source.at("template", "metadata").block()
    for key in metadata.names():
        metadata[key].refuse("there are no Jobs that could have labels, annotations or names")
    end_of_template(each.spec, to)
    limit = limit_of(each, jobs, scope=scope)
    for number, name in enumerate(each.roles):
        place: Loc = ("spec", "roles", each.first + number)
        yield {
            "name": name,
            "replicas": each.replicas if each.single else count,
            "restartPolicy": "OnFailure",
            **limit,
            **({"dependsOn": depends} if depends else {}),
            "template": translate_template(
                each.spec["template"],
                (*place, "template"),
                _pod_rules(each, jobs, source, number),
            ),
        }
    # said of the first role last, so that the report names that one
    if len(each.roles) > 1:
        translate_template(
            each.spec["template"], (*to, "template"), _pod_rules(each, jobs, source, 0)
        )


def _pod_rules(
    each: ReplicatedJob, jobs: Sequence[ReplicatedJob], source: SourceField, number: int
) -> PodRules:
    job = source["metadata"]["name"].text("\0")
    before = sum(other.replicas for other in jobs if other.first < each.first)
    of_pod = "0" if each.single else "$(TRAINING_INDEX)"
    of_job = "$(TRAINING_INDEX)" if each.single and each.replicas > 1 else str(number)
    named = {
        COMPLETION_INDEX: of_pod,
        f"{_LABEL}global-replicas": str(sum(other.replicas for other in jobs)),
        f"{_LABEL}job-index": of_job,
        f"{_LABEL}jobset-name": job,
        f"{_LABEL}replicatedjob-name": each.name,
        f"{_LABEL}replicatedjob-replicas": str(each.replicas),
        f"{_LABEL}restart-attempt": "$(TRAINING_JOB_ATTEMPT)",
    }
    if not before or of_job != "$(TRAINING_INDEX)":
        global_index = of_job if not before else str(before + number)
        named[f"{_LABEL}job-global-index"] = global_index
    names = "|".join(re.escape(other.name) for other in jobs)
    ports: dict[str, int] = {}
    for other in jobs:
        port = first_port(other.spec["template"], "")
        ports |= {role: port[""] for role in other.roles if port}

    def instance(match: re.Match[str]) -> tuple[str, int] | None:
        other = next(one for one in jobs if one.name == match["jobs"])
        job_index, pod = int(match["job"]), int(match["pod"])
        if job_index >= other.replicas or pod >= other.size.instances:
            return None
        if other.single:
            return other.name, job_index
        return other.roles[job_index], pod

    return PodRules(
        ours=CONTAINER,
        env={"JOB_COMPLETION_INDEX": of_pod} if each.size.indexed else {},
        named=named,
        hosts=HostNames(
            re.compile(
                rf"(?<![\w-])(?P<host>{re.escape(job)}-(?P<jobs>{names})-(?P<job>\d+)-(?P<pod>\d+)"
                r"(?:\.[a-z][\w.-]*)?)(?![\w-])(?::(?P<port>\d+))?"
            ),
            instance,
        ),
        ports=ports,
    )


# --- order --------------------------------------------------------------------------------------


def _start_order(
    policy: SourceField, jobs: Sequence[ReplicatedJob]
) -> dict[str, list[dict[str, Any]]]:
    """Return what each replicated job waits for because of the order in which they are listed."""
    order = policy["startupPolicyOrder"]
    if order.one_of(("AnyOrder", "InOrder"), "AnyOrder") == "AnyOrder":
        order.drop("roles without dependsOn start in any order")
        return {}
    second = jobs[1].first if len(jobs) > 1 else 0
    order.translate(
        ("spec", "roles", second, "dependsOn"), "each role waits until the one before is Ready"
    )
    return {later.name: _waits(earlier, "Ready") for earlier, later in pairwise(jobs)}


def _depends(each: ReplicatedJob, jobs: Sequence[ReplicatedJob]) -> Iterator[dict[str, Any]]:
    to: Loc = ("spec", "roles", each.first, "dependsOn")
    for dependency in each.source["dependsOn"].items():
        name = dependency["name"].text()
        status = dependency["status"].one_of(("Ready", "Complete"), "Ready")
        earlier = next((one for one in jobs if one.name == name), None)
        if earlier is None:
            allowed = [one.name for one in jobs]
            message = f"no replicated job is called {name!r}"
            each.source.accounts.mistake(
                dependency["name"].loc, "unknown_role", message, allowed=allowed
            )
            continue
        dependency.translate(to, "waits for ever there; a year here, from when the other runs")
        yield from _waits(earlier, status)


def _waits(earlier: ReplicatedJob, status: str) -> list[dict[str, Any]]:
    return [{"role": role, "status": status, "timeoutSeconds": FOR_EVER} for role in earlier.roles]


def _network(source: SourceField, name: str) -> None:
    if not source["enableDNSHostnames"].flag(default=True):
        source["enableDNSHostnames"].refuse("every instance has a host name here")
    else:
        source["enableDNSHostnames"].drop("every instance has a host name")
    if source["subdomain"].text(name) != name:
        source["subdomain"].refuse("a pod's host is named by its run, role and index")
    else:
        source["subdomain"].drop("hosts that the document names are accounted for where they stand")
    if source["publishNotReadyAddresses"].flag(default=True):
        source["publishNotReadyAddresses"].drop("addresses are published before pods are ready")
    else:
        source["publishNotReadyAddresses"].refuse("addresses are published before pods are ready")
