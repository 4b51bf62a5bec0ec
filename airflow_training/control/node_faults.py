"""Which failures speak against the node they happened on, and when a node has had too many. Pure.

What is counted stands in the ledgers of runs; an exclusion holds for all runs of a cluster until it ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from airflow_training.control import reasons
from airflow_training.control.model import Event, Ledger
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.text import counted
from airflow_training.documents.times import utc_text

__all__ = [
    "MOST_EXCLUDED",
    "ExclusionRules",
    "NodeExclusion",
    "NodeFault",
    "due_exclusions",
    "event_of",
    "node_faults",
]

MOST_EXCLUDED = 10
"""Nodes of a cluster that are excluded by themselves at a time: where more fail, it is hardly the nodes."""
AUTOMATIC = "airflow-training"
"""Who has excluded a node that failed too often."""

_HARDWARE = frozenset({"ecc-uncorrectable", "gpu-fell-off-bus", "nvlink-error"})
"""Causes that a log proves, and that a node does not get rid of by itself."""
_PERHAPS = frozenset(
    {
        "",
        "cublas-cudnn-error",
        "cuda-driver-mismatch",
        "gpu-not-available",
        "hang",
        "nccl-timeout",
        "nccl-unhandled-system-error",
        "unknown",
    }
)
"""Causes that a bad node has, and others too."""
_OUTAGE_SECONDS = 60.0
"""How far apart instances of a run that are on one node fail for the same reason."""
_UNCLEAR = frozenset({"infrastructure", "unknown"})

Blame = Literal["node", "perhaps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFault:
    """A failure that speaks against its node."""

    run: str
    """Uid."""
    key: InstanceKey
    epoch: int
    attempt: int
    node: str
    at: float
    """Epoch seconds."""
    blame: Blame
    """`perhaps`: a run counts once for all of its own."""
    why: str
    """Id of the cause, else the class of the failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExclusion:
    """A node that nothing new is placed on."""

    node: str
    since: float
    until: float | None
    """When it ends, or has ended; None: when somebody allows the node again."""
    why: str
    by: str
    """Who has excluded it; `airflow-training`: its failures."""

    def holds(self, now: float) -> bool:
        """Whether nothing new is to be placed there."""
        return self.until is None or now < self.until

    def __str__(self) -> str:
        until = (
            "until it is allowed again" if self.until is None else f"until {utc_text(self.until)}"
        )
        return f"{self.node} {until}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusionRules:
    """When a node is excluded, and for how long."""

    failures: int
    """0: never."""
    window_seconds: float
    seconds: float


def node_faults(run: str, ledger: Ledger) -> tuple[NodeFault, ...]:
    """Return the failures of a run that speak against nodes: those restarted for, and those that ended an instance.

    What follows from another failure does not: it says nothing of where it happened.
    """
    found = {(each.key, each.epoch, each.attempt): each for each in _faults(run, ledger)}
    return tuple(found.values())


def _faults(run: str, ledger: Ledger) -> Iterator[NodeFault]:
    for record in ledger.job.restarts:
        if not record.node or record.explained_by == "peers":
            continue
        blame = _blame(
            of_node=record.of_node, failure_class=record.failure_class, cause=record.cause,
            told=record.said_by_runtime,
        )  # fmt: skip
        if blame is not None:
            yield NodeFault(
                run=run,
                key=record.key,
                epoch=record.epoch,
                attempt=record.attempt,
                node=record.node,
                at=record.at,
                blame=blame,
                why=record.cause or record.failure_class,
            )
    for key, entry in ledger.instances.items():
        end = entry.end
        if not entry.final or entry.state != "failed" or not entry.node or not end.of_node:
            continue
        yield NodeFault(
            run=run,
            key=key,
            epoch=entry.attempt_id.epoch,
            attempt=entry.attempt,
            node=entry.node,
            at=entry.finished_at or entry.last_transition_at,
            blame="node",
            why=entry.reason,
        )


def _blame(*, of_node: bool, failure_class: str, cause: str, told: bool) -> Blame | None:
    if of_node or cause in _HARDWARE:
        return "node"
    # what a runtime says in words is what it says, and nothing of the node
    if told and cause != "hang":
        return None
    return "perhaps" if failure_class in _UNCLEAR and cause in _PERHAPS else None


def due_exclusions(
    faults: Collection[NodeFault],
    known: Mapping[str, NodeExclusion],
    *,
    rules: ExclusionRules,
    now: float,
) -> Sequence[NodeExclusion]:
    """Return the nodes to exclude now, of one cluster; the worst first where they are too many.

    `known`: exclusions by node, also those that have ended: what was before their end counts no more.
    """
    if rules.failures <= 0:
        return ()
    by_node: dict[str, list[NodeFault]] = {}
    for fault in faults:
        before = known.get(fault.node)
        after = now - rules.window_seconds
        if before is not None:
            if before.holds(now):
                continue
            after = max(after, before.until or 0.0)
        if fault.at > after:
            by_node.setdefault(fault.node, []).append(fault)
    room = MOST_EXCLUDED - sum(each.holds(now) and each.by == AUTOMATIC for each in known.values())
    found = [
        (len(counting), node, counting)
        for node, each in by_node.items()
        if len(counting := _that_count(each)) >= rules.failures
    ]
    found.sort(key=lambda each: (-each[0], each[1]))
    return [
        NodeExclusion(
            node=node,
            since=now,
            until=now + rules.seconds,
            why=_words(counting, rules),
            by=AUTOMATIC,
        )
        for _, node, counting in found[: max(0, room)]
    ]


def _that_count(faults: Sequence[NodeFault]) -> list[NodeFault]:
    """Return faults of the node, one of each outage, and of each other run the newest that may be."""
    sure: list[NodeFault] = []
    last: dict[str, NodeFault] = {}
    for each in sorted(faults, key=lambda each: each.at):
        if each.blame != "node":
            continue
        before = last.get(each.run)
        same = before is not None and before.key != each.key
        if same and before is not None and each.at - before.at < _OUTAGE_SECONDS:
            continue  # what ran beside it
        last[each.run] = each
        sure.append(each)
    told = {each.run for each in sure}
    perhaps = {
        each.run: each
        for each in sorted(faults, key=lambda each: each.at)
        if each.blame == "perhaps" and each.run not in told
    }
    return [*sure, *perhaps.values()]


def _words(counting: Sequence[NodeFault], rules: ExclusionRules) -> str:
    causes = sorted({each.why for each in counting})
    runs = len({each.run for each in counting})
    hours = f"{rules.window_seconds / 3600:g} h"
    return f"{counted(len(counting), 'failure')} in {hours} in {counted(runs, 'run')} ({', '.join(causes)})"


def event_of(exclusion: NodeExclusion, *, now: float) -> Event:
    """Return the line of the story of the run whose failure was one too many."""
    return Event(
        at=now,
        reason=reasons.NODE_EXCLUDED,
        message=f"nothing new is placed on node {exclusion}",
        level="warning",
        data={"node": exclusion.node, "until": exclusion.until},
    )
