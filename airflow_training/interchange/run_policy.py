"""What all jobs of the training operator (`kubeflow.org/v1`) have in common: `runPolicy`, restarts, scheduling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.metadata import managed_by, suspended

__all__ = ["NO_LIMIT", "restart_policy", "run_policy", "scheduler_of", "scheduling"]

NO_LIMIT = 1_000_000
"""More restarts than a run lives to see: the operator has no limit where none is written."""
_BACKOFF = {"initialSeconds": 10, "factor": 2, "maxSeconds": 300}
"""As the kubelet waits before it starts a container again."""
_SCHEDULERS = {"volcano": "volcano", "scheduler-plugins-scheduler": "coscheduling"}
_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")


def restart_policy(source: SourceField, to: Loc, *, default: str = "OnFailure") -> str:
    """Return the restart policy of a role."""
    policy = source["restartPolicy"]
    value = policy.one_of(_POLICIES, default)
    in_place = (
        "the kubelet started the container again in its pod, and the others went on; here there is a new"
        " pod, and the framework's restart.scope says who is restarted with it"
    )
    if value == "Never":
        policy.settle("kept", default, to=(*to, "restartPolicy"), why="")
    elif value == "ExitCode":
        why = "1 to 127 end the job, 128 and above are tried again: restart.exitCodes: kubeflow"
        policy.settle("kept", default, to=(*to, "restartPolicy"), why=why)
    else:
        policy.settle("translated", default, to=(*to, "restartPolicy"), why=in_place)
    source.at("template", "spec", "restartPolicy").drop(
        "the operator puts the replicas' own restartPolicy in its place"
    )
    return value


def run_policy(
    source: SourceField, roles: Sequence[dict[str, Any]], *, clean: SourceField | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return keys of `spec`, and `restart`; sets the limit of every role."""
    found: dict[str, Any] = {}
    clean = clean or source["cleanPodPolicy"]
    found["cleanPodPolicy"] = clean.one_of(("None", "Running", "All"), "None")
    clean.settle(
        "translated" if found["cleanPodPolicy"] == "None" else "kept",
        "None",
        to=("spec", "cleanPodPolicy"),
        why="what still runs when the job ends is ended in any case; its objects stay"
        if found["cleanPodPolicy"] == "None"
        else "",
    )
    seconds = source["activeDeadlineSeconds"]
    if seconds:
        found["activeDeadlineSeconds"] = seconds.whole(1, least=1)
        seconds.translate(
            ("spec", "activeDeadlineSeconds"),
            "counts only while an instance runs: no queue, no place, no image, no back-off",
        )
    ttl = source["ttlSecondsAfterFinished"]
    if ttl:
        found["ttlSecondsAfterFinished"] = ttl.whole(0)
        ttl.translate(
            ("spec", "ttlSecondsAfterFinished"),
            "the pods go as they did; the run stays in the history, with its logs",
        )
    found |= suspended(source["suspend"])
    managed_by(source["managedBy"], own="kubeflow.org/training-operator")
    limit = source["backoffLimit"]
    most = limit.whole(NO_LIMIT)
    limit.settle(
        "translated",
        "no limit",
        to=("spec", "restart", "maxRestarts"),
        why="counted for the whole job, where an end that pulls others along counts once; the limit of each"
        " instance is as high, so that it never decides"
        if limit
        else f"the operator has none: {NO_LIMIT} is as good as that, a smaller one is wiser",
    )
    for role in roles:
        role["backoffLimit"] = most
    return found, {"maxRestarts": most, "then": "Fail", "backoff": dict(_BACKOFF)}


def scheduler_of(roles: Sequence[dict[str, Any]]) -> str:
    """Return the scheduler that the pods of a job name, where all name the same."""
    names = {str(role["template"].get("spec", {}).get("schedulerName", "")) for role in roles}
    return names.pop() if len(names) == 1 else ""


def scheduling(source: SourceField, scheduler: str, *, queue: bool = False) -> dict[str, Any]:
    """Return our scheduling policy; which gang it means is an option of the operator, not in the document.

    `queue`: a label has the job wait in a queue already, which is a gang of its own.
    """
    to: Loc = ("spec", "schedulingPolicy")
    gang = "" if queue else _SCHEDULERS.get(scheduler, "")
    found: dict[str, Any] = {}
    for key in ("minAvailable", "queue"):
        each = source[key]
        if each and not gang:
            each.refuse(
                "the job waits in the queue that its label names, and has no second gang"
                if queue
                else "which scheduler makes the gang is an option of the operator: schedulerName volcano or"
                " scheduler-plugins-scheduler in all pod templates says so"
            )
        elif each:
            found["gang"] = gang
            found[key] = each.whole(1, least=1) if key == "minAvailable" else each.text()
            each.translate((*to, key), f"gang: {gang}, as the pods' schedulerName says")
    if source["priorityClass"]:
        found["priorityClassName"] = source["priorityClass"].text()
        source["priorityClass"].keep((*to, "priorityClassName"))
    timeout = source["scheduleTimeoutSeconds"]
    if timeout:
        found["scheduleTimeoutSeconds"] = timeout.whole(1, least=1)
        timeout.translate(
            (*to, "scheduleTimeoutSeconds"), "the job fails then; the scheduler only tried again"
        )
    source["minResources"].refuse("a gang reserves what its instances ask for, nothing else")
    return found
