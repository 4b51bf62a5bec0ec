"""A job of ours as a JobSet (`jobset.x-k8s.io/v1alpha2`)."""

from __future__ import annotations

from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.batch_job import BACKOFF, COMPLETION_INDEX
from airflow_training.interchange.export_policies import (
    drop_backoff,
    keep_runtime,
    plain_ends,
    queue_label,
    refuse_failure_policy,
    refuse_others,
    suspend_of,
    ttl_of,
)
from airflow_training.interchange.our_jobs import ExportedRole, ExportRules, OurJob, read_job

__all__ = ["export_jobset"]

FOR_EVER = 31_536_000
_PORT = 29500
_ZERO = {"initialSeconds": 0, "factor": 1, "maxSeconds": 0}


def export_jobset(source: SourceField) -> dict[str, Any]:
    """Return the JobSet: a replicated job for each role."""
    name = source["metadata"]["name"].text()
    written = source["spec"]["roles"].items()
    single = {each["name"].text(): not each["maxRestarts"] for each in written}
    one_job = _is_one_job(source["spec"])
    rules = ExportRules(
        host=lambda role, index: (
            f"{name}-{role}-{index}-0.{name}"
            if single.get(role) and not one_job
            else f"{name}-{role}-0-{index}.{name}"
        ),
        sets={"JOB_COMPLETION_INDEX": "$(TRAINING_INDEX)"},
        port=_PORT,
    )
    job = read_job(
        source,
        rules,
        place=lambda i: ("spec", "replicatedJobs", i, "template", "spec", "template"),
    )
    _framework(job)
    document: dict[str, Any] = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": dict(source["metadata"].value or {}),
        "spec": {},
    }
    spec = document["spec"]
    spec |= _restart(job, one_job=one_job)
    spec |= _success(job)
    spec["replicatedJobs"] = [_job(job, role, one_job=one_job) for role in job.roles]
    plain_ends(job.roles)
    for role in job.roles:
        if role.source["tracked"].value is False:
            role.source["tracked"].translate(
                ("spec", "successPolicy"), "is none of the jobs that have to succeed"
            )
    refuse_failure_policy(job.spec["failurePolicy"].block())
    scheduling = job.spec["schedulingPolicy"].block()
    if not queue_label(job, document):
        for key in ("queue", "minAvailable"):
            scheduling[key].refuse("a JobSet is no gang without a queue of Kueue")
        if scheduling["gang"].text("none") != "none":
            scheduling["gang"].refuse("a JobSet is no gang without a queue of Kueue")
        else:
            scheduling["gang"].drop("no gang")
    scheduling["scheduleTimeoutSeconds"].refuse("pods wait for a place without an end")
    priority = scheduling["priorityClassName"]
    if priority:
        for role in spec["replicatedJobs"]:
            role["template"]["spec"]["template"]["spec"]["priorityClassName"] = priority.text()
        priority.translate(("spec", "replicatedJobs"), "of every pod")
    refuse_others(job)
    keep_runtime(job, "kubernetes")
    clean = job.spec["cleanPodPolicy"]
    if clean.text("Running") != "Running":
        clean.refuse("pods that have ended stay, and those that run are removed")
    else:
        clean.drop("pods that have ended stay, and those that run are removed")
    _deadline(job, spec, one_job=one_job)
    spec |= ttl_of(job, ("spec", "ttlSecondsAfterFinished"))
    spec |= suspend_of(job, ("spec", "suspend"))
    return document


def _is_one_job(spec: SourceField) -> bool:
    """Return whether an import has made it of one Job, whose limit is the run's."""
    roles = spec["roles"].items()
    restarts = spec["restart"]["maxRestarts"]
    return (
        len(roles) == 1
        and spec["restart"]["scope"].text("Instance") == "Instance"
        and bool(restarts)
        and roles[0]["backoffLimit"].whole(6) == restarts.whole(3) + 1
    )


