"""Watches the cluster of a run that has a plan, and has it planned again when the cluster has changed.

Runs beside the loop, and only asks and answers: what becomes of an answer is the loop's business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from airflow_training.admission.plan.capacity import TIGHT_SECONDS, available_nodes, waiting_seconds
from airflow_training.admission.plan.history import History
from airflow_training.admission.plan.replan import (
    ReplanInput,
    ReplanVerdict,
    read_current_cluster,
    replan_run,
)
from airflow_training.control.model import Event, InstanceEntry, Ledger
from airflow_training.control.plan_revision import revise_ledger
from airflow_training.control.replanning import replan_hindrance, replan_ledger
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.plan import Plan
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.runtimes.port import ClusterSnapshot as Machines
from airflow_training.runtimes.port import InstanceRef, ReplacesFiles, Runtime
from airflow_training.supervise.followers.follower import Follower, FollowerChange

__all__ = ["Replanner", "RunView"]

log = logging.getLogger(__name__)

_MOST_MOVES = 8
"""What is kept of revisions: as many as an instance's progress tells of groups that were formed again."""
_searches = ThreadPoolExecutor(max_workers=1, thread_name_prefix="replanning")
"""One at a time, however many runs this process drives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """What the loop knows of its run."""

    job: ResolvedJob
    ledger: Ledger
    progress: Mapping[InstanceKey, ProgressReport]
    generation: int
    """Of the lease."""
    now: float

    @property
    def training_instances(self) -> Sequence[InstanceEntry]:
        """Return the instances that train."""
        ranked = {role.name for role in self.job.roles if role.rank_offset is not None}
        return [e for e in self.ledger.instances.values() if e.role in ranked and not e.retired]

    @property
    def nodes(self) -> frozenset[str]:
        """Return the names of the nodes they are on."""
        return frozenset(entry.node for entry in self.training_instances if entry.node)

    def is_tight(self) -> bool:
        """Return whether others keep places that its plan takes, or kept them when it was planned."""
        planned_tight = self.job.plan is not None and self.job.plan.capacity == "free"
        return (
            planned_tight or waiting_seconds(self.training_instances, now=self.now) > TIGHT_SECONDS
        )

    def situation(
        self, machines: Machines, *, broken: bool, tight: bool, replaces_files: bool
    ) -> ReplanInput:
        """The planner's input."""
        said = [self.progress.get(entry.key) for entry in self.training_instances]
        totals = [each.total_steps for each in said if each and each.total_steps is not None]
        began, ran = self.ledger.job.started_at, self.ledger.job.running_at
        regrouped = [told for each in said if each for told in each.regrouped]
        newest = max(regrouped, key=lambda each: each.at, default=None)
        return ReplanInput(
            job=self.job,
            machines=machines,
            step=max((each.step for each in said if each and each.step is not None), default=0),
            total_steps=max(totals, default=None),
            launch_seconds=None if began is None or ran is None else ran - began,
            broken=broken,
            tight=tight,
            replaces_files=replaces_files,
            regroup_seconds=None if newest is None else newest.seconds,
        )


