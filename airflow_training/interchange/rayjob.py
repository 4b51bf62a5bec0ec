"""A RayJob of KubeRay (`ray.io/v1`): a head that submits the work to itself, and workers that join it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from typing import Any

import yaml

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.batch_job import CONTAINER
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
FOR_EVER = 31_536_000
_COMMAND: Loc = ("spec", "roles", 0, "template", "spec", "containers", 0, "command")
_HOSTS = HostNames(re.compile(r"(?!)(?P<host>)"), lambda _: None)
_ENTRY = "ray job submit runs it at the head, as KubeRay's submitter does"


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
    submit = _submission(spec)
    groups = cluster["workerGroupSpecs"].items()
    names = [each["groupName"].text(f"worker-{i}") for i, each in enumerate(groups)]
    head = _head(cluster["headGroupSpec"].block(), submit)
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
            "framework": "custom",
            "roles": [head, *workers],
            "successPolicy": {"targetRoles": [HEAD]},
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
    """Return the words of `ray job submit`."""
    entry = spec["entrypoint"]
    options: list[str] = []
    mode = spec["submissionMode"]
    if (
        mode.one_of(("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"), "K8sJobMode")
        == "InteractiveMode"
    ):
        mode.refuse("somebody submits the work later: write it as entrypoint")
    else:
        mode.drop("the head submits the work itself")
    spec["submitterPodTemplate"].drop("the head submits the work itself, no pod beside it does")
    spec["submitterConfig"].refuse("a work that was submitted in vain is not submitted again alone")
    spec["jobId"].drop("each run has an id of its own")
    if spec["metadata"]:
        options.append(f"--metadata-json={json.dumps(spec['metadata'].block().value, default=str)}")
        spec["metadata"].translate(_COMMAND, "an option of ray job submit")
    environment = spec["runtimeEnvYAML"]
    if environment.text().strip():
        try:
            options.append(f"--runtime-env-json={json.dumps(yaml.safe_load(environment.text()))}")
        except (yaml.YAMLError, TypeError):
            environment.accounts.mistake(environment.loc, "syntax", "is no YAML")
        environment.translate(_COMMAND, "an option of ray job submit")
    else:
        environment.drop("says nothing")
    for key, option in (
        ("entrypointNumCpus", "entrypoint-num-cpus"),
        ("entrypointNumGpus", "entrypoint-num-gpus"),
        ("entrypointResources", "entrypoint-resources"),
    ):
        if spec[key]:
            options.append(f"--{option}={spec[key].value}")
            spec[key].translate(_COMMAND, "an option of ray job submit")
    try:
        words = shlex.split(entry.text())
    except ValueError:
        entry.accounts.mistake(entry.loc, "syntax", "a quote does not end")
        words = []
    entry.translate(_COMMAND, _ENTRY)
    return [*options, "--", *(word.replace("{{", "{{ '{{' }}") for word in words)] if words else []


def _start(params: SourceField, to: Loc) -> str:
    """Return options of `ray start`."""
    words = []
    for key in params.names():
        value = params[key]
        text = str(value.value).lower() if isinstance(value.value, bool) else str(value.value)
        if key in ("block", "address", "port", "head", "node-ip-address"):
            value.drop("the command says it")
        else:
            words.append(
                f"--{key}" if text == "true" or not text else f"--{key}={shlex.quote(text)}"
            )
            value.translate(to, "an option of ray start")
    if not params.names():
        params.drop("says nothing")
    return "".join(f" {word}" for word in words)


def _pod(group: SourceField, to: Loc, command: Sequence[str]) -> dict[str, Any]:
    template = translate_template(
        group["template"], (*to, "template"), PodRules(ours=CONTAINER, hosts=_HOSTS)
    )
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
        container["command"] = list(command)
    return template


def _head(group: SourceField, submit: Sequence[str]) -> dict[str, Any]:
    to: Loc = ("spec", "roles", 0)
    group.anchor(to)
    options = _start(group["rayStartParams"].block(), _COMMAND)
    start = f"ray start --head --port=${{TRAINING_ADDRESS##*:}}{options}"
    script = (
        f'{start} && exec ray job submit --address=http://127.0.0.1:8265 "$@"'
        if submit
        else f"{start} --block"
    )
    words = ["bash", "-c", script, *(["bash", *submit] if submit else [])]
    template = _pod(group, to, words)
    for container in template["spec"]["containers"]:
        written = container.get("ports")
        ports = [
            each
            for each in (written if isinstance(written, list) else [])
            if not isinstance(each, dict) or each.get("containerPort") != GCS
        ]
        container["ports"] = [{"name": "gcs-server", "containerPort": GCS}, *ports]
    for declared in (
        each["ports"] for each in group.at("template", "spec", "containers").items()[:1]
    ):
        declared.translate(
            (*to, "template", "spec", "containers", 0, "ports"),
            "that of the head stands first: address() names it",
        )
    for key in ("serviceType", "headService", "enableIngress"):
        group[key].refuse("no service or ingress is made for the dashboard")
    for key in ("resources", "labels"):
        group[key].refuse("what Ray thinks the head has: say it in rayStartParams")
    return {"name": HEAD, "restartPolicy": "OnFailure", "template": template}


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
    options = _start(
        group["rayStartParams"].block(), (*to, "template", "spec", "containers", 0, "command")
    )
    script = f'exec ray start --address="$1"{options} --block'
    return {
        "name": name,
        "replicas": count,
        "tracked": False,
        "restartPolicy": "OnFailure",
        "dependsOn": [{"role": HEAD, "status": "PortOpen", "timeoutSeconds": FOR_EVER}],
        "template": _pod(group, to, ["bash", "-c", script, "bash", "{{ address('head', 0) }}"]),
    }


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
