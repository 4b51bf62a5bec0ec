"""The environment of a job in a pod: an init container makes it in a volume, of the Python of the job's image. Pure.

An environment that names an image needs none of it: its image is the one of the container.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.runtimes.environment_orders import order_of
from airflow_training.runtimes.kubernetes import inject, names
from airflow_training.runtimes.port import InstanceSpec

__all__ = [
    "environment_container",
    "environment_in_pod",
    "environment_volume",
    "makes_environment",
]

_FOLDER = f"{inject.AGENT_FOLDER}/environment"
_LINK = "current"
_TAKEN_FROM_TRAINING = ("imagePullPolicy", "envFrom", "securityContext")


def makes_environment(spec: InstanceSpec) -> bool:
    """Return whether the pod of an instance makes an environment before its command starts."""
    return spec.environment is not None and not spec.environment.image


def environment_in_pod(spec: InstanceSpec) -> dict[str, Any] | None:
    """What the agent is told of the environment; None: there is none to use."""
    if spec.environment is None or not makes_environment(spec):
        return None
    return {"title": spec.environment.title, "folder": f"{_FOLDER}/{_LINK}"}


def environment_volume() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (volume, mount) of the environment."""
    name = "airflow-training-environment"
    return {"name": name, "emptyDir": {}}, {"name": name, "mountPath": _FOLDER}


def environment_container(
    spec: InstanceSpec, beside: Mapping[str, Any], mounts: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the init container that makes it; `beside`: the training container, whose image, rights and variables it has.

    Raises ValueError for an instance without an environment.
    """
    if spec.environment is None:
        raise ValueError(spec.name)
    order = {"environment": order_of(spec.environment).to_json(), "cache": _FOLDER, "link": _LINK}
    taken = {name: beside[name] for name in _TAKEN_FROM_TRAINING if beside.get(name)}
    own = {"HOME": _FOLDER, "TMPDIR": _FOLDER, "XDG_CACHE_HOME": f"{_FOLDER}/.cache"}
    env = [dict(each) for each in beside.get("env") or () if each.get("name") not in own]
    theirs = [dict(each) for each in beside.get("volumeMounts") or ()]
    return {
        "name": names.ENVIRONMENT_CONTAINER,
        "image": str(beside.get("image") or ""),
        **taken,
        # `$$` is a `$` to Kubernetes, which replaces what looks like a variable
        "command": inject.environment_command(json.dumps(order).replace("$", "$$")),
        "env": [*env, *({"name": name, "value": value} for name, value in own.items())],
        "resources": inject.resources_within(beside),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*theirs, *(dict(each) for each in mounts)],
    }