def _framework(job: OurJob) -> None:
    framework = job.spec["framework"]
    job.spec["parameters"].refuse("nobody there sets what it stands for")
    if job.framework == "custom":
        framework.drop("pods get what the document says")
    elif job.framework == "pytorch" and len(job.roles) == 1:
        framework.translate(
            ("spec", "replicatedJobs", 0), "the variables that it sets, by the index of the pod"
        )
        _pytorch(job, job.roles[0])
    else:
        framework.refuse(f"nobody there sets the variables that {job.framework} sets")


def _pytorch(job: OurJob, role: ExportedRole) -> None:
    """Set what the framework sets, as far as an index says it."""
    processes = job.spec["parameters"]["nprocPerNode"]
    if processes:
        processes.translate(("spec", "replicatedJobs", 0), "PET_NPROC_PER_NODE")
    index = {"fieldRef": {"fieldPath": f"metadata.annotations['{COMPLETION_INDEX}']"}}
    host = f"{job.name}-{role.name}-0-0.{job.name}"
    told = {
        "MASTER_ADDR": host,
        "MASTER_PORT": "23456",
        "WORLD_SIZE": str(role.replicas * processes.whole(1)),
        "PET_NNODES": str(role.replicas),
        "PET_NPROC_PER_NODE": str(processes.whole(1)),
        "PET_MASTER_ADDR": host,
        "PET_MASTER_PORT": "23456",
    }
    variables: list[dict[str, Any]] = [{"name": key, "value": value} for key, value in told.items()]
    variables += [{"name": key, "valueFrom": index} for key in ("RANK", "PET_NODE_RANK")]
    for container in role.template["spec"].get("containers", ())[:1]:
        container["env"] = [*variables, *container.get("env", ())]


def _restart(job: OurJob, *, one_job: bool) -> dict[str, Any]:
    restart = job.spec["restart"].block()
    to: Loc = ("spec", "failurePolicy", "maxRestarts")
    then, fresh, limit = restart["then"], restart["maxFreshJobs"], restart["maxRestarts"]
    restart["scope"].translate(("spec", "failurePolicy"), "what is restarted together")
    if job.scope == "Job":
        limit.settle("kept", 3, to=to, why="")
        drop_backoff(job, _ZERO, "the set is made anew at once")
        _fails(then, fresh)
        return {"failurePolicy": {"maxRestarts": job.restarts}}
    drop_backoff(job, dict(BACKOFF), "a Job waits 10 s, doubled, at most 360 s")
    if job.scope == "Role":
        restart["scope"].refuse("pods of a Job are tried again one by one")
    if one_job:
        limit.translate(
            ("spec", "replicatedJobs", 0, "template", "spec", "backoffLimit"),
            "of the pods of the Job together",
        )
        if then.text("Fail") == "FreshJob":
            then.translate(to, "the set is made anew then")
            fresh.settle("translated", 1, to=to, why="so often")
            return {"failurePolicy": {"maxRestarts": fresh.whole(1)}}
        _fails(then, fresh)
        return {}
    _fails(then, fresh)
    total = sum(
        (role.source["maxRestarts"].value or role.limit * role.replicas)
        for role in job.roles
        if role.restart != "Never"
    )
    if job.restarts < total:
        limit.settle(
            "refused",
            3,
            why=f"there is no limit over all Jobs: those of the roles make {total} together",
        )
    else:
        limit.drop("the limits of the Jobs decide alone")
    return {}


def _fails(then: SourceField, fresh: SourceField) -> None:
    if then.text("Fail") != "Fail":
        then.refuse("the set fails then")
    else:
        then.drop("the set fails then")
    fresh.drop("nothing begins anew")


