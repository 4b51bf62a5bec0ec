"""A pod as everything here sees one: parsed once from what the API server shows. Pure.

Only what is decided by is kept: a watch holds thousands of them.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from airflow_training.control.attempts import AttemptId
from airflow_training.control.run_output import RunOutput
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunRef
from airflow_training.documents.times import parse_time
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.port import InstanceRef

__all__ = [
    "READY_TO_START",
    "ContainerEnd",
    "ContainerStatus",
    "ContainerWait",
    "PodCondition",
    "PodDeletion",
    "PodView",
    "number_of_version",
]

READY_TO_START = "PodReadyToStartContainers"
_CONDITIONS = frozenset(
    {"PodScheduled", "Ready", "DisruptionTarget", "TerminationTarget", READY_TO_START}
)
_MARKS = ("airflow-training/", "app.kubernetes.io/", *names.GROUP_MARKS)
"""How the labels and annotations begin that are kept."""
_ORDERS = frozenset({names.RELEASE, names.ORDER, names.FILES})
"""Large, and only for the agent."""
_PHASES_OVER = frozenset({"Succeeded", "Failed"})


class PodCondition(NamedTuple):
    """One condition of a pod; all empty where it has none of that type."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    since: float | None = None


class PodDeletion(NamedTuple):
    """That somebody has asked for the end of a pod."""

    due: str
    """Until when it was given, as the server writes it."""
    due_at: float
    asked_at: float


class ContainerWait(NamedTuple):
    """What a container waits for."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEnd:
    """How a container ended."""

    exit_code: int
    signal: int | None
    reason: str
    message: str
    """"" where our agent left something: that is in the fields below."""
    started_at: float | None
    finished_at: float | None
    agent_reason: str = ""
    agent_message: str = ""
    outlived_by: str = ""
    """Processes that its command left behind, in the agent's words."""
    output: RunOutput | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStatus:
    """What the kubelet says of one container; at most one of `waiting`, `running` and `end`."""

    name: str = ""
    waiting: ContainerWait | None = None
    running: bool = False
    running_since: str = ""
    """As the server writes it."""
    running_at: float | None = None
    end: ContainerEnd | None = None
    last_end: ContainerEnd | None = None
    """Of the time before it was started again inside its pod."""
    restarts: int = 0
    started: bool = True
    """False while its startup probe has not succeeded."""

    @property
    def has_started(self) -> bool:
        """Return whether it has ever run."""
        return self.running or self.end is not None or self.last_end is not None


