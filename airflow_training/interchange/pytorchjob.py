"""A Kubeflow PyTorchJob (`kubeflow.org/v1`) of the training operator."""

from __future__ import annotations

import re
from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.operator_jobs import (
    OperatorKind,
    operator_document,
    success_of,
    translate_roles,
)

__all__ = ["translate_pytorchjob"]

_PYTORCH = OperatorKind(
    framework="pytorch",
    replicas="pytorchReplicaSpecs",
    roles=("master", "worker"),
    container="pytorch",
    port=23456,
    restart="OnFailure",
    taken=frozenset({"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"}),
)
_TORCHRUN = re.compile(r"\btorchrun\b|torch\.distributed\.(?:run|launch)\b")
_ON_COMMAND_LINE = re.compile(r"--nproc[-_]per[-_]node\b")
_GPUS = re.compile(r".*/(?:gpu|gaudi|npu)$")


def translate_pytorchjob(source: SourceField) -> dict[str, Any]:
    """Return our document for a PyTorchJob."""
    spec = source["spec"].block()
    job = source["metadata"]["name"].text("\0")
    roles = translate_roles(spec, _PYTORCH, job)
    elastic = spec["elasticPolicy"].block()
    parameters = _elastic(elastic, roles, job) if elastic else {}
    parameters |= _processes(spec, elastic, roles)
    return operator_document(
        source,
        _PYTORCH,
        roles,
        parameters=parameters,
        success=success_of(source, roles, "master"),
    )


def _processes(
    spec: SourceField, elastic: SourceField, roles: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return how many processes torchrun starts in each instance."""
    to: Loc = ("spec", "parameters", "nprocPerNode")
    given, older = spec["nprocPerNode"], elastic["nProcPerNode"]
    if older:
        older.translate(to, "its older place")
        given.drop("elasticPolicy.nProcPerNode is given")
        return {"nprocPerNode": older.whole(1, least=1)}
    text = str(given.value) if isinstance(given.value, str | int) else "auto"
    if text.isdecimal() and int(text) > 0:
        given.translate(to, "a number here")
        return {"nprocPerNode": int(text)}
    if text not in ("auto", "cpu", "gpu"):
        allowed = ("auto", "cpu", "gpu", "a number")
        given.accounts.mistake(given.loc, "not_allowed", "must be one of these", allowed=allowed)
        return {}
    words = [word for role in roles for word in _words(role)]
    if not any(map(_TORCHRUN.search, words)):
        given.settle("dropped", "auto", why="only torchrun reads it, and no command names torchrun")
        return {}
    if any(map(_ON_COMMAND_LINE.search, words)):
        given.settle("dropped", "auto", why="the command line of torchrun says it")
        return {}
    gpus = {_gpus_of(role) for role in roles}
    if text != "cpu" and len(gpus) == 1 and (count := gpus.pop()):
        why = "a process for each GPU that an instance asks for"
        given.settle("translated", "auto", to=to, why=why)
        return {"nprocPerNode": count}
    given.settle(
        "refused",
        "auto",
        why="torchrun would count what its node has; here it starts 1 process in each instance, or"
        " parameters.nprocPerNode",
    )
    return {}


def _training_container(role: dict[str, Any]) -> dict[str, Any]:
    containers = role["template"].get("spec", {}).get("containers") or [{}]
    return dict(containers[0])


def _words(role: dict[str, Any]) -> list[str]:
    container = _training_container(role)
    return [str(word) for key in ("command", "args") for word in container.get(key) or ()]


def _gpus_of(role: dict[str, Any]) -> int:
    resources = _training_container(role).get("resources")
    limits = resources.get("limits") if isinstance(resources, dict) else None
    found = [
        int(str(amount))
        for name, amount in (limits.items() if isinstance(limits, dict) else ())
        if _GPUS.match(name) and str(amount).isdecimal()
    ]
    return sum(found)


def _elastic(elastic: SourceField, roles: list[dict[str, Any]], job: str) -> dict[str, Any]:
    """Return the parameters of an elastic job; sets the sizes of the workers."""
    parameters: dict[str, Any] = {}
    number, worker = next(
        ((i, role) for i, role in enumerate(roles) if role["name"] == "worker"), (0, None)
    )
    to: Loc = ("spec", "roles", number)
    if worker is None:
        elastic.accounts.mistake(elastic.loc, "conflict", "an elastic job needs a Worker")
        return {}
    least, most = elastic["minReplicas"], elastic["maxReplicas"]
    count = worker["replicas"]
    # what is not written is as much as the other, or as the workers
    worker["minReplicas"] = least.whole(most.whole(count))
    worker["maxReplicas"] = most.whole(least.whole(count))
    least.settle("kept", worker["minReplicas"], to=(*to, "minReplicas"), why="")
    most.settle("kept", worker["maxReplicas"], to=(*to, "maxReplicas"), why="")
    backend = elastic["rdzvBackend"]
    if backend:
        choices = ("c10d", "etcd", "etcd-v2")
        parameters["rendezvousBackend"] = backend.one_of(choices, "c10d")
        backend.translate(("spec", "parameters", "rendezvousBackend"), "its name here")
    _rendezvous(elastic, job)
    for each in elastic["rdzvConf"].items():
        value = each["value"].text()
        if each["key"].text() in ("last_call_timeout", "lastCallTimeout") and value.isdecimal():
            parameters["lastCallSeconds"] = int(value)
            each.translate(("spec", "parameters", "lastCallSeconds"), "its name here")
        else:
            each.refuse("PET_RDZV_CONF is set by the framework, which has no parameter for it")
    if elastic["maxRestarts"]:
        restarts = elastic["maxRestarts"].whole(0)
        why = "torchrun starts its processes again so often, before an instance fails"
        place = ("template", "spec", "containers", 0, "env")
        elastic["maxRestarts"].translate((*to, *place), why)
        for role in roles:
            for container in role["template"]["spec"]["containers"]:
                container.setdefault("env", []).append(
                    {"name": "PET_MAX_RESTARTS", "value": str(restarts)}
                )
    elastic["metrics"].refuse("no autoscaler changes the number of workers by metrics")
    return parameters


def _rendezvous(elastic: SourceField, job: str) -> None:
    host, port = elastic["rdzvHost"], elastic["rdzvPort"]
    if host.text(f"{job}-worker-0") != f"{job}-worker-0":
        host.refuse("the rendezvous is at the first worker; another host is not asked")
    else:
        host.drop("the rendezvous is at the first worker")
    if port.whole(_PYTORCH.port) != _PYTORCH.port:
        port.refuse(
            f"the rendezvous is at the first port of the first worker, {_PYTORCH.port} unless it names one"
        )
    else:
        port.drop("the rendezvous is at the first port of the first worker")
    elastic["rdzvId"].drop("each attempt of a run has an id of its own")
    if elastic["standalone"].flag():
        elastic["standalone"].refuse("each instance would train alone")
    else:
        elastic["standalone"].drop("says nothing")
