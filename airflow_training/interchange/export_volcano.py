"""A job of ours as a Volcano Job (`batch.volcano.sh/v1alpha1`)."""

from __future__ import annotations

import json
from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.export_policies import (
    drop_backoff,
    keep_runtime,
    queue_label,
    refuse_others,
    ttl_of,
)
from airflow_training.interchange.our_jobs import (
    NO_LIMIT,
    ExportedRole,
    ExportRules,
    OurJob,
    read_job,
)

__all__ = ["export_volcano"]

FOR_EVER = 31_536_000
_INDEX = "$(TRAINING_INDEX)"
_INDEXES = ("VC_TASK_INDEX", "VK_TASK_INDEX")
"""What the plugin `env` sets."""
_EVICTED = ["infrastructure", "preemption"]
_ACTIONS = {
    "RestartJob": "RestartJob",
    "RestartRole": "RestartTask",
    "RestartInstance": "RestartPod",
    "FailJob": "TerminateJob",
    "CompleteJob": "CompleteJob",
}


def export_volcano(source: SourceField) -> dict[str, Any]:
    """Return the Volcano Job: a task for each role."""
    name = source["metadata"]["name"].text()
    rules = ExportRules(
        host=lambda role, index: f"{name}-{role}-{index}.{name}",
        sets=dict.fromkeys(_INDEXES, _INDEX),
        variables={"TRAINING_INDEX": "$(VC_TASK_INDEX)"},
    )
    job = read_job(source, rules, place=lambda i: ("spec", "tasks", i, "template"))
    document: dict[str, Any] = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": dict(source["metadata"].value or {}),
        "spec": {},
    }
    spec = document["spec"]
    _scheduling(job, document)
    plugins: dict[str, list[str]] = {"svc": []}
    _framework(job, plugins)
    in_pods = all(
        role.limit >= NO_LIMIT for role in job.roles if role.restart in ("OnFailure", "Always")
    )
    spec["tasks"] = [_task(role, in_pods=in_pods) for role in job.roles]
    # only where somebody reads what it sets: an import would keep its variables for every role
    if any(word in json.dumps([source.value, spec["tasks"]], default=str) for word in _INDEXES):
        plugins["env"] = []
    spec["plugins"] = plugins
    policies = _rules(job, spec["tasks"])
    policies += _restart(job, in_pods=in_pods)
    _failures(job, policies)
    if policies:
        spec["policies"] = _distinct(policies)
    told = [*policies, *(each for task in spec["tasks"] for each in task.get("policies", ()))]
    if job.restarts < NO_LIMIT and any(each["action"].startswith("Restart") for each in told):
        spec["maxRetry"] = job.restarts
    _success(job, spec)
    refuse_others(job)
    keep_runtime(job, "kubernetes")
    for key, why in (
        ("activeDeadlineSeconds", "a Volcano Job has no deadline"),
        ("suspend", "a Volcano Job is not created paused"),
    ):
        job.spec[key].refuse(why)
    clean = job.spec["cleanPodPolicy"]
    if clean.text("Running") != "Running":
        clean.refuse("pods that have ended stay, and those that run are ended")
    else:
        clean.drop("pods that have ended stay, and those that run are ended")
    spec |= ttl_of(job, ("spec", "ttlSecondsAfterFinished"))
    return document


def _framework(job: OurJob, plugins: dict[str, list[str]]) -> None:
    framework, parameters = job.spec["framework"], job.spec["parameters"]
    parameters.refuse("no plugin is told about it")
    names = {role.name for role in job.roles}
    if job.framework == "custom":
        framework.drop("pods get what the document says")
    elif job.framework == "pytorch" and "master" in names:
        plugins["pytorch"] = ["--master=master", "--worker=worker", "--port=23456"]
        framework.translate(("spec", "plugins", "pytorch"), "the plugin sets the same variables")
    elif job.framework == "tensorflow":
        plugins["tensorflow"] = []
        framework.translate(("spec", "plugins", "tensorflow"), "the plugin sets TF_CONFIG")
    else:
        framework.refuse(f"no plugin sets the variables that {job.framework} sets")