class Replanner(Follower):
    """One run's eye on its cluster.

    A change counts when two looks in a row have seen it, so a node that flaps causes no search, and
    two searches are never closer than two looks.
    """

    def __init__(
        self,
        *,
        runtime: Runtime,
        run: RunRef,
        plan: Plan,
        history: History,
        state: Callable[[], RunView | None],
        on_answer: Callable[[], None],
        every_seconds: float,
    ) -> None:
        """`on_answer` is called on the event loop when `change` has something to say."""
        self._runtime = runtime
        self._run = run
        self._plan = plan
        self._history = history
        self._state = state
        self._on_answer = on_answer
        self._every_seconds = every_seconds
        self._verdict: ReplanVerdict | None = None
        self._job: ResolvedJob | None = None
        self._judged: Mapping[str, Any] = {}
        """The cluster that the plan, or the newest verdict, is about."""
        self._seen: Mapping[str, Any] = {}
        """The cluster at the last look."""
        self._used: frozenset[str] = frozenset()
        """Nodes that the run was on while the cluster was as it was judged."""

    def change(self, *, now: float) -> FollowerChange | None:
        """The change to store for the newest verdict, once; None: nothing.

        With a new job comes the next revision of its plan where ranks can follow that in their processes, else the next job
        attempt: what lives of the old split is stale from then on, whoever holds the lease next. Either is stored in one step
        with the job and the event, so it is made once or not at all. A move that the run can no longer make is dropped, and
        the cluster judged again later.
        """
        state = self._state()
        if state is None:
            return None
        said, self._verdict = self._verdict, None
        if said is None:
            return None
        event = Event(
            at=now, reason=said.reason, message=said.message, level=said.level, data=said.data
        )
        if said.job is None:
            return FollowerChange(ledger=state.ledger, events=(event,))
        if state.job is not self._job or replan_hindrance(state.job, state.ledger):
            self._job = None
            return None
        moves = () if state.job.plan is None else state.job.plan.moves
        if said.move is None:
            job = _with_moves(said.job, moves)
            ledger, events = replan_ledger(job, state.ledger, event, generation=state.generation)
            return FollowerChange(ledger=ledger, events=events, job=job)
        number = state.ledger.job.plan_revision + 1
        expected = {"revision": number, **asdict(said.move)}
        job = _with_moves(said.job, [*moves, expected][-_MOST_MOVES:])
        event = replace(
            event,
            message=f"{event.message}; revision {number} of the plan, which ranks follow in their processes",
            data={**event.data, "revision": number},
        )
        ledger, events = revise_ledger(job, state.ledger, event, generation=state.generation)
        return FollowerChange(ledger=ledger, events=events, job=job)

    async def run(self) -> None:
        complaint = ""
        while True:
            await asyncio.sleep(self._every_seconds)
            try:
                await self.poll()
                complaint = ""
            except (InputError, RuntimeUnavailable) as error:
                if str(error) != complaint:  # a file that is gone stays so for many looks
                    log.warning("the cluster of a plan cannot be seen: %s", error)
                complaint = str(error)
            except Exception:  # a plan is advice: no mistake of it may end a training
                log.exception("planning again failed; the run goes on as it is")

    async def poll(self) -> None:
        """Look once; judge a change that the last look has seen too. Raises as the runtime does."""
        state = self._state()
        if state is None or self._verdict or replan_hindrance(state.job, state.ledger):
            return
        if state.job is not self._job:
            self._job = state.job
            self._judged = state.job.plan.cluster_view if state.job.plan else {}
        machines, tight = Machines(nodes=()), False
        if self._plan.cluster == "nodes":
            tight = state.is_tight()
            machines = await self._runtime.cluster_view(state.job, with_free=tight)
        if tight:
            machines = available_nodes(machines, state.job, state.training_instances)
        before = self._seen
        self._seen = seen = await asyncio.to_thread(
            read_current_cluster, self._plan.cluster, state.job, machines, self._history
        )
        if seen == self._judged:
            self._used = state.nodes
        elif seen == before:
            there = {node.name for node in machines.nodes}
            lost = self._used - there if there else frozenset()
            situation = state.situation(
                machines,
                broken=bool(lost),
                tight=tight,
                replaces_files=await self._can_replace_files(state.training_instances),
            )
            loop = asyncio.get_running_loop()
            verdict = await loop.run_in_executor(
                _searches, lambda: replan_run(situation, before=self._judged, history=self._history)
            )
            self._judged, self._used = seen, state.nodes
            self._verdict = verdict
            self._on_answer()

    async def _can_replace_files(self, entries: Sequence[InstanceEntry]) -> bool:
        runtime = self._runtime
        if not (runtime.capabilities.replaces_files and isinstance(runtime, ReplacesFiles)):
            return False
        refs = [
            InstanceRef(run=self._run, key=each.key, attempt_id=each.attempt_id, uid=each.uid)
            for each in entries
            if each.uid
        ]
        return await runtime.can_replace_files(refs)


def _with_moves(job: ResolvedJob, moves: Sequence[Mapping[str, Any]]) -> ResolvedJob:
    return job if job.plan is None else replace(job, plan=job.plan.with_moves(moves))
