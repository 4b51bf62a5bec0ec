"""What our agent adds to a pod: an init container that holds it, and a parent of its command. Pure.

Nothing is copied into images: the `.pyz` is mounted read-only from a ConfigMap, what it writes
goes to an emptyDir. The init container meets the PodSecurity level `restricted`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.agent.order import ORDER_VARIABLE, Order
from airflow_training.agent.pod_attempts import FILES
from airflow_training.runtimes.kubernetes import names

__all__ = [
    "AGENT_FOLDER",
    "ENVIRONMENT_KEY",
    "ORDERS_FILE",
    "PROGRAM_KEY",
    "TOKEN_KEY",
    "TRAINING_FOLDER",
    "agent_volume",
    "environment_command",
    "hold_container",
    "hold_volumes",
    "live_mount",
    "order_variable",
    "order_volume",
    "resources_within",
    "wrapped_command",
]

TRAINING_FOLDER = "/training"
AGENT_FOLDER = "/.airflow-training"
PROGRAM_KEY = "agent.pyz"
ENVIRONMENT_KEY = "environment.pyz"
"""The program that makes environments, beside the agent's."""
TOKEN_KEY = "token"  # noqa: S105  # its name, not the token
"""Key of the callback token in its Secret."""

_PROGRAM = f"{AGENT_FOLDER}/program/{PROGRAM_KEY}"
_POD_FOLDER = f"{AGENT_FOLDER}/pod"
_ANSWERS_FOLDER = f"{AGENT_FOLDER}/answers"
_FILES_FOLDER = f"{AGENT_FOLDER}/files"
_ORDER_FOLDER = f"{AGENT_FOLDER}/orders"
ORDERS_FILE = f"{_ORDER_FOLDER}/order"
"""Orders to the agent of a pod that stays."""
_LIVE_FOLDER = f"{AGENT_FOLDER}/live"
_PYTHON = ("python3", "-I", "-S")
_OWN_RESOURCES = ("cpu", "memory", "ephemeral-storage")
"""What of the training container's resources the init container asks for, too."""


def agent_volume(config_map: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (volume, mount) of the agent's program."""
    volume = {"name": "airflow-training-agent", "configMap": {"name": config_map}}
    mount = {
        "name": "airflow-training-agent",
        "mountPath": f"{AGENT_FOLDER}/program",
        "readOnly": True,
    }
    return volume, mount


def hold_volumes(
    pod: str, *, live: bool, shards: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return (volumes, mounts of the init container): the answer's ways in, the live files' way out.

    The annotation reaches the pod through the downward API: pods never talk to the API server.
    """
    field = f"metadata.annotations['{names.RELEASE}']"
    release = {"path": "release", "fieldRef": {"fieldPath": field}}
    volumes: list[dict[str, Any]] = [
        {"name": "airflow-training-pod", "downwardAPI": {"items": [release]}}
    ]
    mounts: list[dict[str, Any]] = [
        {"name": "airflow-training-pod", "mountPath": _POD_FOLDER, "readOnly": True}
    ]
    if shards:
        sources = [
            {"configMap": {"name": names.answer_name(pod, shard), "optional": True}}
            for shard in range(shards)
        ]
        volumes.append({"name": "airflow-training-answers", "projected": {"sources": sources}})
        mounts.append(
            {"name": "airflow-training-answers", "mountPath": _ANSWERS_FOLDER, "readOnly": True}
        )
    if live:
        volumes.append({"name": "airflow-training-live", "emptyDir": {}})
        mounts.append({"name": "airflow-training-live", "mountPath": _LIVE_FOLDER})
        mounts.append(
            {"name": "airflow-training-files", "mountPath": _FILES_FOLDER, "readOnly": True}
        )
    return volumes, mounts


def order_volume() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (volume, mount) by which orders reach an agent, and files that it replaces while the command runs."""
    given = {"order": names.ORDER, FILES: names.FILES}
    items = [
        {"path": path, "fieldRef": {"fieldPath": f"metadata.annotations['{name}']"}}
        for path, name in given.items()
    ]
    volume = {"name": "airflow-training-order", "downwardAPI": {"items": items}}
    mount = {"name": "airflow-training-order", "mountPath": _ORDER_FOLDER, "readOnly": True}
    return volume, mount


def hold_container(
    *,
    image: str,
    pull_policy: str,
    user: int,
    mounts: Sequence[Mapping[str, Any]],
    live_keys: Mapping[str, bool],
    beside: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the init container that waits for the release, then writes what it makes possible.

    `live_keys`: key of a live file -> whether it is executable. `user`: 0 asks for none. `beside`: the
    training container.
    """
    order = Order(
        held=True,
        release_file=f"{_POD_FOLDER}/release",
        answers_dir=_ANSWERS_FOLDER,
        addresses_file=f"{TRAINING_FOLDER}/addresses.json",
        live_files={
            f"{_LIVE_FOLDER}/{key}": {"source": f"{_FILES_FOLDER}/{key}", "executable": executable}
            for key, executable in live_keys.items()
        },
    )
    security: dict[str, Any] = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if user:
        security["runAsUser"] = user
    return {
        "name": names.AGENT_CONTAINER,
        "image": image,
        **({"imagePullPolicy": pull_policy} if pull_policy else {}),
        "command": [*_PYTHON, _PROGRAM, "hold"],
        "env": [
            {"name": "TRAINING_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            order_variable(order),
        ],
        "resources": resources_within(beside),
        "securityContext": security,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [dict(mount) for mount in mounts],
    }


def resources_within(container: Mapping[str, Any]) -> dict[str, Any]:
    """The resources of an init container, so that its pod asks for nothing that it did not before.

    An init container ends before the others begin: as much as one of them adds nothing to the pod, leaves
    its class (Guaranteed, BestEffort) as it is, and is what quotas and limit ranges let that one have.
    """
    written: Mapping[str, Mapping[str, Any]] = container.get("resources") or {}
    found = {
        kind: {
            name: each for name, each in (written.get(kind) or {}).items() if name in _OWN_RESOURCES
        }
        for kind in ("requests", "limits")
    }
    return {kind: amounts for kind, amounts in found.items() if amounts}


def live_mount(key: str, path: str) -> dict[str, Any]:
    """Return the mount by which the training container finds a file that the hold has written."""
    return {
        "name": "airflow-training-live",
        "mountPath": path,
        "subPath": key,
        "readOnly": True,
    }


def wrapped_command(command: Sequence[str]) -> list[str]:
    """Return the command line of the agent as the command's parent; it needs its `order_variable`."""
    return [*_PYTHON, _PROGRAM, "run", "--", *command]


def environment_command(order: str) -> list[str]:
    """Return the command line of the program that makes an environment; what reads its storage is in the image."""
    return [*_PYTHON, f"{AGENT_FOLDER}/program/{ENVIRONMENT_KEY}", order]


def order_variable(order: Order) -> dict[str, Any]:
    """Return the variable by which an agent in a pod gets its order."""
    # `$$` is a `$` to Kubernetes, which replaces what looks like a variable
    return {"name": ORDER_VARIABLE, "value": order.text().replace("$", "$$")}
