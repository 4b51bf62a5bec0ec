"""Names, labels and selectors of everything a run has on a cluster. Pure.

Services and hosts are named in `frameworks.naming`, because environments list them.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from typing import Any

from airflow_training.documents.resolved import RunRef
from airflow_training.frameworks.naming import fit_label, instance_name, service_name
from airflow_training.runtimes.port import InstanceRef

__all__ = [
    "ADDRESS",
    "AGENT",
    "AGENT_CONTAINER",
    "ATTEMPT",
    "CONTAINER",
    "CONTROLLER",
    "COSCHEDULING_GROUP",
    "ENVIRONMENT_CONTAINER",
    "EPOCH",
    "FILES",
    "FILES_VOLUME",
    "GENERATION",
    "GROUP_LABELS",
    "GROUP_MARKS",
    "HELD",
    "INDEX",
    "IN_PLACE",
    "JOB",
    "JOB_ATTEMPT",
    "KEPT",
    "KEPT_UNTIL",
    "KUEUE_GROUP",
    "KUEUE_QUEUE",
    "KUEUE_RETRIABLE",
    "MANAGED_BY",
    "MARKS",
    "ORDER",
    "PORT_PROBE",
    "PROGRESS",
    "RELEASE",
    "ROLE",
    "RUN",
    "SPARE",
    "SSH_KEYS",
    "TURN",
    "UNFIT_NODES",
    "VOLCANO_GROUP",
    "agent_name",
    "answer_name",
    "attempt_of",
    "callback_secret_name",
    "controller_problem",
    "controller_selector",
    "digest8",
    "files_name",
    "group_name",
    "instance_labels",
    "instance_selector",
    "network_policy_name",
    "owner_reference",
    "pod_name",
    "record_name",
    "role_selector",
    "run_labels",
    "run_selector",
    "service_name",
    "spare_name",
    "spare_selector",
    "ssh_secret_name",
]

MANAGED_BY = "app.kubernetes.io/managed-by"
JOB = "app.kubernetes.io/name"
MARKS = "airflow-training/"
"""How our labels and annotations begin."""
CONTROLLER = "airflow-training/controller"
RUN = "airflow-training/run"
ROLE = "airflow-training/role"
INDEX = "airflow-training/index"
EPOCH = "airflow-training/epoch"
JOB_ATTEMPT = "airflow-training/job-attempt"
ATTEMPT = "airflow-training/attempt"
KEPT = "airflow-training/kept"
"""On a pod that ended and stays for people to look at: no instance any more."""
KEPT_UNTIL = "airflow-training/kept-until"
"""Annotation of a pod that stays for a look inside: epoch seconds."""
SPARE = "airflow-training/spare"
"""On a pod that holds a place for an instance of this role: no instance itself."""
GENERATION = "airflow-training/generation"
"""Annotation: the lease generation that created the object."""
CONTAINER = "airflow-training/container"
"""Annotation: the container that trains; the others are helpers."""
ADDRESS = "airflow-training/address"
"""Annotation: where other instances reach this one, `host:port`."""
PORT_PROBE = "airflow-training/port-probe"
"""Annotation: the startup probe is ours and asks for the first port, not whether it has started."""
PROGRESS = "airflow-training/progress"
"""Annotation: the address where the instance leaves its newest progress."""
SSH_KEYS = "airflow-training/ssh-keys"
"""Annotation of a role's template: where to mount the run's own ssh keys."""
AGENT = "airflow-training/agent"
"""Annotation of a role's template: `false` keeps our agent out where only the deployment wants it."""
HELD = "airflow-training/held"
"""Annotation: the instance waits for RELEASE before its command starts."""
RELEASE = "airflow-training/release"
"""Annotation: the answer that a held instance waits for, as JSON."""
IN_PLACE = "airflow-training/in-place"
"""Annotation: the next attempt can begin inside the pod."""
ORDER = "airflow-training/order"
"""Annotation: what the agent of a pod that stays is to do, as JSON."""
FILES = "airflow-training/files"
"""Annotation: what files of the instance hold that may be replaced while its command runs, as JSON."""
TURN = "airflow-training/turn"
"""Annotation: how many attempts the pod has had before the one of its labels, and the last of them."""
UNFIT_NODES = "airflow-training/unfit-nodes"
"""Annotation: which nodes its job says are to be left, as JSON, where it says so."""
AGENT_CONTAINER = "airflow-training"
ENVIRONMENT_CONTAINER = "airflow-training-environment"
"""The init container that holds an instance and writes its files."""

FILES_VOLUME = "airflow-training-files"
"""The volume of a pod with the instance's own files."""

# of those who place pods together
VOLCANO_GROUP = "scheduling.k8s.io/group-name"
"""Annotation with the name of a pod's group."""
COSCHEDULING_GROUP = "scheduling.x-k8s.io/pod-group"
KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
KUEUE_RETRIABLE = "kueue.x-k8s.io/retriable-in-group"
"""Annotation: `false` says that no replacement of the pod comes."""
GROUP_LABELS = (KUEUE_GROUP, COSCHEDULING_GROUP)
"""Labels with the name of a pod's group."""
GROUP_MARKS = (*GROUP_LABELS, KUEUE_QUEUE, KUEUE_RETRIABLE, VOLCANO_GROUP)

