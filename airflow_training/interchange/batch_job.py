"""A Kubernetes Job (`batch/v1`), alone or as the template of a JobSet's jobs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.metadata import (
    job_document,
    managed_by,
    queue_of_labels,
    suspended,
)
from airflow_training.interchange.pod_templates import HostNames, PodRules, translate_template

__all__ = [
    "BACKOFF",
    "COMPLETION_INDEX",
    "CONTAINER",
    "JobSize",
    "PodFailureRule",
    "end_of_template",
    "first_port",
    "pod_failure_rules",
    "size_of",
    "translate_job",
]

CONTAINER = "main"
"""What our framework `custom` calls the training container."""
ROLE = "worker"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
BACKOFF = {"initialSeconds": 10, "factor": 2, "maxSeconds": 360}
"""A Job waits 10 s, 20 s, 40 s and so on, at most six minutes."""
_ROLE_LOC: Loc = ("spec", "roles", 0)
_RESTART: Loc = ("spec", "restart")
_REPLACED = (
    "{policy} of a Job's pods means that what fails is tried again, up to backoffLimit; here always in a new"
    " pod, so what only lay in the old one is gone"
)


@dataclass(frozen=True, slots=True)
class JobSize:
    """How many pods a Job is, and whether each has a number."""

    instances: int
    indexed: bool


def translate_job(source: SourceField) -> dict[str, Any]:
    """Return our document for a Job that stands alone: one role."""
    spec = source["spec"].block()
    job = source["metadata"]["name"].text("\0")
    size = size_of(spec, _ROLE_LOC)
    spec.anchor(_ROLE_LOC)
    role: dict[str, Any] = {"name": ROLE, "replicas": size.instances, "restartPolicy": "OnFailure"}
    restart = _restart(spec, role, size)
    _success(spec["successPolicy"].block(), role, size)
    rules = pod_failure_rules(spec["podFailurePolicy"].block(), spec["template"])
    found: list[dict[str, Any]] = []
    for each in rules:
        if each.action == "FailIndex":
            each.source.refuse("an instance cannot be given up alone by its exit code")
            continue
        action, why = _ACTIONS[each.action]
        each.source.translate(("spec", "failurePolicy", "rules", len(found)), why)
        found.append({"action": action, **each.conditions})
    end_of_template(spec, _ROLE_LOC)
    role["template"] = translate_template(
        spec["template"],
        (*_ROLE_LOC, "template"),
        PodRules(
            ours=CONTAINER,
            env={"JOB_COMPLETION_INDEX": "$(TRAINING_INDEX)"} if size.indexed else {},
            named={
                "job-name": job,
                "batch.kubernetes.io/job-name": job,
                **({COMPLETION_INDEX: "$(TRAINING_INDEX)"} if size.indexed else {}),
            },
            hosts=HostNames(
                # without a domain it is any word that ends in a number
                re.compile(
                    rf"(?<![\w-])(?P<host>{re.escape(job)}-(?P<i>\d+)\.[\w.-]+)(?::(?P<port>\d+))?"
                ),
                lambda match: (ROLE, int(match["i"])),
            ),
            ports=first_port(spec["template"], ROLE),
        ),
    )
    return job_document(
        source,
        {
            "framework": "custom",
            "roles": [role],
            "restart": restart,
            **({"failurePolicy": {"rules": found}} if found else {}),
            **(_queue(source)),
            **_deadline(spec),
            **_ttl(spec),
            **suspended(spec["suspend"]),
        },
    )


def _queue(source: SourceField) -> dict[str, Any]:
    queue = queue_of_labels(source)
    return {"schedulingPolicy": queue} if queue else {}


def _deadline(spec: SourceField) -> dict[str, Any]:
    seconds = spec["activeDeadlineSeconds"]
    seconds.translate(
        ("spec", "activeDeadlineSeconds"),
        "counts only while an instance runs: no queue, no place, no image, no back-off",
    )
    return {"activeDeadlineSeconds": seconds.whole(1, least=1)} if seconds else {}


def _ttl(spec: SourceField) -> dict[str, Any]:
    seconds = spec["ttlSecondsAfterFinished"]
    seconds.translate(
        ("spec", "ttlSecondsAfterFinished"),
        "the pods go as they did; the run stays in the history, with its logs",
    )
    return {"ttlSecondsAfterFinished": seconds.whole(0)} if seconds else {}


def size_of(spec: SourceField, role: Loc, *, always_indexed: bool = False) -> JobSize:
    """Return the pods of a Job, all of which run at once here."""
    modes = ("NonIndexed", "Indexed")
    mode, completions, parallelism = (
        spec["completionMode"],
        spec["completions"],
        spec["parallelism"],
    )
    indexed = mode.one_of(modes, modes[always_indexed]) == "Indexed"
    mode.settle(
        "translated",
        modes[always_indexed],
        to=(*role, "replicas"),
        why="each instance has its number as TRAINING_INDEX and JOB_COMPLETION_INDEX"
        if indexed
        else "each instance has a number, which nobody has to read",
    )
    at_once, needed = parallelism.whole(1), completions.whole(1)
    to = (*role, "replicas")
    if completions or not parallelism:
        completions.settle("translated", 1, to=to, why="each completion is an instance")
        if at_once >= needed:
            parallelism.settle("dropped", 1, why="all instances run at once")
        else:
            parallelism.settle(
                "refused",
                1,
                why=f"at most {at_once} of {needed} pods ran at once; here all instances do",
            )
        if needed == 0:
            completions.refuse("a Job without completions ends at once")
        return JobSize(needed, indexed)
    if at_once == 1:
        parallelism.translate(to, "one pod that has to succeed")
    elif always_indexed:
        parallelism.translate(to, "each is an instance")
    else:
        parallelism.refuse(
            "without completions the first pod that succeeds ends the work for all; here every"
            " instance has its own part, and all have to succeed"
        )
    return JobSize(max(1, at_once), indexed)


def _restart(spec: SourceField, role: dict[str, Any], size: JobSize) -> dict[str, Any]:
    """Return the ceilings: a Job counts the failures of all its pods together."""
    limit, each_limit, failed = (
        spec["backoffLimit"],
        spec["backoffLimitPerIndex"],
        spec["maxFailedIndexes"],
    )
    of_instance: Loc = (*_ROLE_LOC, "backoffLimit")
    if each_limit:
        role["backoffLimit"] = each_limit.whole(0)
        each_limit.translate(of_instance, "counted for each instance, as for each index")
        total = limit.whole(role["backoffLimit"] * size.instances)
        limit.settle(
            "translated", "no limit", to=(*_RESTART, "maxRestarts"), why="of all instances together"
        )
        role["minFailed"] = min(failed.whole(size.instances) + 1, size.instances)
        failed.settle(
            "translated",
            "all",
            to=(*_ROLE_LOC, "minFailed"),
            why="the others go on until more indexes than this have failed",
        )
    else:
        total = role["backoffLimit"] = limit.whole(6)
        limit.settle(
            "translated",
            6,
            to=(*_RESTART, "maxRestarts"),
            why="a Job counts the failures of all pods together; the limit of each instance is as high, so"
            " that it never decides. Preemptions are counted here too, but use up no limit",
        )
        failed.refuse("has no meaning without backoffLimitPerIndex")
    return {"scope": "Instance", "maxRestarts": total, "backoff": dict(BACKOFF)}


def _success(source: SourceField, role: dict[str, Any], size: JobSize) -> None:
    rules = source["rules"].items()
    if len(rules) > 1:
        source.refuse("one of several conditions was enough; a role has one")
        return
    for rule in rules:
        count, indexes = rule["succeededCount"], rule["succeededIndexes"]
        if indexes:
            rule.refuse("certain indexes decided; here any instances of a role count")
        elif count:
            role["minSucceeded"] = min(count.whole(1, least=1), size.instances)
            count.translate((*_ROLE_LOC, "minSucceeded"), "the others are ended then, as before")


# --- shared with the jobs of a JobSet -----------------------------------------------------------

_ACTIONS = {
    "FailJob": ("FailJob", "the job fails at once"),
    "Ignore": ("Ignore", "restarted, without being counted"),
    "Count": ("RestartInstance", "restarted, and counted"),
}


@dataclass(frozen=True, slots=True)
class PodFailureRule:
    """A rule of `podFailurePolicy`, with its conditions as ours."""

    source: SourceField
    action: str
    conditions: dict[str, Any] = field(default_factory=dict)


def pod_failure_rules(policy: SourceField, template: SourceField) -> Sequence[PodFailureRule]:
    """Return the rules that we can tell; others are refused here, what becomes of these is the caller's."""
    found = []
    containers = template.at("spec", "containers").items()
    training = containers[0]["name"].text() if containers else ""
    for rule in policy["rules"].items():
        action = rule["action"].one_of(("FailJob", "FailIndex", "Ignore", "Count"), "Count")
        conditions = _conditions(rule, training)
        if conditions is not None:
            found.append(PodFailureRule(rule, action, conditions))
    return found


