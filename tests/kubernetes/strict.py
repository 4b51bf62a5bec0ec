"""What a strict API server refuses in a pod, besides wrong types: checked on plain documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from airflow_training.documents.podmodel.check import check_complete

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


def complaints(pod: dict[str, Any]) -> list[str]:
    """Return what the API server would not accept."""
    found = [str(problem) for problem in check_complete(_template(pod), ())]
    found += _metadata(pod["metadata"])
    spec = pod["spec"]
    for key in ("hostname", "subdomain"):
        if len(spec[key]) > 63 or not DNS_LABEL.fullmatch(spec[key]):
            found.append(f"{key} {spec[key]!r}")
    if spec.get("activeDeadlineSeconds", 1) < 1:
        found.append("activeDeadlineSeconds")
    volumes = [each["name"] for each in spec.get("volumes", ())]
    if len(set(volumes)) != len(volumes):
        found.append(f"volumes {volumes}")
    for volume in volumes:
        if len(volume) > 63 or not DNS_LABEL.fullmatch(volume):
            found.append(f"volume {volume!r}")
    containers = [*spec.get("initContainers", ()), *spec["containers"]]
    if len({each["name"] for each in containers}) != len(containers):
        found.append("containers of one name")
    for container in containers:
        found += [f"{container['name']}: {each}" for each in _container(container, volumes)]
    return found


def _template(pod: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": pod["metadata"], "spec": pod["spec"]}


def _metadata(metadata: dict[str, Any]) -> Iterator[str]:
    if len(metadata["name"]) > 253 or not SUBDOMAIN.fullmatch(metadata["name"]):
        yield f"name {metadata['name']!r}"
    for key, value in metadata["labels"].items():
        if not LABEL_KEY.fullmatch(key):
            yield f"label {key!r}"
        if not isinstance(value, str) or len(value) > 63 or not LABEL_VALUE.fullmatch(value):
            yield f"label {key}={value!r}"
    for key, value in metadata["annotations"].items():
        if not LABEL_KEY.fullmatch(key) or not isinstance(value, str):
            yield f"annotation {key}={value!r}"
    if sum(1 for each in metadata["ownerReferences"] if each["controller"]) > 1:
        yield "two controllers"


def _container(container: dict[str, Any], volumes: list[str]) -> Iterator[str]:
    if not container.get("image"):
        yield "no image"
    for entry in container.get("env", ()):
        if not re.fullmatch(r"[-._a-zA-Z][-._a-zA-Z0-9]*", entry["name"]):
            yield f"variable {entry['name']!r}"
        if not isinstance(entry.get("value", ""), str):
            yield f"variable {entry['name']} is {entry['value']!r}"
        if entry.get("value") and entry.get("valueFrom"):
            yield f"variable {entry['name']} has two values"
    for port in container.get("ports", ()):
        if not 1 <= port["containerPort"] <= 65535:
            yield f"port {port}"
        if len(port.get("name", "")) > 15:
            yield f"port {port}"
    paths = [mount["mountPath"].rstrip("/") for mount in container.get("volumeMounts", ())]
    if len(set(paths)) != len(paths):
        yield f"mounts {sorted(paths)}"
    for mount in container.get("volumeMounts", ()):
        if mount["name"] not in volumes:
            yield f"mount of {mount['name']!r}, which is no volume"
        if not mount["mountPath"].startswith("/") or ":" in mount["mountPath"]:
            yield f"mount at {mount['mountPath']!r}"
    for part in (*container.get("command", ()), *container.get("args", ())):
        if not isinstance(part, str):
            yield f"command {part!r}"
