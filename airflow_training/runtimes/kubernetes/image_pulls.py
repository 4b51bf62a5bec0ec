"""Images that a registry refuses for good: known once the kubelet has said so twice. Pure.

Older kubelets say why only with `ErrImagePull`, and seconds later just that they wait. So what a container
waited for goes on with its pod, as long as this process sees it.
"""

from __future__ import annotations

import dataclasses

from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.kubernetes.reasons import is_final

__all__ = ["refused_twice", "with_earlier_message"]

_FIRST, _AGAIN = "ErrImagePull", "ImagePullBackOff"


def with_earlier_message(pod: PodView, before: PodView | None) -> PodView:
    """Return a pod with what was said of its images when it was seen `before`."""
    if before is None or before.uid != pod.uid:
        return pod
    said = {**before.images_refused, **_refused(before)}
    return dataclasses.replace(pod, images_refused=said) if said else pod


def refused_twice(pod: PodView, container: str, reason: str, message: str) -> str:
    """Return the registry's words for an image that it refuses for good, once they were said twice."""
    if reason != _AGAIN:
        return ""
    return message if is_final(reason, message) else pod.images_refused.get(container, "")


def _refused(pod: PodView) -> dict[str, str]:
    return {
        each.name: each.waiting.message
        for each in pod.statuses()
        if each.waiting is not None
        and each.waiting.reason == _FIRST
        and is_final(_FIRST, each.waiting.message)
    }
