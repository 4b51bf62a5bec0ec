"""Has the runtime hold places for instances that may need one, and gives them up to those that find none."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Literal

from airflow_training.admission.queueing import role_resources
from airflow_training.control import reasons
from airflow_training.control.attempts import AttemptKey
from airflow_training.control.model import Event
from airflow_training.control.observations import Observations
from airflow_training.control.spares import SpareDemand, spare_demand
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import InputError, LeaseLost, RefusedForNow, RuntimeUnavailable
from airflow_training.runtimes.port import (
    HeldSpare,
    HoldsSpares,
    InstanceSpec,
    SpareRequest,
    SparesAnswer,
)
from airflow_training.runtimes.rendering import expected_addresses, render_instance
from airflow_training.supervise.followers.follower import Evidence, FollowedRun, Follower
from airflow_training.supervise.followers.node_faults import excluded_nodes
from airflow_training.supervise.retrying import retrying
from airflow_training.supervise.waiting import is_set_within

__all__ = ["SpareFollower"]

log = logging.getLogger(__name__)

_LOOK_SECONDS = (2.0, 30.0)
"""Between two looks: at first, while some have no place yet, and at most."""
_NUMBER = re.compile(r"\d+")


class SpareFollower(Follower):
    """Of a job with `warmSpares`, on a runtime that holds places."""

    def __init__(self, run: FollowedRun, runtime: HoldsSpares) -> None:
        self._run = run
        self._runtime = runtime
        self._demand: Mapping[str, SpareDemand] = {}
        self._changed = asyncio.Event()
        self._served: set[AttemptKey] = set()
        """For whom a place was given up."""
        self._held: Sequence[HeldSpare] | None = None
        """None: it is not known what a driver before has left."""
        self._refused: dict[str, str] = {}
        """Role ("": all) -> why no more could be had, as it was told last, without its numbers."""
        self._untold: tuple[Event, ...] = ()

    async def evidence(self, seen: Observations | None) -> Evidence:
        if seen is not None and seen.reachable:
            job, ledger = self._run.state()
            demand = spare_demand(job, ledger, seen)
            if demand != self._demand:
                self._demand = demand
                self._changed.set()
        return Evidence(events=self._untold)

    def on_persisted(self, evidence: Evidence) -> None:
        self._untold = tuple(each for each in self._untold if each not in evidence.events)

    async def run(self) -> None:
        pause, longest = _LOOK_SECONDS
        while True:
            if self._demand and self._run.may_create():
                try:
                    await self._hold()
                except LeaseLost:
                    return  # whoever holds the run now holds its spares
                except Exception:
                    # spares are extra: no fault of theirs may end what follows the training, nor this task unseen
                    log.exception("run %s: spares; trying again", self._run.ref.uid)
            complete = len(self._held or ()) == sum(each.number for each in self._demand.values())
            pause = longest if complete else min(longest, pause * 2)
            if await is_set_within(self._changed, pause):
                pause = _LOOK_SECONDS[0]
                self._changed.clear()

    async def _hold(self) -> None:
        demand, job = self._demand, self._run.state()[0]
        unserved = {name: each.unplaced - self._served for name, each in demand.items()}
        try:
            nodes = await excluded_nodes(self._run.store, self._run.runtime, job)
            requests = [
                SpareRequest(
                    role=name,
                    number=each.number,
                    spec=self._spec(job, name, nodes) if each.number else None,
                    yields=len(unserved[name]),
                    may_wait=each.may_wait,
                )
                for name, each in demand.items()
            ]
            answer = await self._runtime.hold_spares(self._run.ref, requests)
        except (InputError, RefusedForNow, RuntimeUnavailable) as error:
            self._tell_refusals({"": str(error)})  # training goes on without: it is tried again
            return
        self._tell_refusals(answer.refused)
        waiting = frozenset[AttemptKey]().union(*(each.unplaced for each in demand.values()))
        self._served &= waiting
        for spare, attempt in _served_by(answer, unserved):
            self._served.add(attempt)
            message = f"gives its place on {spare.node} up to {attempt.key}"
            self._tell(reasons.SPARE_YIELDED, spare.role, message)
        await self._record(job, answer.held, demand)

    def _spec(self, job: ResolvedJob, role: str, excluded_nodes: tuple[str, ...]) -> InstanceSpec:
        run = self._run.ref
        # of a role that is partly on spot, one that is: those lose their places
        spot = job.role(role).spot
        index = 0 if spot is None else min(spot.from_index, job.role(role).replicas - 1)
        addresses = expected_addresses(job, run.prefix)
        spec = render_instance(job, run, addresses, role=role, index=index)
        return replace(spec, excluded_nodes=excluded_nodes)

    async def _record(
        self, job: ResolvedJob, held: Sequence[HeldSpare], roles: Collection[str]
    ) -> None:
        """Write down what they use, and tell where they are."""
        before = self._held or ()
        for role in roles:
            there = [each for each in held if each.role == role]
            if there and there != [each for each in before if each.role == role]:
                nodes = ", ".join(each.node for each in there)
                message = f"{len(there)} of {job.role(role).warm_spares} hold a place: {nodes}"
                self._tell(reasons.SPARES_HELD, role, message)
        if held != self._held:
            since = {
                role: {each.number: each.since for each in held if each.role == role}
                for role in roles
            }
            store, resources = self._run.store, role_resources(job)
            record = partial(store.usage.record_spares, self._run.ref.uid, since, resources)
            await retrying(store, record)
        self._held = held

    def _tell_refusals(self, refused: Mapping[str, str]) -> None:
        """Tell why no more can be had, once in the same words: what others use of a quota changes all the time."""
        for role, words in refused.items():
            shape = _NUMBER.sub("0", words)
            if self._refused.get(role) != shape:
                self._refused[role] = shape
                self._tell(reasons.SPARES_REFUSED, role, words, level="warning")

    def _tell(
        self, reason: str, role: str, message: str, *, level: Literal["info", "warning"] = "info"
    ) -> None:
        event = Event(at=self._run.now(), reason=reason, role=role, message=message, level=level)
        self._untold = (*self._untold, event)
        self._run.wake()


def _served_by(
    answer: SparesAnswer, unserved: Mapping[str, Set[AttemptKey]]
) -> Iterator[tuple[HeldSpare, AttemptKey]]:
    """Yield who gets the place of which spare."""
    for role, attempts in unserved.items():
        given = (each for each in answer.yielded if each.role == role)
        yield from zip(given, sorted(attempts), strict=False)
