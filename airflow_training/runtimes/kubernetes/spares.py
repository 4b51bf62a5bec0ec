"""Pods that hold places for instances: those of a role in what they ask of a node, but they do nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.documents.resolved import RunRef
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import AlreadyExists, ApiError
from airflow_training.runtimes.kubernetes.gangs import GangMarks
from airflow_training.runtimes.kubernetes.instances import gather_all
from airflow_training.runtimes.kubernetes.kinds import PODS
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.kubernetes.refusals import words_of
from airflow_training.runtimes.port import HeldSpare, InstanceRef, SpareRequest, SparesAnswer

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
                if (not key.startswith(names.MARKS) and key not in gang.annotations)
                or key == names.GENERATION
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
        self, run: RunRef, request: SpareRequest, document: Mapping[str, Any] | None
    ) -> SparesAnswer:
        """Make, and end, as many as there should be of a role; `document` is copied under names of their own."""
        role, number = request.role, request.number
        excluded = () if request.spec is None else request.spec.excluded_nodes
        found = await self._of(run, role)
        placed = [pod for pod in found if pod.node and not pod.is_over]
        useful = sorted((pod for pod in placed if pod.node not in excluded), key=_standing)
        waiting = [pod for pod in found if not pod.node and not pod.is_over]
        kept = useful[: max(0, len(useful) - request.yields)]
        yielded, kept = useful[len(kept) :], kept[:number]
        room = number - len(kept) if request.may_wait else 0
        stay = {pod.uid for pod in (*kept, *waiting[:room])}
        await self._end(run, [pod for pod in found if pod.uid not in stay])
        refused = (
            "" if document is None else await self._make(run, role, document, room - len(waiting))
        )
        return SparesAnswer(
            held=[_held(role, pod) for pod in sorted(kept, key=_since)],
            yielded=[_held(role, pod) for pod in yielded],
            refused={role: refused} if refused else {},
        )

    async def _make(self, run: RunRef, role: str, document: Mapping[str, Any], number: int) -> str:
        """Make so many pods; return why no more could be had, or nothing."""
        for _ in range(number):
            name = names.spare_name(run, role)
            made = {**document, "metadata": {**document["metadata"], "name": name}}
            try:
                await self._api.create(PODS, run.namespace, made)
            except AlreadyExists:  # an answer was lost
                continue
            except ApiError as error:  # the others are held all the same
                return words_of(error).replace(name, "of a spare")
        return ""

    async def end_all(self, run: RunRef) -> None:
        """End every spare of a run."""
        await self._end(run, await self._of(run))

    async def _end(self, run: RunRef, pods: Sequence[PodView]) -> None:
        await gather_all(
            self._api.delete(PODS, run.namespace, pod.name, uid=pod.uid, grace_seconds=1)
            for pod in pods
        )

    async def _of(self, run: RunRef, role: str = "") -> Sequence[PodView]:
        """Return those of a run, or of one of its roles, that are not about to go."""
        selector = names.spare_selector(run) + (f"={role}" if role else "")
        found, _ = await self._api.list(PODS, run.namespace, selector=selector)
        return [pod for pod in map(PodView.of, found) if pod.deletion is None]


def _standing(pod: PodView) -> tuple[bool, float]:
    """Sort so that the last gives its place up first: the newest, and none on a node that is not heard from while there is another."""
    return pod.condition("Ready").status == "True", _since(pod)


def _held(role: str, pod: PodView) -> HeldSpare:
    return HeldSpare(
        role=role, number=names.spare_number(pod.name), node=pod.node, since=_since(pod)
    )


def _since(pod: PodView) -> float:
    return pod.condition("PodScheduled").since or pod.created_at or 0.0
