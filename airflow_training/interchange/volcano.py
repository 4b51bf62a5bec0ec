"""A Volcano Job (`batch.volcano.sh/v1alpha1`): each task becomes a role, its policies become rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.batch_job import CONTAINER, first_port
from airflow_training.interchange.metadata import job_document, queue_of_labels
from airflow_training.interchange.pod_templates import HostNames, PodRules, translate_template
from airflow_training.interchange.run_policy import NO_LIMIT
from airflow_training.interchange.volcano_policies import policies_of, success_of

__all__ = ["translate_volcano"]

FOR_EVER = 31_536_000
_BACKOFF = {"initialSeconds": 0, "factor": 1, "maxSeconds": 0}
_KUBELET = {"initialSeconds": 10, "factor": 2, "maxSeconds": 300}
_PLUGIN_FRAMEWORKS: Mapping[str, tuple[str, str, frozenset[str], frozenset[str]]] = {
    "pytorch": (
        "pytorch",
        "pytorch",
        frozenset({"master", "worker"}),
        frozenset({"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"}),
    ),
    "tensorflow": (
        "tensorflow",
        "tensorflow",
        frozenset({"ps", "worker", "chief", "evaluator"}),
        frozenset({"TF_CONFIG"}),
    ),
}
"""Plugin -> our framework, its container, the tasks that it knows by default, and the variables that it sets."""


@dataclass(frozen=True, slots=True)
class _Task:
    source: SourceField
    name: str
    replicas: int
    number: int

    @property
    def to(self) -> Loc:
        return ("spec", "roles", self.number)


def translate_volcano(source: SourceField) -> dict[str, Any]:
    """Return our document for a Volcano Job."""
    spec = source["spec"].block()
    tasks = list(_tasks(spec["tasks"]))
    if not tasks:
        source.accounts.mistake(spec["tasks"].loc, "missing", "a Volcano Job needs a task")
    framework, container, taken = _framework(spec["plugins"].block(), tasks)
    roles = [_role(task, tasks, source, container, taken) for task in tasks]
    _volumes(spec["volumes"], roles)
    restarted = any(role["restartPolicy"] != "Never" for role in roles)
    rules, completes = policies_of(spec, [(task.source, task.name) for task in tasks], roles)
    limit = spec["maxRetry"]
    retries = limit.whole(3)
    if any(str(rule["action"]).startswith("Restart") for rule in rules):
        for role in roles:
            # a rule restarts within the limit of the instance, too, which is never to decide
            role["backoffLimit"] = max(role["backoffLimit"], retries)
    if not any(str(rule["action"]).startswith("Restart") for rule in rules):
        limit.settle("dropped", 3, why="no policy restarts the job")
    elif restarted and all("onClasses" in rule for rule in rules):
        why = "only evictions restart the job, and these use up no limit here"
        limit.settle("translated", 3, to=("spec", "failurePolicy", "rules"), why=why)
    elif restarted:
        limit.settle(
            "refused",
            3,
            why="restarts of containers inside their pods had no limit, and here all restarts are counted together",
        )
    else:
        to: Loc = ("spec", "restart", "maxRestarts")
        limit.settle(
            "translated",
            3,
            to=to,
            why="restarts after an eviction are counted too, but use up no limit",
        )
    failure: dict[str, Any] = {"operator": "All", **({"rules": rules} if rules else {})}
    success = success_of(spec, [(task.name, task.replicas) for task in tasks], roles, completes)
    source.accounts.default(
        ("spec", "policies"),
        "a pod that fails ends nothing",
        "translated",
        to=("spec", "failurePolicy", "operator"),
        why="the others go on, and the job fails once all have ended, unless a policy says otherwise",
    )
    return job_document(
        source,
        {
            "framework": framework,
            "roles": roles,
            **success,
            "failurePolicy": failure,
            "restart": {
                "scope": "Instance",
                "maxRestarts": NO_LIMIT if restarted else retries,
                "then": "Fail",
                "backoff": dict(_KUBELET if restarted else _BACKOFF),
            },
            **_scheduling(source, spec, tasks),
            **_ttl(spec["ttlSecondsAfterFinished"]),
        },
    )


def _ttl(seconds: SourceField) -> dict[str, Any]:
    seconds.translate(
        ("spec", "ttlSecondsAfterFinished"),
        "the pods go as they did; the run stays in the history, with its logs",
    )
    return {"ttlSecondsAfterFinished": seconds.whole(0)} if seconds else {}


def _tasks(source: SourceField) -> Sequence[_Task]:
    found: list[_Task] = []
    for number, each in enumerate(source.items()):
        each.block()
        name = each["name"].text(f"default{number}")
        if any(task.name == name for task in found):
            source.accounts.mistake(each["name"].loc, "duplicate", f"two tasks are called {name!r}")
        count = each["replicas"].whole(1)
        found.append(_Task(each, name, count, number))
    return found


def _framework(plugins: SourceField, tasks: Sequence[_Task]) -> tuple[str, str, frozenset[str]]:
    """Return framework, name of its container, and variables that its plugin set."""
    chosen: tuple[str, str, frozenset[str]] = ("custom", CONTAINER, frozenset())
    names = {task.name for task in tasks}
    for name in plugins.names():
        plugin = plugins[name]
        if name in ("env", "svc"):
            plugin.translate(
                ("spec", "roles"), "each instance knows its index, and address() names hosts"
            )
        elif name in _PLUGIN_FRAMEWORKS and names <= _PLUGIN_FRAMEWORKS[name][2]:
            framework, container, _, taken = _PLUGIN_FRAMEWORKS[name]
            chosen = (framework, container, taken)
            plugin.translate(("spec", "framework"), "the framework sets the same variables")
            for word in plugin.items():
                option, _, value = word.text().lstrip("-").partition("=")
                if option != "port" and option != value:
                    word.refuse(f"the framework calls this role {option!r}")
        elif name == "ssh":
            plugin.refuse(
                "no instance is given keys to log in at the others: framework mpi has its own"
            )
        else:
            plugin.refuse("is not known here, so nobody can say what it adds to the pods")
    return chosen


def _role(
    task: _Task, tasks: Sequence[_Task], source: SourceField, container: str, taken: frozenset[str]
) -> dict[str, Any]:
    each, to = task.source, task.to
    each.anchor(to)
    each["name"].settle("kept", task.name, to=(*to, "name"), why="")
    each["replicas"].settle("kept", 1, to=(*to, "replicas"), why="")
    least = each["minAvailable"]
    if least and least.whole(task.replicas) != task.replicas:
        least.refuse("a gang counts instances of all roles together: minAvailable of the job")
    else:
        least.drop("all of its pods")
    if each["topologyPolicy"].text("none") not in ("", "none"):
        each["topologyPolicy"].refuse("no scheduler of ours looks at NUMA nodes")
    else:
        each["topologyPolicy"].drop("says nothing")
    each["partitionPolicy"].refuse("instances of a role are not divided into groups")
    each["maxRetry"].drop("nothing but the job is restarted with a limit")
    policy = each.at("template", "spec", "restartPolicy")
    value = policy.one_of(("Always", "OnFailure", "Never"), "Always")
    policy.settle(
        "translated",
        "Always",
        to=(*to, "restartPolicy"),
        why="the pod has failed for good then"
        if value == "Never"
        else "the kubelet started the container again in its pod, without a limit; here there is a new pod",
    )
    depends = _depends(each["dependsOn"].block(), to, tasks)
    rules = _pod_rules(task, tasks, source, container, taken)
    template = translate_template(each["template"], (*to, "template"), rules)
    _of_plugins(each["template"], source["spec"]["plugins"])
    scheduler = source["spec"]["schedulerName"]
    if not each.at("template", "spec", "schedulerName") and scheduler.text("volcano") != "volcano":
        template["spec"]["schedulerName"] = scheduler.text()
    return {
        "name": task.name,
        "replicas": task.replicas,
        "restartPolicy": value,
        "backoffLimit": 0 if value == "Never" else NO_LIMIT,
        "minFailed": "100%",
        **({"dependsOn": depends} if depends else {}),
        "template": template,
    }


def _of_plugins(template: SourceField, plugins: SourceField) -> None:
    """Refuse words that read what plugins put into the pods."""
    for container in template.at("spec", "containers").items():
        for word in [*container["command"].items(), *container["args"].items()]:
            if isinstance(word.value, str) and re.search(
                r"/etc/volcano\b|\bVC_\w+_(?:HOSTS|NUM)\b", word.value
            ):
                word.refuse(
                    "reads the hosts as a plugin of Volcano told them: addresses() names them here"
                )
                plugins["svc"].refuse("its files and variables are read, and not there")


def _depends(source: SourceField, to: Loc, tasks: Sequence[_Task]) -> list[dict[str, Any]]:
    names = [each.text() for each in source["name"].items()]
    for each in source["name"].items():
        if each.text() not in {task.name for task in tasks}:
            message = f"no task is called {each.text()!r}"
            source.accounts.mistake(
                each.loc, "unknown_role", message, allowed=[t.name for t in tasks]
            )
    source["name"].translate(
        (*to, "dependsOn"), "waits until their pods are ready; a year in place of no time-out"
    )
    iteration = source["iteration"]
    if iteration.one_of(("any", "all"), "all") == "any" and len(names) > 1:
        iteration.refuse("every dependency has to be met")
    else:
        iteration.drop("says nothing more")
    return [{"role": name, "status": "Ready", "timeoutSeconds": FOR_EVER} for name in names]


def _pod_rules(
    task: _Task, tasks: Sequence[_Task], source: SourceField, container: str, taken: frozenset[str]
) -> PodRules:
    job = source["metadata"]["name"].text("\0")
    known = {each.name: each.replicas for each in tasks}
    names = "|".join(re.escape(name) for name in known)
    ports: dict[str, int] = {}
    for each in tasks:
        ports |= first_port(each.source["template"], each.name)
    indexed = source["spec"]["plugins"]["env"]
    return PodRules(
        container=container if container != CONTAINER else "",
        ours=container,
        env={"VC_TASK_INDEX": "$(TRAINING_INDEX)", "VK_TASK_INDEX": "$(TRAINING_INDEX)"}
        if indexed
        else {},
        named={
            "volcano.sh/job-name": job,
            "volcano.sh/task-index": "$(TRAINING_INDEX)",
            "volcano.sh/task-spec": task.name,
        },
        taken=taken,
        hosts=HostNames(
            re.compile(
                rf"(?<![\w-])(?P<host>{re.escape(job)}-(?P<task>{names})-(?P<i>\d+)"
                r"(?:\.[a-z][\w.-]*)?)(?![\w-])(?::(?P<port>\d+))?"
            ),
            lambda match: (
                (match["task"], int(match["i"])) if int(match["i"]) < known[match["task"]] else None
            ),
        ),
        ports=ports,
    )


def _volumes(source: SourceField, roles: Sequence[dict[str, Any]]) -> None:
    for number, each in enumerate(source.items()):
        claim, path = each["volumeClaimName"], each["mountPath"].text()
        if not path:
            source.accounts.mistake(each.loc, "missing", "a volume needs a mountPath")
        if not claim:
            each.refuse("volumes are not made with a run: name a claim that is there")
            continue
        each["volumeClaim"].refuse("volumes are not made with a run: the claim has to be there")
        name = f"job-{number}"
        for key in ("volumeClaimName", "mountPath"):
            each[key].translate(
                ("spec", "roles", 0, "template", "spec", "volumes"),
                "mounted in every pod, as there",
            )
        volume = {"name": name, "persistentVolumeClaim": {"claimName": claim.text()}}
        for role in roles:
            pod = role["template"]["spec"]
            _add(pod, "volumes", volume)
            for container in pod["containers"]:
                _add(container, "volumeMounts", {"name": name, "mountPath": path})


def _add(owner: dict[str, Any], key: str, item: dict[str, Any]) -> None:
    """Add to a list; what is none is a mistake that the document tells."""
    if isinstance(owner.setdefault(key, []), list):
        owner[key].append(item)


def _scheduling(source: SourceField, spec: SourceField, tasks: Sequence[_Task]) -> dict[str, Any]:
    to: Loc = ("spec", "schedulingPolicy")
    found: dict[str, Any] = {}
    total = sum(task.replicas for task in tasks)
    scheduler, least = spec["schedulerName"], spec["minAvailable"]
    needed = least.whole(total) or total
    if needed > total:
        message = f"minAvailable is {needed}, and there are {total} pods"
        source.accounts.mistake(least.loc, "out_of_range", message)
    labelled = queue_of_labels(source)
    if labelled:
        found |= labelled
        scheduler.drop("the label names a queue, which is the gang")
        least.settle(
            "refused" if needed < total else "dropped",
            total,
            why="the queue of the label waits for all pods",
        )
        spec["queue"].refuse("the job waits in the queue that its label names")
    elif scheduler.text("volcano") == "volcano":
        found |= {"gang": "volcano", "minAvailable": max(1, needed)}
        scheduler.settle("translated", "volcano", to=(*to, "gang"), why="a pod group of Volcano")
        least.settle(
            "translated",
            "all",
            to=(*to, "minAvailable"),
            why="pods that have to find a place before any starts",
        )
        if spec["queue"]:
            found["queue"] = spec["queue"].text()
            spec["queue"].keep((*to, "queue"))
    else:
        scheduler.translate(
            ("spec", "roles", 0, "template", "spec", "schedulerName"), "of every pod"
        )
        least.refuse("only Volcano's scheduler makes its gangs")
        spec["queue"].refuse("only Volcano's scheduler has its queues")
    if spec["priorityClassName"]:
        found["priorityClassName"] = spec["priorityClassName"].text()
        spec["priorityClassName"].keep((*to, "priorityClassName"))
    spec["networkTopology"].refuse(
        "no scheduler of ours is told about levels of the network: spread does it by labels of nodes"
    )
    spec["runningEstimate"].drop("only tells others how long it may take")
    return {"schedulingPolicy": found} if found else {}
