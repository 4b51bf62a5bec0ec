"""Attempts that follow one another inside one pod: which one it runs, and the orders for them. Pure.

Labels and the annotation TURN say what a pod is to run; that it does, its agent reports. Until then it
is still the attempt before. Each attempt has a uid of its own: the pod's, and from the second one on
its turn behind it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_training.agent.order import ORDER_VARIABLE
from airflow_training.agent.pod_attempts import BEGINS
from airflow_training.control.attempts import AttemptId
from airflow_training.control.observations import Observation
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.port import InstanceRef

if TYPE_CHECKING:
    from typing_extensions import Unpack  # of `typing` from 3.11 on

    from airflow_training.agent.order import AgentCommand

__all__ = [
    "FOR_LOOK_INSIDE",
    "FOR_NEXT_ATTEMPT",
    "AgentReport",
    "first_log_line",
    "intended_uid",
    "is_ahead",
    "kept_until",
    "newest_agent_report",
    "number_of",
    "order_for",
    "ref_of",
    "restart_marks",
    "stays_now",
    "text_of",
    "with_agent_report",
]


FOR_NEXT_ATTEMPT, FOR_LOOK_INSIDE = "true", "look"
"""What the annotation IN_PLACE says that the agent of a pod waits for, once its command has failed."""
_LONGEST_SECONDS = 8 * 86400.0
"""More than a pod can be asked to stay for a look inside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReport:
    """What the agent of a pod last said about the attempt in it."""

    number: int
    """How many attempts this pod has had before."""
    started_at: float | None = None
    waits: bool = False
    """The command has failed, and the next attempt may begin here."""
    finished_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    message: str = ""


def newest_agent_report(
    records: Iterable[Mapping[str, Any]], pod_uid: str, *, after: AgentReport | None = None
) -> AgentReport:
    """The newest of an instance's records about this pod. `records`: oldest first.

    `after`: what was said before; a pod of which nobody has said anything is in its first turn.
    """
    newest = after or AgentReport(number=0)
    fields = [each.name for each in dataclasses.fields(AgentReport)]
    for record in records:
        told = record.get("turn")
        if not isinstance(told, dict) or told.get("pod") != pod_uid:
            continue
        if told.get("number", -1) >= newest.number:
            newest = AgentReport(**{name: told[name] for name in fields if name in told})
    return newest


def number_of(pod: PodView) -> int:
    """Return the turn that a pod was last ordered to begin; 0 for its first."""
    return int(_mark(pod).get("number", 0))


def intended_uid(pod: PodView) -> str:
    """Return the uid of the attempt that the labels name."""
    return _uid(pod, number_of(pod))


def ref_of(pod: PodView, turn: AgentReport | None) -> InstanceRef:
    """Return the attempt that a pod runs, or ran; raises KeyError and ValueError for others' pods."""
    ref, intended = pod.ref, number_of(pod)
    if not intended or (turn is not None and turn.number >= intended):
        return dataclasses.replace(ref, uid=_uid(pod, intended))
    epoch, job_attempt, attempt = _mark(pod)["before"]
    before = AttemptId(epoch, job_attempt, attempt, ref.run.generation)
    return dataclasses.replace(ref, attempt_id=before, uid=_uid(pod, intended - 1))


def first_log_line(pod: PodView) -> bytes:
    """Return the line with which the log of the pod's last attempt begins; empty: with its first."""
    return BEGINS.format(text_of(pod.ref)).encode() if number_of(pod) else b""


def text_of(ref: InstanceRef) -> str:
    """Return an attempt as its log names it."""
    return f"{ref.epoch}.{ref.job_attempt}.{ref.attempt}"


