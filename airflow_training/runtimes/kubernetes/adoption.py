"""What to do when a pod of the wanted name is there already. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.port import InstanceRef

__all__ = ["AdoptionVerdict", "judge"]


@dataclass(frozen=True, slots=True)
class AdoptionVerdict:
    """`adopt` it, `replace` it (it is over), `wait` until it is gone, or leave it alone."""

    step: Literal["adopt", "replace", "wait", "refuse", "foreign"]
    message: str = ""


def judge(pod: PodView, wanted: InstanceRef) -> AdoptionVerdict:
    """Verdict on an existing pod for the attempt that is wanted."""
    name, labels = pod.name, pod.labels
    owner = (labels.get(names.CONTROLLER), labels.get(names.RUN))
    if owner != (wanted.run.controller, wanted.run.uid):
        whose = f"run {owner[1]} of {owner[0]}" if owner[1] else "somebody else"
        return AdoptionVerdict("foreign", f"pod {name} belongs to {whose}: it is not touched")
    try:
        found = names.attempt_of(pod.ref)
    except (KeyError, ValueError):
        return AdoptionVerdict("foreign", f"pod {name} has lost its labels: it is not touched")
    mine = names.attempt_of(wanted)
    if found > mine:
        return AdoptionVerdict(
            "refuse", f"a newer attempt of {wanted.role} {wanted.index} exists: {name}"
        )
    if pod.deletion is not None:
        if pod.is_over and found == mine:
            return AdoptionVerdict("adopt")
        return AdoptionVerdict("wait", f"pod {name} still terminates on {pod.node or 'no node'}")
    if names.KEPT in labels:
        return AdoptionVerdict("replace")
    if found == mine:
        return AdoptionVerdict("adopt")
    if pod.is_over:
        return AdoptionVerdict("replace")
    return AdoptionVerdict(
        "refuse", f"attempt {found[-1]} of {wanted.role} {wanted.index} lives: {name}"
    )