_NO_CONDITION = PodCondition()
_NO_STATUS = ContainerStatus()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodView:
    """One pod, as it was when the server said so."""

    name: str
    namespace: str
    uid: str
    version: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    finalizers: Sequence[str]
    owner_uid: str
    created_at: float | None
    deletion: PodDeletion | None
    node: str
    """"" before it has one."""
    gates: Sequence[str]
    container_names: Sequence[str]
    container: str
    """The name of the one that trains; the others are helpers."""
    image: str
    """Of the container that trains, as its working directory."""
    working_dir: str
    files: str
    """Name of the ConfigMap with the instance's files."""
    replaces_files: bool
    """Its agent writes files that may get another content."""
    grace_seconds: float
    life_seconds: float
    """Of its own deadline."""
    phase: str
    reason: str
    message: str
    started_at: float | None
    """Since when its own deadline runs; None before its kubelet has seen it."""
    conditions: Mapping[str, PodCondition]
    init_containers: Sequence[ContainerStatus]
    containers: Sequence[ContainerStatus]
    images_refused: Mapping[str, str] = field(default_factory=dict)
    """Container -> the registry's words, of those that were refused when it was seen before."""

    @classmethod
    def of(cls, pod: Mapping[str, Any]) -> PodView:
        """Return the view of a pod, which need not exist yet.

        Raises AttributeError, KeyError, TypeError and ValueError for what no API server shows.
        """
        metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
        annotations = _marks(metadata.get("annotations"))
        containers = spec.get("containers") or ()
        container_names = tuple(sys.intern(each["name"]) for each in containers)
        container = annotations.get(names.CONTAINER) or next(iter(container_names), "")
        main: Mapping[str, Any] = next(
            (each for each in containers if each["name"] == container), {}
        )
        return cls(
            name=metadata.get("name", ""),
            namespace=metadata.get("namespace", ""),
            uid=metadata.get("uid", ""),
            version=number_of_version(metadata.get("resourceVersion", "")),
            labels=_marks(metadata.get("labels")),
            annotations=annotations,
            finalizers=tuple(metadata.get("finalizers") or ()),
            owner_uid=next((each["uid"] for each in metadata.get("ownerReferences") or ()), ""),
            created_at=_epoch(metadata.get("creationTimestamp")),
            deletion=_deletion(metadata),
            node=spec.get("nodeName") or "",
            gates=tuple(each.get("name", "") for each in spec.get("schedulingGates") or ()),
            container_names=container_names,
            container=container,
            image=sys.intern(main.get("image") or ""),
            working_dir=main.get("workingDir") or "",
            files=_files_of(spec),
            replaces_files=names.FILES in (metadata.get("annotations") or {}),
            grace_seconds=float(spec.get("terminationGracePeriodSeconds") or 0),
            life_seconds=spec.get("activeDeadlineSeconds", math.inf),
            phase=status.get("phase") or "",
            reason=status.get("reason") or "",
            message=status.get("message") or "",
            started_at=_epoch(status.get("startTime")),
            conditions={
                each["type"]: _condition(each)
                for each in reversed(status.get("conditions") or ())  # of two the first counts
                if each.get("type") in _CONDITIONS
            },
            init_containers=_statuses(status.get("initContainerStatuses")),
            containers=_statuses(status.get("containerStatuses")),
        )

    @property
    def ref(self) -> InstanceRef:
        """Return which attempt of which instance it is by its labels; raises KeyError and ValueError for others'."""
        labels = self.labels
        generation = int(self.annotations.get(names.GENERATION, 0))
        return InstanceRef(
            run=RunRef(
                uid=labels[names.RUN],
                job=labels[names.JOB],
                namespace=self.namespace,
                controller=labels[names.CONTROLLER],
                generation=generation,
            ),
            key=InstanceKey(labels[names.ROLE], int(labels[names.INDEX])),
            attempt_id=AttemptId(
                int(labels[names.EPOCH]),
                int(labels[names.JOB_ATTEMPT]),
                int(labels[names.ATTEMPT]),
                generation,
            ),
            uid=self.uid,
        )

    @property
    def run_uid(self) -> str:
        """Return the uid of its run."""
        return self.labels[names.RUN]

    @property
    def own(self) -> ContainerStatus:
        """Return the status of the training container; an empty one while the kubelet has told none."""
        wanted = self.annotations.get(names.CONTAINER)
        found = (each for each in self.containers if wanted in (None, each.name))
        return next(found, _NO_STATUS)

    @property
    def is_over(self) -> bool:
        """Return whether nothing of it runs or ever will, though its object may stay for a while.

        A finalizer (Kueue's) keeps the object of an ended pod. A pod that is deleted before it got a
        node never gets one. On a lost node nobody knows, so such a pod is not over.
        """
        return self.phase in _PHASES_OVER or (self.deletion is not None and not self.node)

    @property
    def is_ending(self) -> bool:
        """Return whether all its containers have ended by themselves, and its last phase is to come."""
        ended = {each.name for each in self.containers if each.end is not None}
        all_ended = bool(self.container_names) and ended.issuperset(self.container_names)
        return all_ended and not self.is_over and self.deletion is None

    @property
    def training_since(self) -> str:
        """Return since when its training container runs, as a time stamp; "" where it does not."""
        return next((e.running_since for e in self.containers if e.name == self.container), "")

    @property
    def trains(self) -> bool:
        """Return whether its training container runs, as far as anybody knows."""
        return not self.is_over and bool(self.training_since)

    @property
    def has_trained(self) -> bool:
        """Return whether its training container runs, or has ended in a pod that is still there."""
        ended = any(e.name == self.container and e.end is not None for e in self.containers)
        return ended or self.trains

    def condition(self, kind: str) -> PodCondition:
        """Return its condition of a type."""
        return self.conditions.get(kind, _NO_CONDITION)

    def statuses(self) -> Iterator[ContainerStatus]:
        """Yield the statuses of all its containers, in the order in which they start."""
        yield from self.init_containers
        yield from self.containers


