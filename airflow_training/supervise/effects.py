"""Turns the actions of a decision into calls of the runtime, fenced by the lease. Decides nothing."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from airflow_training.control.model import (
    Action,
    Create,
    Delete,
    Ledger,
    Observation,
    Release,
)
from airflow_training.runtimes.port import (
    Addresses,
    InstanceRef,
    InstanceSpec,
    Outcome,
    ReleaseAnswer,
    Runtime,
)
from airflow_training.spec.resolved import ResolvedJob, RunRef
from airflow_training.supervise.lease_keeper import LeaseKeeper
from airflow_training.supervise.rendering import render_instance

__all__ = ["Effects", "Performed", "live_addresses", "never_created"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Performed:
    """What came of one batch of actions."""

    refused: Sequence[Outcome] = ()
    """To be tried again: an older attempt still lives."""
    failed: Sequence[Outcome] = ()
    """Could not be created at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """Everything needed to act for one run under one lease."""

    runtime: Runtime
    run: RunRef
    job: ResolvedJob
    addresses: Addresses
    keeper: LeaseKeeper

    async def perform(
        self, actions: Sequence[Action], *, ledger: Ledger, seen: Collection[Observation]
    ) -> Performed:
        """Delete, create, release, in this order; raises LeaseLost and RuntimeUnavailable."""
        deletes: defaultdict[float, list[InstanceRef]] = defaultdict(list)
        creates: list[Create] = []
        releases: defaultdict[str, list[InstanceRef]] = defaultdict(list)
        for action in actions:
            if isinstance(action, Delete):
                deletes[action.grace_seconds].append(self._ref(action, ledger, seen))
            elif isinstance(action, Create):
                creates.append(action)
            else:
                releases[action.answer].append(self._ref(action, ledger, seen))
        for grace_seconds, refs in deletes.items():
            await self.keeper.confirm()
            await self.runtime.delete(refs, grace_seconds=grace_seconds)
        outcomes: Sequence[Outcome] = ()
        if creates:
            specs = await self._render(creates, ledger)
            await self.keeper.confirm()
            outcomes = await self.runtime.create(specs)
        for kind, refs in releases.items():
            await self.keeper.confirm()
            live = live_addresses(ledger) if kind == "List" else {}
            answer = ReleaseAnswer(
                kind="List" if kind == "List" else "Confirmation", addresses=live
            )
            await self.runtime.release(refs, answer)
        return Performed(
            refused=[each for each in outcomes if each.result == "refused"],
            failed=[each for each in outcomes if each.result == "error"],
        )

    def _ref(
        self, action: Delete | Release, ledger: Ledger, seen: Collection[Observation]
    ) -> InstanceRef:
        """Return the attempt that the action means: the object's own, as it was observed."""
        known = next((each for each in seen if each.uid and each.uid == action.uid), None)
        entry = known or ledger.instances[action.role, action.index]
        return InstanceRef(
            run=self.run,
            role=action.role,
            index=action.index,
            epoch=entry.epoch,
            job_attempt=entry.job_attempt,
            attempt=entry.attempt,
            uid=action.uid,
        )


def live_addresses(ledger: Ledger) -> dict[str, list[str]]:
    """Return role -> addresses of the instances that can be reached now, by index."""
    live: dict[str, list[str]] = {}
    for (role, _), entry in sorted(ledger.instances.items()):
        if entry.address_live and entry.address:
            live.setdefault(role, []).append(entry.address)
    return live


def never_created(outcome: Outcome, *, now: float) -> Observation:
    """Return a failed instance for a create that the runtime could not carry out.

    So it is counted, classified and retried by the same rules as any other failure.
    """
    ref = outcome.ref
    return Observation(
        role=ref.role,
        index=ref.index,
        uid=f"never-created-{ref.epoch}-{ref.job_attempt}-{ref.attempt}",
        epoch=ref.epoch,
        job_attempt=ref.job_attempt,
        attempt=ref.attempt,
        generation=ref.run.generation,
        state="failed",
        reason="CreateFailed",
        message=outcome.message,
        state_since=now,
        finished_at=now,
    )
