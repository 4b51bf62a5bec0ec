"""A Framework of FrameworkController (`frameworkcontroller.microsoft.com/v1`): each task role becomes a role."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.batch_job import CONTAINER
from airflow_training.interchange.metadata import job_document, queue_of_labels
from airflow_training.interchange.pod_templates import HostNames, PodRules, translate_template
from airflow_training.interchange.run_policy import NO_LIMIT

__all__ = ["translate_framework"]

_NO_HOSTS = HostNames(re.compile(r"(?!)(?P<host>)"), lambda _: None)
_BACKOFF = {"initialSeconds": 0, "factor": 1, "maxSeconds": 0}


def translate_framework(source: SourceField) -> dict[str, Any]:
    """Return our document for a Framework."""
    spec = source["spec"].block()
    tasks = spec["taskRoles"].items()
    if not tasks:
        message = "a Framework needs a task role"
        source.accounts.mistake(spec["taskRoles"].loc, "missing", message)
    roles = [_role(task, ("spec", "roles", i), source) for i, task in enumerate(tasks)]
    restart = _restart(spec["retryPolicy"].block(), tasks, roles)
    kind = spec["executionType"].one_of(("Create", "Start", "Stop"), "Start")
    if kind == "Stop":
        spec["executionType"].refuse("a run that is to end is stopped by a command")
    else:
        why = "a run that is created, and not started, is paused"
        spec["executionType"].translate(("spec", "suspend"), why)
    spec["description"].drop("says nothing to anybody who runs it")
    queue = queue_of_labels(source)
    return job_document(
        source,
        {
            "framework": "custom",
            "roles": roles,
            **_success(tasks, roles),
            "restart": restart,
            **({"schedulingPolicy": queue} if queue else {}),
            **({"suspend": True} if kind == "Create" else {}),
        },
    )


def _role(task: SourceField, to: Loc, source: SourceField) -> dict[str, Any]:
    task.block().anchor(to)
    name, count = task["name"], task["taskNumber"]
    if not name.text():
        task.accounts.mistake(task.loc, "missing", "a task role needs a name")
    name.keep((*to, "name"))
    count.settle("kept", 0, to=(*to, "replicas"), why="")
    replicas = count.whole(0)
    body = task["task"].block()
    body["podGracefulDeletionTimeoutSec"].translate(
        (*to, "restartPolicy"),
        "an instance that does not end is lost after a minute without news of its node, never by force before",
    )
    least = task.at("frameworkAttemptCompletionPolicy", "minFailedTaskCount")
    fails = _count(least, 1)
    role: dict[str, Any] = {"name": name.text(), "replicas": replicas}
    if fails < 1:
        least.settle(
            "refused",
            -1,
            why="tasks that fail would not matter, and the job succeed once all had ended",
        )
    elif fails > replicas:
        role["minFailed"] = "100%"
        least.translate((*to, "minFailed"), "there are fewer tasks than that")
    else:
        role["minFailed"] = fails
        least.settle("kept", fails, to=(*to, "minFailed"), why="")
    policy = body.at("pod", "spec", "restartPolicy")
    in_pod = policy.one_of(("Always", "OnFailure", "Never"), "Always")
    why = "the pod has failed for good then, and the task is tried again by its own policy"
    if in_pod != "Never":
        why = "the kubelet started the container again in its pod, without a limit; here there is a new pod"
    policy.settle("translated", "Always", to=(*to, "restartPolicy"), why=why)
    limit = _retries(body["retryPolicy"].block(), (*to, "backoffLimit"), source)
    role["restartPolicy"] = in_pod if in_pod != "Never" else "OnFailure" if limit else "Never"
    role["backoffLimit"] = NO_LIMIT if in_pod != "Never" else limit
    known = {
        "FC_FRAMEWORK_NAMESPACE": source["metadata"]["namespace"].text("default"),
        "FC_FRAMEWORK_NAME": source["metadata"]["name"].text(),
        "FC_TASKROLE_NAME": name.text(),
        "FC_TASK_INDEX": "$(TRAINING_INDEX)",
        "FC_FRAMEWORK_ATTEMPT_ID": "$(TRAINING_JOB_ATTEMPT)",
        "FC_TASK_ATTEMPT_ID": "$(TRAINING_ATTEMPT)",
    }
    rules = PodRules(ours=CONTAINER, env=known, hosts=_NO_HOSTS)
    role["template"] = translate_template(body["pod"], (*to, "template"), rules)
    _barrier(body["pod"], role["template"])
    return role


def _barrier(pod: SourceField, template: dict[str, Any]) -> None:
    """Refuse what asks the controller where the others are, and what waits for its answer."""
    containers = pod.at("spec", "initContainers").items()
    kept = []
    for each, ours in zip(containers, template["spec"].get("initContainers") or (), strict=False):
        if "frameworkbarrier" in each["image"].text():
            each.refuse(
                "waits until a controller tells it where the others are: dependsOn and address() do that"
            )
        else:
            kept.append(ours)
    if containers:
        template["spec"]["initContainers"] = kept
        if not kept:
            del template["spec"]["initContainers"]
    for container in pod.at("spec", "containers").items():
        for word in [*container["command"].items(), *container["args"].items()]:
            if isinstance(word.value, str) and re.search(
                r"\bFB_\w+|frameworkbarrier|\bFC_\w+_UID\b", word.value
            ):
                word.refuse(
                    "reads what a controller has told it: addresses() names the others here"
                )


def _count(source: SourceField, default: int) -> int:
    return (
        source.value
        if isinstance(source.value, int) and source.value == -1
        else source.whole(default)
    )


def _retries(policy: SourceField, to: Loc, source: SourceField) -> int:
    """Return how often a task is tried again."""
    fancy, limit = policy["fancyRetryPolicy"], policy["maxRetryCount"]
    if fancy.flag():
        fancy.refuse(
            "which failures are transient is in a table of the controller: failurePolicy.rules and exitCodes say it here"
        )
    else:
        fancy.drop("every failure counts")
    if limit.value == -2:
        limit.refuse("a task that has succeeded is not run again")
        return NO_LIMIT
    if limit.value == -1:
        limit.translate(to, f"no limit: {NO_LIMIT} is as good as that")
        return NO_LIMIT
    limit.settle(
        "translated", 0, to=to, why="counted for each instance; preemptions use up nothing here"
    )
    del source
    return limit.whole(0)


def _restart(
    policy: SourceField, tasks: Sequence[SourceField], roles: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return what is begun anew: tasks one by one, or all together."""
    whole = _retries(policy, ("spec", "restart", "maxRestarts"), policy)
    of_tasks = sum(min(NO_LIMIT, role["backoffLimit"] * role["replicas"]) for role in roles)
    if not whole:
        most = min(NO_LIMIT, of_tasks)
        return {"scope": "Instance", "maxRestarts": most, "then": "Fail", "backoff": dict(_BACKOFF)}
    if of_tasks and sum(role["replicas"] for role in roles) == 1:
        policy["maxRetryCount"].translate(
            ("spec", "restart", "maxFreshJobs"), "once the task's own limit is used up"
        )
        return {
            "scope": "Instance",
            "maxRestarts": of_tasks,
            "then": "FreshJob",
            "maxFreshJobs": whole,
            "backoff": dict(_BACKOFF),
        }
    if of_tasks:
        policy["maxRetryCount"].refuse(
            "tasks are tried again one by one first, each with a limit of its own; here the first limit that is reached ends the job"
        )
        return {
            "scope": "Instance",
            "maxRestarts": min(NO_LIMIT, of_tasks),
            "then": "Fail",
            "backoff": dict(_BACKOFF),
        }
    for task, role in zip(tasks, roles, strict=True):
        role["restartPolicy"], role["backoffLimit"] = "OnFailure", whole
        if role.get("minFailed") not in (None, 1):
            task.at("frameworkAttemptCompletionPolicy", "minFailedTaskCount").refuse(
                "all begin anew at the first failure, not at the one that would end the attempt"
            )
    return {"scope": "Job", "maxRestarts": whole, "then": "Fail", "backoff": dict(_BACKOFF)}


def _success(tasks: Sequence[SourceField], roles: Sequence[dict[str, Any]]) -> dict[str, Any]:
    deciding: list[str] = []
    for number, (task, role) in enumerate(zip(tasks, roles, strict=True)):
        enough = task.at("frameworkAttemptCompletionPolicy", "minSucceededTaskCount")
        count = _count(enough, -1)
        if count < 1 or count > max(1, role["replicas"]):
            enough.drop("the job has succeeded once all have")
        else:
            role["minSucceeded"] = count
            deciding.append(role["name"])
            enough.translate(
                ("spec", "roles", number, "minSucceeded"),
                "the job has succeeded then, and the others are ended",
            )
    return {"successPolicy": {"operator": "Any", "targetRoles": deciding}} if deciding else {}
