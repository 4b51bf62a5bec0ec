"""A job of ours as a PyTorchJob (`kubeflow.org/v1`)."""

from __future__ import annotations

from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField
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
from airflow_training.interchange.our_jobs import NO_LIMIT, ExportRules, OurJob, read_job

__all__ = ["export_pytorchjob"]

_POLICY: Loc = ("spec", "runPolicy")
_KUBELET = {"initialSeconds": 10, "factor": 2, "maxSeconds": 300}
_SCHEDULERS = {"volcano": "volcano", "coscheduling": "scheduler-plugins-scheduler"}


def export_pytorchjob(source: SourceField) -> dict[str, Any]:
    """Return the PyTorchJob."""
    name = source["metadata"]["name"].text()
    names = [each["name"].text().capitalize() for each in source["spec"]["roles"].items()]
    rules = ExportRules(host=lambda role, index: f"{name}-{role}-{index}", port=23456)
    job = read_job(
        source, rules, place=lambda i: ("spec", "pytorchReplicaSpecs", names[i], "template")
    )
    framework = job.spec["framework"]
    if job.framework != "pytorch":
        source.accounts.mistake(
            framework.loc,
            "not_supported",
            f"a PyTorchJob is of framework pytorch, not {job.framework!r}",
        )
    framework.translate(("kind",), "a PyTorchJob")
    document: dict[str, Any] = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": dict(source["metadata"].value or {}),
        "spec": {},
    }
    spec = document["spec"]
    policy = spec["runPolicy"] = _run_policy(job, document)
    spec |= _parameters(job)
    spec["pytorchReplicaSpecs"] = _replicas(job)
    _success(job, names)
    refuse_failure_policy(job.spec["failurePolicy"].block())
    refuse_others(job, "restart.exitCodes")
    keep_runtime(job, "kubernetes")
    if not policy:
        del spec["runPolicy"]
    return document


def _replicas(job: OurJob) -> dict[str, Any]:
    found: dict[str, Any] = {}
    plain_ends(role for role in job.roles)
    for role in job.roles:
        kind = role.name.capitalize()
        to: Loc = ("spec", "pytorchReplicaSpecs", kind)
        role.source["name"].translate(to, "roles are keys there")
        role.source["replicas"].keep((*to, "replicas"))
        policy = role.source["restartPolicy"]
        policy.keep((*to, "restartPolicy"))
        if (
            role.restart == "ExitCode"
            and job.spec["restart"]["exitCodes"].text("default") != "kubeflow"
        ):
            policy.refuse(
                "1 to 127 end the job there, 128 and above are tried again: restart.exitCodes: kubeflow"
            )
        limit = role.source["backoffLimit"]
        if role.limit < job.restarts and role.restart != "Never":
            limit.settle(
                "refused",
                6,
                why="there is no limit of an instance, only that of the job: at least restart.maxRestarts",
            )
        else:
            limit.drop("the limit of the job decides")
        role.source["maxRestarts"].refuse("there is no limit of a role")
        for each in role.depends:
            if each["status"].text("AddressKnown") != "AddressKnown":
                each.refuse("replicas start together")
            else:
                each.drop("the workers wait for the master's address there, too")
        found[kind] = {
            "replicas": role.replicas,
            "restartPolicy": role.restart,
            "template": role.template,
        }
        for key in ("minReplicas", "maxReplicas"):
            if role.source[key]:
                role.source[key].keep(("spec", "elasticPolicy", key))
    codes = job.spec["restart"]["exitCodes"]
    if codes.value not in (None, "default", "kubeflow"):
        codes.refuse("its table is 1 to 127, and 128 and above")
    elif codes:
        codes.translate(("spec", "pytorchReplicaSpecs"), "ExitCode is judged so there")
    return found


def _success(job: OurJob, names: list[str]) -> None:
    policy = job.spec["successPolicy"].block()
    targets = [each.text() for each in policy["targetRoles"].items()]
    tracked = [role.name for role in job.roles]
    chief = ["master"] if "Master" in names else tracked
    if policy["operator"].text("All") != "All" or (targets or tracked) != chief:
        policy["targetRoles"].settle(
            "refused",
            "every tracked role",
            why="the Master alone decides there, and without one all workers: targetRoles: [master] says so",
        )
        policy["operator"].drop("of the target roles")
    else:
        policy.translate(("spec", "pytorchReplicaSpecs"), "the operator looks at it by itself")


