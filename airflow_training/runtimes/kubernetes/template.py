"""The pod template of an instance: its role's, with the training container as it was rendered. Pure."""

from __future__ import annotations

from typing import Any

from airflow_training.frameworks.pods import container_env, training_container
from airflow_training.runtimes.port import InstanceSpec

__all__ = ["template_of"]


def template_of(spec: InstanceSpec) -> dict[str, Any]:
    """Return the whole PodTemplateSpec; what the user wrote of the container stays."""
    template, name = spec.resolved.template, spec.container
    pod = dict(template.get("spec") or {})
    containers = [dict(each) for each in pod.get("containers") or ()]
    own = next((each for each in containers if each.get("name") == name), None)
    if own is None:
        own = {"name": name}
        containers.insert(0, own)
    users = [
        {**entry, "value": spec.env.get(entry["name"], entry["value"])}
        if isinstance(entry.get("value"), str)
        else dict(entry)
        for entry in container_env(training_container(template, None, name=name))
    ]
    theirs = {entry["name"] for entry in users}
    own["env"] = [
        # ours first: the user's values may refer to them as $(NAME)
        *({"name": key, "value": value} for key, value in spec.env.items() if key not in theirs),
        *users,
    ]
    if spec.command:
        own["command"] = list(spec.command)
    if spec.args:
        own["args"] = list(spec.args)
    written = {port.get("name"): port for port in own.get("ports") or ()}
    own["ports"] = [
        written.get(key, {"name": key, "containerPort": value}) for key, value in spec.ports.items()
    ]
    return {**template, "spec": {**pod, "containers": containers}}