def _conditions(rule: SourceField, training: str) -> dict[str, Any] | None:
    codes, pods = rule["onExitCodes"], rule["onPodConditions"]
    if codes["containerName"].text(training) != training:
        rule.refuse("only the exit code of the training container is looked at")
        return None
    if codes:
        values = [each.whole(0) for each in codes["values"].items()]
        operator = codes["operator"].one_of(("In", "NotIn"), "In")
        return {"onExitCodes": {"operator": operator, "values": [v for v in values if v]}}
    for each in pods.items():
        if each["type"].text() != "DisruptionTarget" or each["status"].text("True") != "True":
            rule.refuse("no other condition of a pod than DisruptionTarget is known of a failure")
            return None
    if not pods.items():
        rule.refuse("names no condition")
        return None
    return {"onClasses": ["preemption"]}


def end_of_template(spec: SourceField, role: Loc) -> None:
    """Account for what says nothing about our job, or says it always."""
    pod = spec.at("template", "spec")
    policy = pod["restartPolicy"]
    value = policy.one_of(("Never", "OnFailure"), "OnFailure")
    spec["podReplacementPolicy"].drop(
        "a replacement always waits until nothing of the pod before is alive"
    )
    managed_by(spec["managedBy"], own="kubernetes.io/job-controller")
    spec["manualSelector"].drop("pods are found by labels of our own")
    spec["selector"].drop("pods are found by labels of our own")
    policy.settle(
        "translated",
        "OnFailure",
        to=(*role, "restartPolicy"),
        why=_REPLACED.format(policy=value),
    )


def first_port(template: SourceField, role: str) -> dict[str, int]:
    """Return the first port of a template's first container, by its role."""
    containers = template.at("spec", "containers")
    for container in containers.items()[:1]:
        for port in container["ports"].items()[:1]:
            return {role: port["containerPort"].whole(0)}
    return {}
