"""Pods that hold places for instances: those of a role in what they ask of a node, but they do nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.documents.resolved import RunRef
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.gangs import GangMarks
from airflow_training.runtimes.kubernetes.instances import gather_all
from airflow_training.runtimes.kubernetes.kinds import PODS
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.port import HeldSpare, InstanceRef

__all__ = ["Spares", "spare_document"]

_IDLE = ["sleep", "infinity"]
"""An image without it restarts again and again: the place is held all the same."""
_OF_A_CONTAINER = frozenset(
    {"name", "image", "imagePullPolicy", "resources", "securityContext", "resizePolicy"}
)
_OF_AN_INSTANCE = frozenset(
    {
        "activeDeadlineSeconds",
        "containers",
        "ephemeralContainers",
        "hostname",
        "initContainers",
        "readinessGates",
        "restartPolicy",
        "schedulingGates",
        "subdomain",
        "terminationGracePeriodSeconds",
        "volumes",
    }
)
"""What a spare does not have of the pod of an instance, or has otherwise."""


def spare_document(
    instance: Mapping[str, Any], ref: InstanceRef, gang: GangMarks, *, scheduler_name: str = ""
) -> dict[str, Any]:
    """Return a spare that asks for the place that the pod of an instance asks for.

    It is in no gang, so the scheduler that places gangs need not know it: `scheduler_name` is that of the template.
    """
    metadata, spec = instance["metadata"], instance["spec"]
    ours = {*names.instance_labels(ref), *gang.labels}
    labels = {key: value for key, value in metadata["labels"].items() if key not in ours}
    sidecars = [
        each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"
    ]
    made = {key: value for key, value in spec.items() if key not in _OF_AN_INSTANCE}
    made.pop("schedulerName", None)
    if scheduler_name:
        made["schedulerName"] = scheduler_name
    return {
        **instance,
        "metadata": {
            "name": names.spare_name(ref.run, ref.role),
            "namespace": metadata["namespace"],
            "labels": {**labels, **names.run_labels(ref.run), names.SPARE: ref.role},
            "annotations": {
                key: value
                for key, value in metadata["annotations"].items()
                if not key.startswith(names.MARKS) and key not in gang.annotations
            },
            "ownerReferences": metadata["ownerReferences"],
        },
        "spec": {
            **made,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    **{key: value for key, value in each.items() if key in _OF_A_CONTAINER},
                    "command": _IDLE,
                }
                for each in (*spec["containers"], *sidecars)
            ],
        },
    }


class Spares:
    """The spares of one cluster."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def hold(
        self,
        run: RunRef,
        role: str,
        document: Mapping[str, Any],
        *,
        number: int,
        yields: int,
        may_wait: bool,
    ) -> Sequence[HeldSpare]:
        """Make, and end, as many as there should be of a role; `document` is copied under names of their own."""
        found = await self._of(run, role)
        over = [pod for pod in found if pod.is_over]
        placed = sorted((p for p in found if p.node and not p.is_over), key=_since)
        waiting = [pod for pod in found if not pod.node and not pod.is_over]
        kept = placed[: max(0, len(placed) - yields)][:number]
        room = number - len(kept) if may_wait else 0
        ended = [*over, *placed[len(kept) :], *waiting[room:]]
        await gather_all(
            self._api.delete(PODS, run.namespace, pod.name, uid=pod.uid, grace_seconds=1)
            for pod in ended
        )
        for _ in range(room - len(waiting)):
            metadata = {**document["metadata"], "name": names.spare_name(run, role)}
            await self._api.create(PODS, run.namespace, {**document, "metadata": metadata})
        return [
            HeldSpare(role=role, name=pod.name, node=pod.node, since=_since(pod)) for pod in kept
        ]

    async def end_all(self, run: RunRef) -> None:
        """End every spare of a run."""
        found = await self._of(run)
        await gather_all(
            self._api.delete(PODS, run.namespace, pod.name, uid=pod.uid, grace_seconds=1)
            for pod in found
        )

    async def _of(self, run: RunRef, role: str = "") -> Sequence[PodView]:
        """Return those of a run, or of one of its roles, that are not about to go."""
        selector = names.spare_selector(run) + (f"={role}" if role else "")
        found, _ = await self._api.list(PODS, run.namespace, selector=selector)
        return [pod for pod in map(PodView.of, found) if pod.deletion is None]


def _since(pod: PodView) -> float:
    return pod.started_at or pod.created_at or 0.0
