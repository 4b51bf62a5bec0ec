"""Which instances leave an unfit node, so that all of them save before what they do together hangs. Pure.

A move is a restart that is charged to nobody; what bounds it is how often that happens in a run.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.failures import Failure
from airflow_training.control.model import MOVED, ActivePhase, InstanceEntry
from airflow_training.control.reason_facts import OWN_REASONS
from airflow_training.control.transitions import nodes_to_avoid
from airflow_training.documents.text import counted

__all__ = ["leave_unfit_nodes"]

_TOLD = frozenset({reasons.NODE_UNFIT, reasons.NODE_CORDONED})
_ALIVE = frozenset({"pending", "running"})


def leave_unfit_nodes(draft: Draft) -> list[Failure]:
    """Say which instances are on nodes that are unfit, and return those that are to begin elsewhere."""
    found = []
    for entry in list(draft.instances.values()):
        if entry.reason not in _TOLD or not entry.desired or entry.state not in _ALIVE:
            continue
        why = _why_it_stays(draft, entry)
        phase = entry.phase
        if isinstance(phase, ActivePhase) and entry.reason not in phase.announced_node_reasons:
            told = (*phase.announced_node_reasons, entry.reason)
            draft.put(replace(entry, phase=replace(phase, announced_node_reasons=told)))
            then = f"it stays: {why}" if why else "it begins again elsewhere"
            draft.record_event(entry.reason, f"{entry.message}; {then}", of=entry, level="warning")
        if not why:
            found.append(_move_of(draft, entry))
    if draft.spec.restart.scope != "Instance":
        for node in dict.fromkeys(each.node for each in found):
            _keep_away(draft, node)
    return found


def _keep_away(draft: Draft, node: str) -> None:
    """Let no instance go to a node that others leave with which it is started again."""
    for entry in list(draft.instances.values()):
        if not entry.final:
            draft.put(replace(entry, avoid_nodes=nodes_to_avoid(entry, node)))


def _why_it_stays(draft: Draft, entry: InstanceEntry) -> str:
    """Return why an instance is left where it is; "": it begins again elsewhere."""
    wanted = draft.spec.scheduling.unfit_nodes
    if entry.reason != reasons.NODE_UNFIT:
        return "so far the node only takes nothing new"
    if wanted.action != "Move":
        lost = "" if draft.spec.checkpoint else ", as the job keeps no checkpoint"
        return f"unfitNodes.action is {wanted.action}{lost}"
    if draft.spec.role(entry.role).restart_policy == "Never":
        return "its restartPolicy is Never"
    if entry.joining:
        return "the others go on without it"
    if entry.node in entry.avoid_nodes:
        return "it was placed there although others would be preferred"
    if _moves(draft, entry) >= wanted.max_moves:
        return f"it has moved {counted(wanted.max_moves, 'time')} (unfitNodes.maxMoves)"
    return ""


def _moves(draft: Draft, entry: InstanceEntry) -> int:
    """Return how often an instance has moved in this epoch, alone or with all that restart with it."""
    return sum(
        record.rule == MOVED
        and record.epoch == draft.job.epoch
        and (record.key == entry.key or record.scope != "Instance")
        for record in draft.job.restarts
    )


def _move_of(draft: Draft, entry: InstanceEntry) -> Failure:
    return Failure(
        key=entry.key,
        attempt_id=entry.attempt_id,
        at=draft.now,
        reason=reasons.NODE_UNFIT,
        known=OWN_REASONS[reasons.NODE_UNFIT],
        message=entry.message,
        failure_class="infrastructure",
        node=entry.node,
    )