def _marks(found: Mapping[str, str] | None) -> Mapping[str, str]:
    return {
        sys.intern(name): sys.intern(value)
        for name, value in (found or {}).items()
        if name.startswith(_MARKS) and name not in _ORDERS
    }


def _files_of(spec: Mapping[str, Any]) -> str:
    for volume in spec.get("volumes") or ():
        if volume.get("name") == names.FILES_VOLUME:
            return str((volume.get("configMap") or {}).get("name", ""))
    return ""


def _deletion(metadata: Mapping[str, Any]) -> PodDeletion | None:
    due = metadata.get("deletionTimestamp")
    due_at = _epoch(due)
    if due_at is None:
        return None
    grace = float(metadata.get("deletionGracePeriodSeconds") or 0)
    return PodDeletion(str(due), due_at, due_at - grace)


def _condition(found: Mapping[str, Any]) -> PodCondition:
    return PodCondition(
        type=sys.intern(found["type"]),
        status=sys.intern(found.get("status") or ""),
        reason=sys.intern(found.get("reason") or ""),
        message=found.get("message") or "",
        since=_epoch(found.get("lastTransitionTime")),
    )


def _statuses(found: Iterable[Mapping[str, Any]] | None) -> Sequence[ContainerStatus]:
    return tuple(map(_container, found or ()))


def _container(found: Mapping[str, Any]) -> ContainerStatus:
    state = found.get("state") or {}
    waiting, running = state.get("waiting"), state.get("running")
    since = (running or {}).get("startedAt") or ""
    return ContainerStatus(
        name=sys.intern(found.get("name") or ""),
        waiting=None
        if waiting is None
        else ContainerWait(waiting.get("reason") or "", waiting.get("message") or ""),
        running=running is not None,
        running_since=since,
        running_at=_epoch(since),
        end=_end(state.get("terminated")),
        last_end=_end((found.get("lastState") or {}).get("terminated")),
        restarts=found.get("restartCount") or 0,
        started=found.get("started", True) is not False,
    )


def _end(ended: Mapping[str, Any] | None) -> ContainerEnd | None:
    if ended is None:
        return None
    exit_code = int(ended.get("exitCode", 0))
    message = ended.get("message") or ""
    left = _left_by_agent(message)
    number = ended.get("signal") or left.get("signal")
    if not isinstance(number, int):  # any program may leave what looks like ours
        number = None
    if not number and 128 < exit_code <= 128 + 64:
        number = exit_code - 128  # container runtimes report a signal this way
    output = left.get("output")
    return ContainerEnd(
        exit_code=exit_code,
        signal=int(number) if number else None,
        reason=ended.get("reason") or "",
        message="" if left else message.strip(),
        started_at=_epoch(ended.get("startedAt")),
        finished_at=_epoch(ended.get("finishedAt")),
        agent_reason=str(left.get("reason") or ""),
        agent_message=str(left.get("message") or ""),
        outlived_by=str(left.get("outlived_by") or ""),
        output=RunOutput.from_document(output) if isinstance(output, dict) else None,
    )


def _left_by_agent(message: str) -> Mapping[str, Any]:
    """Return what our agent left in a termination message; empty where it left nothing."""
    if "airflow-training" not in message:
        return {}
    try:
        found = json.loads(message)["airflow-training"]
    except (ValueError, TypeError, KeyError):
        return {}
    return found if isinstance(found, dict) else {}


def _epoch(text: str | None) -> float | None:
    """Return epoch seconds of a time as the API server writes it."""
    return parse_time(text).timestamp() if text else None


def number_of_version(version: str) -> int:
    """Return a resource version as a number; Kubernetes 1.35 promises that they compare."""
    try:
        return int(version)
    except ValueError:
        return 0