def _parameters(job: OurJob) -> dict[str, Any]:
    found: dict[str, Any] = {}
    elastic: dict[str, Any] = {}
    parameters = job.spec["parameters"].block()
    for key in parameters.names():
        each = parameters[key]
        if key == "nprocPerNode":
            found["nprocPerNode"] = str(each.whole(1, least=1))
            each.translate(("spec", "nprocPerNode"), "text there")
        elif key == "rendezvousBackend":
            elastic["rdzvBackend"] = each.text()
            each.translate(("spec", "elasticPolicy", "rdzvBackend"), "its name there")
        elif key == "lastCallSeconds":
            elastic["rdzvConf"] = [{"key": "last_call_timeout", "value": str(each.whole(0))}]
            each.translate(("spec", "elasticPolicy", "rdzvConf"), "its name there")
        else:
            each.refuse("no field there says it: set the variable that it sets")
    for role in job.roles:
        for key in ("minReplicas", "maxReplicas"):
            if role.source[key] and role.name == "worker":
                elastic[key] = role.source[key].whole(1)
    if elastic:
        found["elasticPolicy"] = elastic
    return found


def _run_policy(job: OurJob, document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    restart = job.spec["restart"].block()
    if restart["scope"].text("Job") != "Job":
        restart["scope"].refuse("processes of a group wait for each other: all start again")
    else:
        restart["scope"].drop("all start again")
    if restart["then"].text("Fail") != "Fail":
        restart["then"].refuse("the job fails then")
    else:
        restart["then"].drop("the job fails then")
    restart["maxFreshJobs"].drop("nothing begins anew")
    if job.restarts < NO_LIMIT:
        found["backoffLimit"] = job.restarts
    restart["maxRestarts"].settle(
        "translated",
        3,
        to=(*_POLICY, "backoffLimit"),
        why="restarts of containers in their pods, counted for the whole job",
    )
    drop_backoff(job, _KUBELET, "the kubelet waits before it starts a container again")
    clean = job.spec["cleanPodPolicy"]
    found["cleanPodPolicy"] = clean.one_of(("None", "Running", "All"), "Running")
    clean.settle("kept", "Running", to=(*_POLICY, "cleanPodPolicy"), why="")
    seconds = job.spec["activeDeadlineSeconds"]
    if seconds:
        found["activeDeadlineSeconds"] = seconds.whole(1)
        seconds.translate(
            (*_POLICY, "activeDeadlineSeconds"),
            "counts from the start there, also without an instance that runs",
        )
    found |= ttl_of(job, (*_POLICY, "ttlSecondsAfterFinished"))
    found |= suspend_of(job, (*_POLICY, "suspend"))
    scheduling = job.spec["schedulingPolicy"].block()
    to: Loc = (*_POLICY, "schedulingPolicy")
    told: dict[str, Any] = {}
    gang = scheduling["gang"].text("none")
    if queue_label(job, document):
        pass
    elif gang in _SCHEDULERS:
        scheduling["gang"].translate(
            ("spec", "pytorchReplicaSpecs"),
            "schedulerName of the pods; which scheduler makes gangs is an option of the operator",
        )
        for role in job.roles:
            role.template["spec"]["schedulerName"] = _SCHEDULERS[gang]
        for key in ("minAvailable", "queue"):
            if scheduling[key]:
                told[key] = scheduling[key].value
                scheduling[key].keep((*to, key))
    else:
        scheduling["gang"].drop("no gang")
        scheduling["queue"].refuse("without a gang nothing waits in a queue")
        scheduling["minAvailable"].drop("without a gang nothing waits")
    if scheduling["priorityClassName"]:
        told["priorityClass"] = scheduling["priorityClassName"].text()
        scheduling["priorityClassName"].translate((*to, "priorityClass"), "its name there")
    if scheduling["scheduleTimeoutSeconds"]:
        told["scheduleTimeoutSeconds"] = scheduling["scheduleTimeoutSeconds"].whole(1)
        scheduling["scheduleTimeoutSeconds"].translate(
            (*to, "scheduleTimeoutSeconds"), "the scheduler only tries again then"
        )
    if told:
        found["schedulingPolicy"] = told
    return found
