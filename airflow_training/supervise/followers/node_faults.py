"""Takes down which failures of a run speak against nodes, and tells which node had one too many."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from airflow_training.control.model import Decision, Event, Ledger
from airflow_training.control.node_faults import (
    ExclusionRules,
    NodeExclusion,
    NodeFault,
    event_of,
    node_faults,
)
from airflow_training.control.observations import Observations
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.port import Runtime
from airflow_training.settings import Settings, load_settings
from airflow_training.state.nodes import Cluster
from airflow_training.state.store import Store
from airflow_training.supervise.followers.follower import Evidence, FollowedRun, Follower

__all__ = ["NodeFaultFollower", "excluded_nodes", "exclusion_rules"]

log = logging.getLogger(__name__)

_HOUR = 3600.0


def exclusion_rules(settings: Settings) -> ExclusionRules:
    """Return the rules that `[training]` gives."""
    return ExclusionRules(
        failures=settings.node_failures,
        window_seconds=settings.node_failure_hours * _HOUR,
        seconds=settings.node_exclusion_hours * _HOUR,
    )


async def excluded_nodes(store: Store, runtime: Runtime, job: ResolvedJob) -> tuple[str, ...]:
    """Return the nodes that nothing new of a job may be placed on, by name."""
    if not (runtime.capabilities.excludes_nodes and job.scheduling.avoids_excluded):
        return ()
    found = await asyncio.to_thread(store.nodes.excluded, Cluster.of_job(job))
    return tuple(each.node for each in found)


class NodeFaultFollower(Follower):
    """Of a runtime that can be told to leave nodes out. What it takes down stands in the ledger, so that nothing is lost with it."""

    def __init__(self, run: FollowedRun) -> None:
        self._run = run
        self._looked_at: Ledger | None = None
        self._recorded: tuple[NodeFault, ...] = ()
        self._untold: tuple[Event, ...] = ()
        self._problem = ""

    async def evidence(self, seen: Observations | None) -> Evidence:  # noqa: ARG002 - the ledger says it
        _, ledger = self._run.state()
        await self._record(ledger, now=self._run.now())
        return Evidence(events=self._untold)

    def on_persisted(self, evidence: Evidence) -> None:
        self._untold = tuple(each for each in self._untold if each not in evidence.events)

    async def explain(self, decision: Decision, *, now: float) -> Decision:
        """Return the last decision with the nodes that are excluded for how the run ended."""
        await self._record(decision.new_ledger, now=now)
        untold = [each for each in self._untold if each not in decision.events]
        return replace(decision, events=(*untold, *decision.events))

    async def _record(self, ledger: Ledger, *, now: float) -> None:
        # most passes change nothing, and a run may have many instances
        if ledger is self._looked_at:
            return
        faults = node_faults(self._run.ref.uid, ledger)
        if faults != self._recorded:
            try:
                await self._tell_store(faults, now=now)
            except Exception as error:
                # training needs none of it: the next pass tries again
                if isinstance(error, RuntimeUnavailable):
                    self._run.store.outage.record_failure(error)
                elif (problem := str(error)) != self._problem:
                    self._problem = problem
                    log.exception("failures that speak against nodes cannot be recorded now")
                return
        self._looked_at = ledger

    async def _tell_store(self, faults: tuple[NodeFault, ...], *, now: float) -> None:
        job, _ = self._run.state()
        found = await asyncio.to_thread(self._store_faults, Cluster.of_job(job), faults)
        self._recorded, self._problem = faults, ""
        self._untold = (*self._untold, *(event_of(each, now=now) for each in found))

    def _store_faults(
        self, cluster: Cluster, faults: Sequence[NodeFault]
    ) -> Sequence[NodeExclusion]:
        rules = exclusion_rules(load_settings())
        return self._run.store.nodes.record(self._run.ref.uid, cluster, faults, rules=rules)