def _job(job: OurJob, role: ExportedRole, *, one_job: bool) -> dict[str, Any]:
    to: Loc = ("spec", "replicatedJobs", role.number)
    inside: Loc = (*to, "template", "spec")
    role.source["name"].keep((*to, "name"))
    limit, most, policy = (
        role.source[key] for key in ("backoffLimit", "maxRestarts", "restartPolicy")
    )
    pods: dict[str, Any] = {"parallelism": 1, "completions": 1, "completionMode": "Indexed"}
    replicas = role.replicas
    if most or one_job or job.framework == "pytorch":
        pods |= {"parallelism": role.replicas, "completions": role.replicas}
        replicas = 1
        role.source["replicas"].settle(
            "translated", 1, to=(*inside, "completions"), why="one Job of so many pods"
        )
    else:
        role.source["replicas"].settle(
            "translated", 1, to=(*to, "replicas"), why="a Job of one pod for each instance"
        )
    if policy.text("OnFailure") in ("Always", "ExitCode"):
        policy.refuse(
            "a pod that fails is tried again up to backoffLimit, and one that succeeds is not"
        )
    else:
        policy.translate((*inside, "backoffLimit"), "a new pod each time, up to backoffLimit")
    if role.restart == "Never":
        pods["backoffLimit"] = 0
        limit.drop("nothing is tried again")
    elif job.scope == "Job":
        pods["backoffLimit"] = 0
        limit.drop("the first failure is one of the set")
    elif one_job:
        pods["backoffLimit"] = job.restarts
        limit.drop("the limit of the Job decides")
    elif most:
        pods["backoffLimit"] = most.whole(0)
        most.translate(
            (*inside, "backoffLimit"), "a Job counts the failures of all its pods together"
        )
        limit.drop("the limit of the Job decides")
    else:
        pods["backoffLimit"] = role.limit
        limit.settle("kept" if limit else "translated", 6, to=(*inside, "backoffLimit"), why="")
    if job.scope == "Job":
        most.refuse("the set has one limit")
    role.template["spec"]["restartPolicy"] = "Never"
    depends = _depends(role, {each.name for each in job.roles[: role.number]})
    return {
        "name": role.name,
        "replicas": replicas,
        **({"dependsOn": depends} if depends else {}),
        "template": {"spec": {**pods, "template": role.template}},
    }


def _depends(role: ExportedRole, earlier: set[str]) -> list[dict[str, Any]]:
    found = []
    for each in role.depends:
        status = each["status"].text("AddressKnown")
        if status == "AddressKnown":
            each.drop("hosts have their names before pods run")
        elif (
            status not in ("Ready", "Complete")
            or each["require"].text("All") != "All"
            or each["listener"].text("Each") != "Each"
        ):
            each.refuse("a job waits until all pods of another are ready, or have succeeded")
        elif each["role"].text() not in earlier:
            each.refuse("a job waits for jobs above it only: write that role first")
        else:
            found.append({"name": each["role"].text(), "status": status})
            each.translate(("spec", "replicatedJobs", role.number, "dependsOn"), "its name there")
            if each["timeoutSeconds"].whole(600) < FOR_EVER:
                each["timeoutSeconds"].settle("refused", 600, why="it waits without an end")
    return found


def _success(job: OurJob) -> dict[str, Any]:
    policy = job.spec["successPolicy"].block()
    to: Loc = ("spec", "successPolicy")
    targets = [each.text() for each in policy["targetRoles"].items()]
    tracked = [role.name for role in job.roles if role.source["tracked"].flag(default=True)]
    if not policy.names() and len(tracked) == len(job.roles):
        return {}
    policy["operator"].settle("kept", "All", to=(*to, "operator"), why="")
    policy["targetRoles"].translate((*to, "targetReplicatedJobs"), "their names there")
    return {
        "successPolicy": {
            "operator": policy["operator"].one_of(("All", "Any"), "All"),
            "targetReplicatedJobs": targets or tracked,
        }
    }


def _deadline(job: OurJob, spec: dict[str, Any], *, one_job: bool) -> None:
    seconds = job.spec["activeDeadlineSeconds"]
    if not seconds:
        return
    jobs = spec["replicatedJobs"]
    if one_job or (len(jobs) == 1 and jobs[0]["replicas"] == 1):
        jobs[0]["template"]["spec"]["activeDeadlineSeconds"] = seconds.whole(1)
        seconds.translate(
            ("spec", "replicatedJobs", 0, "template", "spec", "activeDeadlineSeconds"),
            "counts from the start there, also without an instance that runs",
        )
    else:
        seconds.refuse("a JobSet has no deadline, each of its Jobs has")