def with_agent_report(seen: Observation, pod: PodView, turn: AgentReport | None) -> Observation:
    """Return the observation of a pod in which attempts may follow, with what its agent said."""
    awaits = pod.annotations.get(names.IN_PLACE)
    if awaits is None:
        return seen
    ref, kept = ref_of(pod, turn), kept_until(pod) is not None
    waits = seen.state == "running" and turn is not None and not (turn.waits and kept)
    seen = dataclasses.replace(
        seen,
        uid=ref.uid,
        attempt_id=ref.attempt_id,
        in_place=waits and awaits == FOR_NEXT_ATTEMPT,
        can_stay=waits and awaits != FOR_NEXT_ATTEMPT,
    )
    if turn is None or seen.state != "running":
        return seen
    seen = dataclasses.replace(seen, started_at=turn.started_at or seen.started_at)
    if not turn.waits:
        return seen
    return dataclasses.replace(
        seen,
        kept=kept,
        state="failed",
        reason=turn.reason,
        message=turn.message,
        exit_code=turn.exit_code,
        signal=turn.signal,
        address_live=False,
        port_open=False,
        ready=False,
        state_since=turn.finished_at or seen.state_since,
        finished_at=turn.finished_at,
    )


def kept_until(pod: PodView) -> float | None:
    """Return until when a pod was told to stay for a look inside; None: it was not."""
    text = pod.annotations.get(names.KEPT_UNTIL)
    try:
        until = float(text) if text else None
    except ValueError:
        return None
    return until if until is not None and math.isfinite(until) else None


def is_ahead(until: float, *, now: float) -> bool:
    """Return whether a pod that stays until then does so; nobody can ask for longer than a week."""
    return now < until <= now + _LONGEST_SECONDS


def stays_now(pod: PodView, *, now: float) -> bool:
    """Return whether a pod stays for a look inside, its time being not over."""
    until = kept_until(pod)
    ended = pod.phase in ("Succeeded", "Failed") or pod.deletion is not None
    return until is not None and is_ahead(until, now=now) and not ended


# orders -------------------------------------------------------------------------------------------
def order_for(turn: AgentReport, do: str, **more: Unpack[AgentCommand]) -> dict[str, Any]:
    """Return the annotations that order something of the attempt in a pod."""
    return {names.ORDER: json.dumps({"turn": turn.number, "do": do, **more})}


def restart_marks(
    pod: PodView, turn: AgentReport, document: Mapping[str, Any], ref: InstanceRef
) -> dict[str, Any]:
    """Return labels and annotations by which a pod begins the next attempt.

    `document`: the pod that would be made for that attempt.
    """
    before = ref_of(pod, turn)
    container = next(
        each
        for each in document["spec"]["containers"]
        if each["name"] == document["metadata"]["annotations"][names.CONTAINER]
    )
    command = container["command"][container["command"].index("--") + 1 :]
    env = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    # its agent has one, of which only this is another by now: of the job's time less is left
    deadline = json.loads(env.pop(ORDER_VARIABLE, "{}")).get("deadline_seconds")
    order = order_for(
        turn,
        "restart",
        attempt=text_of(ref),
        env=env,
        command=[*command, *(container.get("args") or ())],
        **({} if deadline is None else {"deadline_seconds": deadline}),
    )
    mark = {
        "number": turn.number + 1,
        "before": [before.epoch, before.job_attempt, before.attempt],
    }
    annotations = {**order, names.TURN: json.dumps(mark)}
    if names.FILES in document["metadata"]["annotations"]:
        annotations[names.FILES] = document["metadata"]["annotations"][names.FILES]
    annotations[names.GENERATION] = str(ref.run.generation)
    labels = {
        names.EPOCH: str(ref.epoch),
        names.JOB_ATTEMPT: str(ref.job_attempt),
        names.ATTEMPT: str(ref.attempt),
    }
    return {"labels": labels, "annotations": annotations}


def _uid(pod: PodView, number: int) -> str:
    return f"{pod.uid}.{number}" if number else pod.uid


def _mark(pod: PodView) -> Mapping[str, Any]:
    text = pod.annotations.get(names.TURN)
    found: Mapping[str, Any] = json.loads(text) if text else {}
    return found