def _task(role: ExportedRole, *, in_pods: bool) -> dict[str, Any]:
    to: Loc = ("spec", "tasks", role.number)
    for key in ("name", "replicas"):
        role.source[key].keep((*to, key))
    policy = role.source["restartPolicy"]
    pod = (*to, "template", "spec", "restartPolicy")
    limit = role.source["backoffLimit"]
    value = role.restart if in_pods and role.restart in ("OnFailure", "Always") else "Never"
    if role.restart == "Never":
        policy.settle("kept", "OnFailure", to=pod, why="")
        limit.drop("nothing is started again")
    elif value != "Never":
        policy.settle(
            "translated",
            "OnFailure",
            to=pod,
            why="the kubelet starts the container again in its pod, without a limit",
        )
        limit.drop("there is no limit")
    elif role.restart == "OnFailure":
        policy.settle(
            "translated",
            "OnFailure",
            to=("spec", "policies"),
            why="the policy says what is started again",
        )
        limit.drop("maxRetry decides")
    else:
        policy.refuse(
            "a policy is about exit codes one by one, and nothing starts again after success"
        )
        limit.drop("nothing is started again")
    role.source["maxRestarts"].refuse("there is one limit, of the job")
    role.source["minReplicas"].refuse("the size does not change")
    role.source["maxReplicas"].refuse("the size does not change")
    role.template["spec"]["restartPolicy"] = value
    depends = _depends(role, to)
    return {
        "name": role.name,
        "replicas": role.replicas,
        **({"dependsOn": {"name": depends}} if depends else {}),
        "template": role.template,
    }


def _depends(role: ExportedRole, to: Loc) -> list[str]:
    found = []
    for each in role.depends:
        status = each["status"].text("AddressKnown")
        if status == "AddressKnown":
            each.drop("hosts have their names before pods run")
        elif status != "Ready" or each["require"].text("All") != "All":
            each.refuse("a task waits until the pods of another are ready")
        else:
            found.append(each["role"].text())
            each.translate((*to, "dependsOn"), "its name there")
            if each["timeoutSeconds"].whole(600) < FOR_EVER:
                each["timeoutSeconds"].settle("refused", 600, why="it waits without an end")
    return found


