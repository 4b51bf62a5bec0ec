"""Warnings: what a user wrote that has no effect where instances are processes, not pods. Pure.

Only the user's own layers are looked at, never what a framework's template brings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_training.documents.layers import UserTemplate
from airflow_training.documents.paths import Loc, format_path
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.shapes import mapping, mappings
from airflow_training.errors import Problem
from airflow_training.runtimes.folders.deletion import deleted_with_run

__all__ = ["ignored"]

_POD_KEYS_USED = frozenset(
    {"containers", "initContainers", "restartPolicy", "terminationGracePeriodSeconds", "volumes"}
)
"""`restartPolicy` has its own warning; `initContainers` and `volumes` are told below."""
_CONTAINER_KEYS_USED = frozenset(
    {
        "args", "command", "env", "envFrom", "image", "name", "ports", "readinessProbe",
        "resources", "volumeMounts", "workingDir",
    }
)  # fmt: skip
"""`image` is not told: a job for both runtimes has one. `envFrom`, `volumeMounts`: below."""
_ON_KUBERNETES = "it may stay: on Kubernetes it acts"
_GPUS = "nvidia.com/gpu"

_Found = tuple[str, Loc, Any, str, str]
"""(kind, place in the merged template, value, message, hint)."""


def ignored(job: ResolvedJob) -> Iterator[Problem]:
    """Yield a warning for each kind of thing that has no effect, where it stands first."""
    for i, role in enumerate(mappings(mapping(job.document.get("spec")).get("roles"))):
        if role.get("spot"):
            yield Problem(
                code="not_supported",
                field=f"spec.roles[{i}].spot",
                message="has no effect on the local runtime: all instances are on this machine",
                hint=_ON_KUBERNETES,
            )
        if role.get("networkPolicy"):
            yield Problem(
                code="not_supported",
                field=f"spec.roles[{i}].networkPolicy",
                message="the local runtime has one network for all: nobody is kept away",
                hint=_ON_KUBERNETES,
            )
    yield from deleted_with_run(job)
    yield from _in_pods(job.document, container=job.roles[0].container)
    wanted = job.scheduling
    given = {
        "queue": wanted.queue,
        "priorityClassName": wanted.priority_class_name,
        "spread": str((wanted.spread or {}).get("topologyKey", "")),
    }
    for key, value in given.items():
        if value:
            yield Problem(
                code="not_supported",
                field=f"spec.schedulingPolicy.{key}",
                value=value,
                message="is for Kubernetes and has no effect on the local runtime",
            )


def _in_pods(document: Mapping[str, Any], *, container: str) -> Iterator[Problem]:
    spec = mapping(document.get("spec"))
    told: set[str] = set()
    for i, role in enumerate(mappings(spec.get("roles"))):
        written = UserTemplate(spec, role, ("spec", "roles", i), container=container)
        for kind, place, value, message, hint in _in_pod(written.merged, container):
            field = written.find(place)
            if kind not in told and field is not None:
                told.add(kind)
                yield Problem(
                    code="conflict" if kind == "CUDA_VISIBLE_DEVICES" else "not_supported",
                    field=format_path(field),
                    value=value,
                    message=message,
                    hint=hint,
                )


def _in_pod(template: Mapping[str, Any], container: str) -> Iterator[_Found]:
    pod = mapping(template.get("spec"))
    for i, each in enumerate(mappings(pod.get("containers"))):
        if each.get("name") == container:
            yield from _in_container(each, ("spec", "containers", i))
        else:
            yield (
                "sidecars",
                ("spec", "containers", i),
                each.get("name"),
                f"the local runtime starts only the container '{container}'",
                "start it in the background of the command, with which it ends, or beside the job",
            )
    if pod.get("initContainers"):
        yield (
            "initContainers",
            ("spec", "initContainers"),
            _names(pod["initContainers"], "name"),
            "the local runtime starts no init containers",
            "do their work at the beginning of the command, or in a task before this one",
        )
    if pod.get("volumes"):
        yield (
            "volumes",
            ("spec", "volumes"),
            _names(pod["volumes"], "name"),
            "the local runtime has no volumes: the command sees the files of this machine",
            "name their path on this machine in args or env",
        )
    yield from _unused("pod keys", pod, _POD_KEYS_USED, ("spec",))


def _in_container(own: Mapping[str, Any], here: Loc) -> Iterator[_Found]:
    if own.get("volumeMounts"):
        yield (
            "volumeMounts",
            (*here, "volumeMounts"),
            _names(own["volumeMounts"], "mountPath"),
            "the local runtime mounts nothing: these paths are those of this machine",
            "name the path on this machine in args or env",
        )
    secret = "the local runtime sets only variables that have a value"  # noqa: S105 - no secret
    instead = (
        "write its value, or list its name in [training] local_env and set it where the job"
        " is started"
    )
    if own.get("envFrom"):
        yield "envFrom", (*here, "envFrom"), None, secret, instead
    for i, entry in enumerate(mappings(own.get("env"))):
        if entry.get("valueFrom"):
            place = (*here, "env", i, "valueFrom")
            yield "valueFrom", place, entry.get("name"), secret, instead
        elif entry.get("name") == "CUDA_VISIBLE_DEVICES" and _asks_for_gpus(own):
            yield (
                "CUDA_VISIBLE_DEVICES",
                (*here, "env", i),
                entry.get("value"),
                f"it goes before the devices that are assigned for {_GPUS}: every instance of"
                " the role sees these",
                f"leave it out, or do not ask for {_GPUS}",
            )
    yield from _unused("container keys", own, _CONTAINER_KEYS_USED, here)


def _unused(
    kind: str, owner: Mapping[str, Any], used: frozenset[str], here: Loc
) -> Iterator[_Found]:
    names = [key for key in owner if key not in used]
    if names:
        message = f"no effect on the local runtime: {', '.join(names)}"
        yield kind, (*here, names[0]), None, message, _ON_KUBERNETES


def _asks_for_gpus(container: Mapping[str, Any]) -> bool:
    resources = mapping(container.get("resources"))
    return any(mapping(resources.get(kind)).get(_GPUS) for kind in ("limits", "requests"))


def _names(items: Any, key: str) -> str:
    return ", ".join(str(item.get(key)) for item in mappings(items))
