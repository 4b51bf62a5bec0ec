"""A RayJob of KubeRay (`ray.io/v1`): a head that runs the work, and workers that join it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from typing import Any

import yaml

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.metadata import (
    job_document,
    managed_by,
    queue_of_labels,
    suspended,
)
from airflow_training.interchange.pod_templates import HostNames, PodRules, translate_template

__all__ = ["translate_rayjob"]

HEAD = "head"
GCS = 6379
_PORTS = {"gcs-server": GCS, "dashboard": 8265, "client": 10001}
"""Of a head here, as KubeRay has them."""
_COMMAND: Loc = ("spec", "roles", 0, "command")
_HEAD_OPTIONS: Loc = ("spec", "parameters", "headOptions")
_DASHBOARD: Loc = ("spec", "parameters", "dashboard")
_RULES = PodRules(
    ours="ray",
    hosts=HostNames(re.compile(r"(?!)(?P<host>)"), lambda _: None),
    taken=frozenset({"RAY_ADDRESS"}),
)
_SHELL = re.compile(r"[$`&|;<>()*?\[\]{}~#\n]|^\s*\w+=")
"""What a shell reads as more than a word, or as a variable of its command."""
_INTERACTIVE = "InteractiveMode"
"""There is no work: the cluster stays for who submits some."""
_SUBMITTED = "an option of ray job submit, which the head calls"


def translate_rayjob(source: SourceField) -> dict[str, Any] | None:
    """Return our document for a RayJob; None: it runs on a cluster that is there already."""
    spec = source["spec"].block()
    cluster = spec["rayClusterSpec"].block()
    if spec["clusterSelector"] and not cluster:
        source.refuse(
            "the work would go to a cluster that is there already: a job brings its own instances"
        )
        return None
    if not cluster["headGroupSpec"]:
        message = "a RayJob needs a head: rayClusterSpec.headGroupSpec"
        source.accounts.mistake(spec.loc, "missing", message)
        return None
    submission = _submission(spec)
    groups = cluster["workerGroupSpecs"].items()
    names = [each["groupName"].text(f"worker-{i}") for i, each in enumerate(groups)]
    head, options, shown = _head(cluster["headGroupSpec"].block(), _command(spec, submission))
    parameters: dict[str, Any] = {}
    if options:
        parameters["headOptions"] = options
    if shown or submission:
        parameters["dashboard"] = True
    workers = [
        _workers(each, name, i + 1)
        for i, (each, name) in enumerate(zip(groups, names, strict=True))
    ]
    _cluster(cluster)
    limit = spec["backoffLimit"]
    retries = limit.whole(0)
    limit.settle(
        "translated",
        0,
        to=("spec", "restart", "maxRestarts"),
        why="a new cluster each time: head and workers begin anew together",
    )
    head["backoffLimit"] = retries
    rules: list[dict[str, Any]] = []
    if names:
        rules.append({"name": "workers", "action": "Ignore", "targetRoles": names})
        source.accounts.default(
            ("spec", "rayClusterSpec", "workerGroupSpecs"),
            "workers are made again without a limit",
            "translated",
            to=("spec", "failurePolicy", "rules", 0),
            why="Ray goes on without them meanwhile",
        )
    rules.append(
        {"name": HEAD, "action": "RestartJob" if retries else "FailJob", "targetRoles": [HEAD]}
    )
    queue = queue_of_labels(source)
    managed_by(spec["managedBy"], own="ray.io/kuberay-operator")
    return job_document(
        source,
        {
            "framework": "ray",
            **({"parameters": parameters} if parameters else {}),
            "roles": [head, *workers],
            "failurePolicy": {"targetRoles": [HEAD], "rules": rules},
            "restart": {"scope": "Instance", "maxRestarts": retries, "then": "Fail"},
            **({"schedulingPolicy": queue} if queue else {}),
            **_deadlines(spec),
            **suspended(spec["suspend"]),
        },
    )


def _deadlines(spec: SourceField) -> dict[str, Any]:
    found: dict[str, Any] = {}
    seconds, ttl, shutdown = (
        spec["activeDeadlineSeconds"],
        spec["ttlSecondsAfterFinished"],
        spec["shutdownAfterJobFinishes"],
    )
    if seconds:
        found["activeDeadlineSeconds"] = seconds.whole(1, least=1)
        seconds.translate(
            ("spec", "activeDeadlineSeconds"),
            "counts only while an instance runs: no queue, no place, no image",
        )
    if ttl:
        found["ttlSecondsAfterFinished"] = ttl.whole(0)
        ttl.translate(
            ("spec", "ttlSecondsAfterFinished"),
            "instances end with the job; this is about what is left of them",
        )
    shutdown.flag()
    shutdown.settle(
        "translated",
        value=False,
        to=("spec", "roles"),
        why="all instances end with the job"
        if shutdown.flag()
        else "the cluster stayed to be looked at; here all instances end with the job",
    )
    spec["deletionStrategy"].refuse(
        "instances end with the job, and their objects go after ttlSecondsAfterFinished"
    )
    spec["preRunningDeadlineSeconds"].refuse(
        "scheduleTimeoutSeconds counts only while an instance has no place"
    )
    return found


def _submission(spec: SourceField) -> list[str]:
    """Return the options of `ray job submit` that say more than the work itself."""
    options: list[str] = []
    mode = spec["submissionMode"]
    if (
        mode.one_of(("K8sJobMode", "HTTPMode", _INTERACTIVE, "SidecarMode"), "K8sJobMode")
        == _INTERACTIVE
    ):
        mode.refuse("somebody submits the work later: write it as entrypoint")
    else:
        mode.drop("the head runs the work itself")
    spec["submitterPodTemplate"].drop("the head runs the work itself, no pod beside it submits it")
    spec["submitterConfig"].refuse("a work that was submitted in vain is not submitted again alone")
    spec["jobId"].drop("each run has an id of its own")
    if spec["metadata"]:
        options.append(f"--metadata-json={json.dumps(spec['metadata'].block().value, default=str)}")
        spec["metadata"].translate(_COMMAND, _SUBMITTED)
    environment = spec["runtimeEnvYAML"]
    if environment.text().strip():
        try:
            options.append(f"--runtime-env-json={json.dumps(yaml.safe_load(environment.text()))}")
        except (yaml.YAMLError, TypeError):
            environment.accounts.mistake(environment.loc, "syntax", "is no YAML")
        environment.translate(_COMMAND, _SUBMITTED)
    else:
        environment.drop("says nothing")
    for key, option in (
        ("entrypointNumCpus", "entrypoint-num-cpus"),
        ("entrypointNumGpus", "entrypoint-num-gpus"),
        ("entrypointResources", "entrypoint-resources"),
    ):
        if spec[key]:
            options.append(f"--{option}={spec[key].value}")
            spec[key].translate(_COMMAND, _SUBMITTED)
    return options


def _command(spec: SourceField, submission: Sequence[str]) -> list[str]:
    """Return the command of the head: the work itself, or what submits it with these options."""
    entry = spec["entrypoint"]
    try:
        words = shlex.split(entry.text())
    except ValueError:
        entry.accounts.mistake(entry.loc, "syntax", "a quote does not end")
        return []
    if not words and spec["submissionMode"].text() == _INTERACTIVE:
        entry.drop("says nothing")
        return ["sleep", "infinity"]
    if not words:
        entry.accounts.mistake(entry.loc, "missing", "a RayJob needs an entrypoint")
        return []
    if submission:
        words = ["ray", "job", "submit", *submission, "--", *words]
        why = "ray job submit runs it at the head, as KubeRay's submitter does"
    elif _SHELL.search(entry.text()):
        words = ["bash", "-c", entry.text()]
        why = "a shell runs it at the head, as the cluster would"
    else:
        why = "runs at the head, which is where the cluster would run it"
    entry.translate(_COMMAND, why)
    return [word.replace("{{", "{{ '{{' }}") for word in words]


def _start(params: SourceField, to: Loc) -> list[str]:
    """Return options of `ray start`."""
    words: list[str] = []
    for key in params.names():
        value = params[key]
        text = str(value.value).lower() if isinstance(value.value, bool) else str(value.value)
        if key in ("block", "address", "port", "head", "node-ip-address", "dashboard-port"):
            value.drop("the framework says it")
        elif key == "include-dashboard":
            value.translate(_DASHBOARD, "a parameter of the framework")
        else:
            value.translate((*to, len(words)), "an option of ray start")
            words.append(f"--{key}" if text == "true" or not text else f"--{key}={text}")
    if not params.names():
        params.drop("says nothing")
    return words


def _pod(group: SourceField, to: Loc) -> dict[str, Any]:
    template = translate_template(group["template"], (*to, "template"), _RULES)
    group.at("template", "spec", "restartPolicy").drop(
        "an instance that ends is made anew, as KubeRay does"
    )
    for source, container in zip(
        group.at("template", "spec", "containers").items(),
        template["spec"]["containers"],
        strict=False,
    ):
        for key in ("command", "args"):
            if container.pop(key, None) is not None:
                source[key].refuse(
                    "ray start is the command; what comes before it belongs into an init container"
                )
    return template


def _head(group: SourceField, command: list[str]) -> tuple[dict[str, Any], list[str], bool]:
    """Return the role, its options of `ray start`, and whether somebody wants the dashboard."""
    to: Loc = ("spec", "roles", 0)
    group.anchor(to)
    params = group["rayStartParams"].block()
    options = _start(params, _HEAD_OPTIONS)
    shown = params["include-dashboard"]
    if not shown:
        group.accounts.default(
            (*params.loc, "include-dashboard"),
            "the dashboard is started",
            "dropped",
            why="where the work is submitted to it, it is here too; else parameters.dashboard starts it",
        )
    template = _pod(group, to)
    for container, written in zip(
        template["spec"]["containers"],
        group.at("template", "spec", "containers").items(),
        strict=False,
    ):
        container.pop("ports", None)
        if ports := _ports(written["ports"], (*to, "template", "spec", "containers", 0, "ports")):
            container["ports"] = ports
    for key in ("serviceType", "headService", "enableIngress"):
        group[key].refuse("no service or ingress is made for the dashboard")
    for key in ("resources", "labels"):
        group[key].refuse("what Ray thinks the head has: say it in rayStartParams")
    role: dict[str, Any] = {"name": HEAD, "restartPolicy": "OnFailure"}
    if command:
        role["command"] = command
    return {**role, "template": template}, options, str(shown.value).lower() == "true"


def _ports(written: SourceField, to: Loc) -> list[Any]:
    """Return the ports of a head but for those that every head has."""
    found: list[Any] = []
    for port in written.items():
        name, number = port["name"].text(), port["containerPort"].whole(0)
        if number in _PORTS.values():
            port.drop("a head has this port by itself")
        elif name in _PORTS:
            port.refuse(f"the port of {name} is {_PORTS[name]} here")
        else:
            port.keep((*to, len(found)))
            found.append(port.value)
    return found


def _workers(group: SourceField, name: str, number: int) -> dict[str, Any]:
    to: Loc = ("spec", "roles", number)
    group.block().anchor(to)
    group["groupName"].settle(
        "kept" if group["groupName"] else "translated", name, to=(*to, "name"), why=""
    )
    hosts, replicas = group["numOfHosts"], group["replicas"]
    least, most = group["minReplicas"], group["maxReplicas"]
    count = replicas.whole(least.whole(0))
    count *= max(1, hosts.whole(1))
    replicas.settle(
        "translated", count, to=(*to, "replicas"), why="times numOfHosts, where there are several"
    )
    if hosts.whole(1) > 1:
        hosts.refuse("the hosts of a replica are made again together; here each alone")
    else:
        hosts.drop("one host for each replica")
    for bound in (least, most):
        bound.whole(0)
        bound.drop("nothing changes the number of workers: there is no autoscaler")
    group["suspend"].refuse("a role is not paused alone")
    group["idleTimeoutSeconds"].drop("there is no autoscaler")
    group["scaleStrategy"].refuse("names pods of the cluster")
    for key in ("resources", "labels"):
        group[key].refuse("what Ray thinks the workers have: say it in rayStartParams")
    role: dict[str, Any] = {"name": name, "replicas": count, "restartPolicy": "OnFailure"}
    if options := _start(group["rayStartParams"].block(), (*to, "args")):
        role["args"] = options
    return {**role, "template": _pod(group, to)}


def _cluster(cluster: SourceField) -> None:
    cluster["rayVersion"].drop("that of the image counts")
    if cluster["enableInTreeAutoscaling"].flag():
        cluster["enableInTreeAutoscaling"].refuse("no autoscaler changes the number of workers")
    else:
        cluster["enableInTreeAutoscaling"].drop("no autoscaler")
    cluster["autoscalerOptions"].refuse("no autoscaler changes the number of workers")
    cluster["headServiceAnnotations"].refuse("no service is made for the head")
    cluster["gcsFaultToleranceOptions"].refuse("a head that is lost takes the work with it")
    cluster["suspend"].refuse("a cluster is not paused alone")
    cluster["authOptions"].refuse("no token is made for the cluster")
    managed_by(cluster["managedBy"], own="ray.io/kuberay-operator")