def _rules(job: OurJob, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the policies of the job; those of one task are put there."""
    found: list[dict[str, Any]] = []
    failure = job.spec["failurePolicy"].block()
    for rule in failure["rules"].items():
        action = _ACTIONS.get(rule["action"].text())
        codes = [each.whole(1) for each in rule["onExitCodes"]["values"].items()]
        classes = sorted(each.text() for each in rule["onClasses"].items())
        targets = [each.text() for each in rule["targetRoles"].items()]
        odd = (
            rule["onReasons"]
            or rule["onMessagePattern"]
            or (classes and classes != _EVICTED)
            or rule["onExitCodes"]["operator"].text("In") != "In"
        )
        if action is None or odd or len(targets) > 1 or (codes and classes):
            rule.refuse(
                "a policy is about failed or evicted pods, or one exit code, of one task or all"
            )
            continue
        told = (
            [{"exitCode": code, "action": action} for code in codes]
            if codes
            else [{"event": "PodEvicted" if classes else "PodFailed", "action": action}]
        )
        rule.translate(("spec", "policies"), "a policy")
        task = next((each for each in tasks if each["name"] in targets), None)
        if task is None:
            found += told
        else:
            task.setdefault("policies", []).extend(told)
    return found


def _restart(job: OurJob, *, in_pods: bool) -> list[dict[str, Any]]:
    """Return the policy that starts again what our restart policies do."""
    restart = job.spec["restart"].block()
    then = restart["then"]
    if then.text("Fail") != "Fail":
        then.refuse("the job fails then")
    else:
        then.drop("the job fails then")
    restart["maxFreshJobs"].drop("nothing begins anew")
    drop_backoff(
        job,
        dict.fromkeys(("initialSeconds", "maxSeconds"), -1)
        if restart["backoff"] and not _known(restart["backoff"])
        else {},
        "pods are made again at once, containers as the kubelet waits",
    )
    limit = restart["maxRestarts"]
    again = any(role.restart != "Never" for role in job.roles)
    if not again or in_pods:
        restart["scope"].drop("nothing but policies restarts several pods")
        limit.settle("translated", 3, to=("spec", "maxRetry"), why="of restarts by policies")
        return []
    limit.settle(
        "translated", 3, to=("spec", "maxRetry"), why="restarts after an eviction are counted, too"
    )
    action = {"Job": "RestartJob", "Role": "RestartTask"}.get(job.scope, "RestartPod")
    restart["scope"].settle("translated", job.scope, to=("spec", "policies"), why=action)
    return [{"event": "PodFailed", "action": action}, {"event": "PodEvicted", "action": action}]


def _distinct(policies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first policy of each event and exit code, which decides: Volcano refuses a second."""
    found: dict[tuple[Any, Any], dict[str, Any]] = {}
    for each in policies:
        found.setdefault((each.get("event"), each.get("exitCode")), each)
    return list(found.values())


def _known(backoff: SourceField) -> bool:
    found = tuple(backoff[key].value for key in ("initialSeconds", "factor", "maxSeconds"))
    return found in ((0, 1, 0), (10, 2, 300))


def _failures(job: OurJob, policies: list[dict[str, Any]]) -> None:
    """Say when the job has failed: once all pods have ended, unless a policy says otherwise."""
    failure = job.spec["failurePolicy"].block()
    failure["targetRoles"].refuse("all pods count")
    patient = failure["operator"].text("Any") == "All"
    for role in job.roles:
        each = role.source["minFailed"]
        if patient and each.value in ("100%", "All", role.replicas):
            each.drop("the job fails once all pods have ended")
        elif not patient and each.value in (None, "Any", 1):
            each.drop("the first pod that fails ends the job: a policy")
        else:
            each.settle(
                "refused",
                "Any",
                why="either the first pod that fails ends the job, or all have to end",
            )
    if patient:
        failure["operator"].drop("the job fails once all pods have ended")
    else:
        failure["operator"].settle(
            "translated",
            "Any",
            to=("spec", "policies"),
            why="the first pod that fails ends the job",
        )
        if not any(each.get("event") == "PodFailed" for each in policies):
            policies.append({"event": "PodFailed", "action": "TerminateJob"})


def _success(job: OurJob, spec: dict[str, Any]) -> None:
    policy = job.spec["successPolicy"].block()
    targets = [each.text() for each in policy["targetRoles"].items()]
    helpers = [role for role in job.roles if role.source["tracked"].flag(default=True) is False]
    for role in job.roles:
        enough, tracked = role.source["minSucceeded"], role.source["tracked"]
        if isinstance(enough.value, int) and len(job.roles) == 1:
            spec["minSuccess"] = enough.value
            enough.translate(("spec", "minSuccess"), "its name there")
        elif enough.value not in (None, "All"):
            enough.refuse("pods of all tasks are counted together")
        else:
            enough.drop("all pods have to succeed")
        if not tracked.flag(default=True) and not targets:
            tracked.refuse(
                "all pods have to succeed, unless the end of one task completes the job: successPolicy.targetRoles"
            )
        else:
            tracked.drop(
                "the task whose end completes the job decides" if helpers else "says nothing more"
            )
    if len(targets) == 1 or (targets and policy["operator"].text("All") == "Any"):
        for task in spec["tasks"]:
            if task["name"] in targets:
                task.setdefault("policies", []).append(
                    {"event": "TaskCompleted", "action": "CompleteJob"}
                )
        policy.translate(("spec", "tasks"), "a policy of the task: TaskCompleted, CompleteJob")
    elif targets and {*targets} != {role.name for role in job.roles}:
        policy.refuse("the end of one task completes the job, or that of all")
    else:
        policy.drop("all pods have to succeed")


def _scheduling(job: OurJob, document: dict[str, Any]) -> None:
    scheduling = job.spec["schedulingPolicy"].block()
    spec = document["spec"]
    total = sum(role.replicas for role in job.roles)
    gang = scheduling["gang"]
    if queue_label(job, document):
        pass
    elif gang.text("none") in ("volcano", "none"):
        gang.settle(
            "translated",
            "none",
            to=("spec", "minAvailable"),
            why="Volcano makes a gang of all pods that have to succeed",
        )
        spec["schedulerName"] = "volcano"
        for key in ("minAvailable", "queue"):
            if scheduling[key]:
                spec[key] = scheduling[key].value
                scheduling[key].keep(("spec", key))
        spec.setdefault("minAvailable", total)
    else:
        gang.refuse("a Volcano Job is a gang of Volcano")
        scheduling["queue"].refuse("a queue of another scheduler")
        scheduling["minAvailable"].refuse("of another gang")
    if scheduling["priorityClassName"]:
        spec["priorityClassName"] = scheduling["priorityClassName"].text()
        scheduling["priorityClassName"].keep(("spec", "priorityClassName"))
    scheduling["scheduleTimeoutSeconds"].refuse("pods wait for a place without an end")