_OURS = "airflow-training"
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def controller_problem(controller: str) -> str:
    """Return why a deployment id cannot mark objects on Kubernetes, or an empty text."""
    if _LABEL_VALUE.fullmatch(controller):
        return ""
    return (
        f"the deployment id {controller!r} is no label value of Kubernetes: at most 63 letters,"
        " digits, '-', '_' and '.', with a letter or digit at both ends"
    )


def record_name(run: RunRef) -> str:
    """Return the name of the ConfigMap that owns everything else of the run."""
    return run.prefix


def pod_name(ref: InstanceRef, *, numbered: bool) -> str:
    """Return the pod's name: the same for every attempt, or `numbered` by attempt.

    Kueue needs numbers: it keeps a failed pod until its replacement is seen.
    """
    name = instance_name(ref.run.prefix, ref.role, ref.index)
    return f"{name}-{ref.epoch}-{ref.job_attempt}-{ref.attempt}" if numbered else name


def spare_name(run: RunRef, role: str) -> str:
    """Return a new name for a spare of a role."""
    return fit_label(f"{run.prefix}-{role}", f"-spare-{secrets.token_hex(3)}")


def spare_number(name: str) -> int:
    """Return the number of a spare, above 0, that is in its name."""
    return 1 + int(name.rpartition("-")[2], 16)


def group_name(run: RunRef, wave: int | None = None) -> str:
    """Return the name of the gang of the whole run, or of one wave; it fits into a label."""
    return run.prefix if wave is None else fit_label(run.prefix, f"-w{wave}")


def network_policy_name(run: RunRef, role: str) -> str:
    """Return the name of the policy of a role: that of its service."""
    return service_name(run.prefix, role)


def ssh_secret_name(run: RunRef) -> str:
    """Return the name of the Secret with the run's own ssh keys."""
    return f"{run.prefix}-ssh"


def callback_secret_name(run: RunRef) -> str:
    """Return the name of the Secret with the token by which instances report progress."""
    return f"{run.prefix}-callback"


def files_name(pod: str, data: Mapping[str, str]) -> str:
    """Return the name of the ConfigMap with an instance's files: another content, another name."""
    return f"{pod}-files-{digest8(json.dumps(data, sort_keys=True).encode())}"


def agent_name(run: RunRef, program: bytes) -> str:
    """Return the name of the ConfigMap with the agent's program, and what else is in it."""
    return f"{run.prefix}-agent-{digest8(program)}"


def answer_name(pod: str, shard: int) -> str:
    """Return the name of a ConfigMap with one part of a large release answer."""
    return f"{pod}-answer-{shard}"


def digest8(content: bytes) -> str:
    """Return the first 8 hex digits of the SHA-256."""
    return hashlib.sha256(content).hexdigest()[:8]


def run_labels(run: RunRef) -> dict[str, str]:
    """Return the labels of every object of a run."""
    return {MANAGED_BY: _OURS, JOB: run.job, CONTROLLER: run.controller, RUN: run.uid}


def instance_labels(ref: InstanceRef) -> dict[str, str]:
    """Return the labels of a pod: ours, and those that users of Kubeflow and JobSet know."""
    index = str(ref.index)
    return {
        **run_labels(ref.run),
        ROLE: ref.role,
        INDEX: index,
        EPOCH: str(ref.epoch),
        JOB_ATTEMPT: str(ref.job_attempt),
        ATTEMPT: str(ref.attempt),
        "training.kubeflow.org/job-name": ref.run.job,
        "training.kubeflow.org/replica-type": ref.role,
        "training.kubeflow.org/replica-index": index,
        "jobset.sigs.k8s.io/jobset-name": ref.run.job,
        "jobset.sigs.k8s.io/replicatedjob-name": ref.role,
        "jobset.sigs.k8s.io/job-index": index,
    }


def controller_selector(controller: str) -> str:
    """Return the selector of all instances of one deployment; what is kept is none any more."""
    return f"{CONTROLLER}={controller},{ROLE},!{KEPT}"


def run_selector(run: RunRef) -> str:
    """Return the selector of every object of one run."""
    return f"{CONTROLLER}={run.controller},{RUN}={run.uid}"


def instance_selector(run: RunRef) -> str:
    """Return the selector of one run's instances."""
    return f"{run_selector(run)},{ROLE},!{KEPT}"


def spare_selector(run: RunRef) -> str:
    """Return the selector of one run's spares."""
    return f"{run_selector(run)},{SPARE}"


def role_selector(run: RunRef, role: str) -> dict[str, str]:
    """Return the labels by which a role's service finds its pods."""
    return {RUN: run.uid, ROLE: role}


def owner_reference(run: RunRef, record_uid: str) -> dict[str, Any]:
    """Return the reference to the run's record; `controller` keeps other operators away."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": record_name(run),
        "uid": record_uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def attempt_of(ref: InstanceRef) -> tuple[int, int, int]:
    """Sort key of the attempts of one index."""
    return (ref.epoch, ref.job_attempt, ref.attempt)
