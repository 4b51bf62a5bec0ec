"""Images that a registry refuses for good: known once the kubelet has said so twice. Pure.

Older kubelets say why only with `ErrImagePull`, and seconds later just that they wait. So what a container
waited for goes on with its pod, as long as this process sees it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_training.runtimes.kubernetes.reasons import is_final

__all__ = ["IMAGES_REFUSED", "refused_twice", "with_earlier_message"]

_FIRST, _AGAIN = "ErrImagePull", "ImagePullBackOff"
IMAGES_REFUSED = "imagesRefused"
"""Of a pod's status as we keep it: container -> the registry's words."""


def with_earlier_message(
    pod: Mapping[str, Any], before: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """Return a pod with what was said of its images when it was seen `before`."""
    if before is None or before["metadata"]["uid"] != pod["metadata"]["uid"]:
        return pod
    said = {**_status(before).get(IMAGES_REFUSED, {}), **dict(_refused(before))}
    return {**pod, "status": {**_status(pod), IMAGES_REFUSED: said}} if said else pod


def refused_twice(pod: Mapping[str, Any], container: str, reason: str, message: str) -> str:
    """Return the registry's words for an image that it refuses for good, once they were said twice."""
    if reason != _AGAIN:
        return ""
    if is_final(reason, message):
        return message
    return str(_status(pod).get(IMAGES_REFUSED, {}).get(container, ""))


def _refused(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in ("initContainerStatuses", "containerStatuses"):
        for each in _status(pod).get(key) or ():
            waiting = (each.get("state") or {}).get("waiting") or {}
            message = waiting.get("message") or ""
            if waiting.get("reason") == _FIRST and is_final(_FIRST, message):
                yield each.get("name", ""), message


def _status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return pod.get("status") or {}
