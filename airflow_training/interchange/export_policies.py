"""What several targets say in the same way about policies of ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.metadata import QUEUE_LABEL
from airflow_training.interchange.our_jobs import ExportedRole, OurJob

__all__ = [
    "drop_backoff",
    "keep_runtime",
    "plain_ends",
    "queue_label",
    "refuse_failure_policy",
    "refuse_others",
    "suspend_of",
    "ttl_of",
]


def plain_ends(roles: Iterable[ExportedRole]) -> None:
    """Account for roles that succeed and fail as a whole: anything else is refused."""
    for role in roles:
        for key, plain in (("minSucceeded", "All"), ("minFailed", "Any"), ("tracked", True)):
            each = role.source[key]
            if each.value not in (None, plain) and not (key == "minFailed" and each.value == 1):
                each.refuse(
                    "all instances have to succeed, and the first that fails for good fails the job"
                )
            else:
                each.drop("says nothing more")
        role.source["minReplicas"].refuse("the size does not change")
        role.source["maxReplicas"].refuse("the size does not change")


def drop_backoff(job: OurJob, known: Mapping[str, int], default: str) -> None:
    """Account for the waits between restarts, which are the other system's."""
    backoff = job.spec["restart"]["backoff"].block()
    if backoff and any(backoff[key].value not in (None, value) for key, value in known.items()):
        backoff.refuse(f"the waits are its own: {default}")
    else:
        backoff.drop(f"the waits are its own: {default}")


def refuse_others(job: OurJob, *known: str) -> None:
    """Refuse keys of `restart` and `schedulingPolicy` that no other system has."""
    restart, scheduling = job.spec["restart"], job.spec["schedulingPolicy"]
    for key in ("window", "onOutOfMemory", "keepFailedSeconds", "freshFrom"):
        if f"restart.{key}" not in known:
            restart[key].refuse("is judged by our loop")
    restart["readyTimeoutSeconds"].drop("is about a checkpoint")
    codes = restart["exitCodes"]
    if codes.value in (None, "default") and "restart.exitCodes" not in known:
        codes.drop("no role is judged by exit codes")
    elif "restart.exitCodes" not in known:
        codes.refuse("exit codes are not judged there")
    for key in (
        "priority",
        "preemptionPolicy",
        "startup",
        "spread",
        "unfitNodes",
        "neverFits",
        "excludedNodes",
    ):
        scheduling[key].refuse("is decided by our loop, or told to the cluster by it")


def queue_label(job: OurJob, document: dict[str, Any]) -> bool:
    """Put the label of a queue of Kueue, where that is the gang; return whether it is."""
    scheduling = job.spec["schedulingPolicy"].block()
    if scheduling["gang"].text("none") != "kueue":
        return False
    labels = document["metadata"].setdefault("labels", {})
    labels[QUEUE_LABEL] = scheduling["queue"].text()
    for key in ("gang", "queue"):
        scheduling[key].translate(("metadata", "labels", QUEUE_LABEL), "the label of its queue")
    scheduling["minAvailable"].refuse("a group of Kueue waits for all of its pods")
    return True


def keep_runtime(job: OurJob, *own: str) -> None:
    """Account for the runtime: where another one runs the job, that is said."""
    runtime = job.spec["runtime"].block()
    name = runtime["name"]
    if name.text(own[0]) not in own:
        name.refuse(f"it runs on {own[0]}")
    else:
        name.drop("says where it runs")
    runtime["connection"].drop("kubectl has its own connection")
    runtime["options"].refuse(f"options of {name.text() or 'another runtime'}")


def suspend_of(job: OurJob, to: Loc) -> dict[str, Any]:
    """Return the key of a job that starts paused."""
    suspend = job.spec["suspend"]
    suspend.keep(to)
    return {"suspend": suspend.flag()} if suspend else {}


def ttl_of(job: OurJob, to: Loc) -> dict[str, Any]:
    """Return the key of what goes some time after the end."""
    ttl = job.spec["ttlSecondsAfterFinished"]
    ttl.translate(to, "the objects go then")
    return {"ttlSecondsAfterFinished": ttl.whole(0)} if ttl else {}


def refuse_failure_policy(source: SourceField) -> None:
    """Refuse rules and targets of failure, where they say more than the default."""
    for key, plain in (("operator", "Any"), ("targetRoles", None), ("rules", [])):
        if source[key] and source[key].value != plain:
            source[key].refuse("failures are not judged by rules there")
        else:
            source[key].drop("says nothing more")
