"""Turns the actions of a decision into calls of the runtime, fenced by the lease. Decides nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_training.control import reasons
from airflow_training.control.actions import (
    Action,
    AwaitPeers,
    Create,
    Delete,
    Dismiss,
    Finish,
    Keep,
    Release,
    RestartProcess,
    RevisePlan,
    StopProcess,
)
from airflow_training.control.attempts import AttemptId
from airflow_training.control.clocks import seconds_of
from airflow_training.control.decide import has_begun
from airflow_training.control.in_place import wait_seconds
from airflow_training.control.instance_checkpoints import entry_for_instance
from airflow_training.control.memory import with_its_memory
from airflow_training.control.model import InstanceEntry, Ledger
from airflow_training.control.observations import Observation
from airflow_training.control.peers import HOLDS_SECONDS
from airflow_training.control.running_time import trains
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.errors import InputError, RefusedForNow, RuntimeUnavailable
from airflow_training.runtimes.port import (
    Addresses,
    ExcusesWaits,
    InstanceRef,
    InstanceSpec,
    KeepsFailed,
    Outcome,
    ReleaseAnswer,
    ReplacesFiles,
    Runtime,
    SupportsFinish,
)
from airflow_training.runtimes.rendering import render_instance
from airflow_training.supervise.lease_keeper import LeaseKeeper
from airflow_training.supervise.plan_files import revised_plan, with_revision

__all__ = ["ActionResult", "Effects", "live_addresses", "never_created", "remaining_seconds"]

log = logging.getLogger(__name__)

_FAILED = {"error": reasons.CREATE_FAILED, "impossible": reasons.CANNOT_BE_CREATED}
"""Result of a create that failed -> reason."""
_ENDS = (Delete, StopProcess, Dismiss, Finish, Keep)
"""Actions by which nothing begins."""
_REPEAT_SECONDS = 2.0
_TELL_AGAIN_SECONDS = 30.0
"""How soon agents are told again that they wait, where that failed."""
_REFUSALS = 3
"""After so many refused creates the run is prepared again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """What came of one batch of actions."""

    refused: Sequence[Outcome] = ()
    """To be tried again: an older attempt still lives."""
    failed: Sequence[Outcome] = ()
    """Could not be created at all, now or for good."""
    unprepared: str = ""
    """Why what all instances need can never be made."""


@dataclass(slots=True, kw_only=True)
class Effects:
    """Everything needed to act for one run under one lease."""

    runtime: Runtime
    run: RunRef
    job: ResolvedJob
    addresses: Addresses
    """Of the job attempt `prepared_for`."""
    prepared_for: AttemptId
    """(epoch, job attempt)."""
    keeper: LeaseKeeper
    prepared: bool = True
    """False: `prepare` is to be called (again) before anything is created."""
    is_halted: Callable[[], bool] = lambda: False
    """Whether the run is being stopped: then nothing begins any more, whatever was decided before."""
    excluded_nodes: tuple[str, ...] = ()
    """Nodes that nothing new may be placed on."""
    creating: bool = False
    """The runtime is making what was decided before, and may still show more of it."""
    _refusals: int = 0
    _done_at: dict[Action, float] = field(default_factory=dict)

    def adopt_job(self, job: ResolvedJob) -> None:
        """Create what comes from another resolved job; it is prepared first."""
        self.job, self.prepared = job, False

    async def perform(
        self,
        actions: Sequence[Action],
        *,
        ledger: Ledger,
        seen: Collection[Observation],
        now: float,
    ) -> ActionResult:
        """Delete, stop, finish, dismiss, keep, create, release, revise plans, excuse who waits, in this order.

        Raises LeaseLost and RuntimeUnavailable.

        What the runtime can never prepare is told by the result, where nothing has begun; the rest is then left undone.

        A decision repeats its actions until it sees what came of them. All are idempotent, but
        not free: one that was carried out a moment ago is left out.
        """
        self._done_at = {
            each: at for each, at in self._done_at.items() if at > now - _holds_seconds(each)
        }
        actions = [action for action in actions if action not in self._done_at]
        if self.is_halted():
            actions = [each for each in actions if isinstance(each, _ENDS)]
        deletes: defaultdict[tuple[float, bool], list[InstanceRef]] = defaultdict(list)
        stops: defaultdict[tuple[float, bool], list[InstanceRef]] = defaultdict(list)
        dismissed: list[InstanceRef] = []
        waits: defaultdict[tuple[float, int], list[InstanceRef]] = defaultdict(list)
        creates: list[Create | RestartProcess] = []
        releases: defaultdict[str, list[InstanceRef]] = defaultdict(list)
        revised: list[InstanceRef] = []
        for action in actions:
            match action:
                case Delete() | StopProcess():
                    batches = deletes if isinstance(action, Delete) else stops
                    how = (action.grace_seconds, action.dump_stacks)
                    batches[how].append(self._ref(action, ledger, seen))
                case Dismiss():
                    dismissed.append(self._ref(action, ledger, seen))
                case AwaitPeers():
                    waits[action.seconds, action.number].append(self._ref(action, ledger, seen))
                case Finish():
                    await self.keeper.confirm()
                    await self._finish(action, ledger, seen)
                case Keep():
                    await self.keeper.confirm()
                    await self._keep(action, ledger, seen, now=now)
                case Create() | RestartProcess():
                    creates.append(action)
                case Release():
                    releases[action.answer].append(self._ref(action, ledger, seen))
                case RevisePlan():
                    revised.append(self._ref(action, ledger, seen))
        for batches, end in ((deletes, self.runtime.delete), (stops, self.runtime.stop_process)):
            for (grace_seconds, dump_stacks), refs in batches.items():
                await self.keeper.confirm()
                await end(refs, grace_seconds=grace_seconds, dump_stacks=dump_stacks)
        if dismissed:
            await self.keeper.confirm()
            await self.runtime.dismiss(dismissed)
        outcomes: list[Outcome] = []
        if creates:
            try:
                outcomes = await self._create(creates, ledger, seen, now=now)
            except InputError as error:
                self.prepared = False
                if not has_begun(ledger.instances):
                    return ActionResult(unprepared=str(error))
                outcomes = [self._impossible(each, error) for each in creates]
            except RefusedForNow as error:
                outcomes = [self._not_now(each, error) for each in creates]
        for kind, refs in releases.items():
            await self.keeper.confirm()
            live = live_addresses(ledger) if kind == "List" else {}
            answer = ReleaseAnswer(
                kind="List" if kind == "List" else "Confirmation", addresses=live
            )
            await self.runtime.release(refs, answer)
        if revised:
            await self._revise_plan(revised, ledger)
        unheard = [
            excuse
            for excuse, refs in waits.items()
            if not await self._await_peers(refs, seconds=excuse[0], number=excuse[1])
        ]
        unmade = {
            each.ref.key for each in outcomes if each.result == "refused" or each.result in _FAILED
        }
        for action in actions:
            makes = isinstance(action, Create | RestartProcess)
            if not makes or action.key not in unmade:
                self._done_at[action] = now
            if isinstance(action, AwaitPeers) and (action.seconds, action.number) in unheard:
                self._done_at[action] = now - HOLDS_SECONDS + _TELL_AGAIN_SECONDS
        return ActionResult(
            refused=[each for each in outcomes if each.result == "refused"],
            failed=[each for each in outcomes if each.result in _FAILED],
        )

    async def end(
        self, actions: Sequence[Action], *, ledger: Ledger, seen: Collection[Observation]
    ) -> None:
        """Delete and dismiss, without asking for the lease; raises RuntimeUnavailable.

        A decision names no object of a newer generation: what a holder has made that took over
        meanwhile stays alive.
        """
        for each in actions:
            match each:
                case Delete():
                    await self.runtime.delete(
                        [self._ref(each, ledger, seen)],
                        grace_seconds=each.grace_seconds,
                        dump_stacks=each.dump_stacks,
                    )
                case Dismiss():
                    await self.runtime.dismiss([self._ref(each, ledger, seen)])

    async def _await_peers(
        self, refs: Sequence[InstanceRef], *, seconds: float, number: int
    ) -> bool:
        """Return whether nobody has to be told again."""
        if isinstance(self.runtime, ExcusesWaits):
            await self.keeper.confirm()
            try:
                await self.runtime.await_peers(refs, seconds=seconds, number=number)
            except RuntimeUnavailable as error:  # nothing else has to wait for that
                log.warning("agents of run %s do not hear of their wait: %s", self.run.uid, error)
                return False
        return True

    async def _revise_plan(self, refs: Sequence[InstanceRef], ledger: Ledger) -> None:
        """Give instances the plan of now; who has it already keeps it."""
        # a plan is revised only on a runtime whose capabilities say so
        if not isinstance(self.runtime, ReplacesFiles):
            return
        await self._prepare_again(ledger)
        given = []
        for ref in refs:
            spec = self._render(ref, ledger)
            given.append((ref, revised_plan(with_revision(spec, self.job, ledger), self.job)))
        await self.keeper.confirm()
        await self.runtime.replace_files(given)

    async def _finish(self, action: Finish, ledger: Ledger, seen: Collection[Observation]) -> None:
        # a job `finishes` only on a runtime whose capabilities say so
        if isinstance(self.runtime, SupportsFinish):
            ref = self._ref(action, ledger, seen)
            await self.runtime.finish_early([ref], grace_seconds=action.grace_seconds)

    async def _keep(
        self, action: Keep, ledger: Ledger, seen: Collection[Observation], *, now: float
    ) -> None:
        # of a runtime that cannot, nothing is seen to stay, which is then told
        if isinstance(self.runtime, KeepsFailed):
            ref = self._ref(action, ledger, seen)
            await self.runtime.keep(ref, seconds=max(0.0, action.until - now))

    async def _create(
        self,
        creates: Sequence[Create | RestartProcess],
        ledger: Ledger,
        seen: Collection[Observation],
        *,
        now: float,
    ) -> list[Outcome]:
        await self._prepare_again(ledger)
        specs, outcomes = self._specs(creates, ledger, now=now)
        await self.keeper.confirm()
        if self.is_halted():  # while it waited for the lease
            return outcomes
        inside = {
            each.key: self._ref(each, ledger, seen)
            for each in creates
            if isinstance(each, RestartProcess)
        }
        new = [spec for spec in specs if spec.ref.key not in inside]
        self.creating = True
        try:
            if new:
                outcomes += await self.runtime.create(new)
            outcomes += await asyncio.gather(
                *(
                    self.runtime.restart_process(inside[spec.ref.key], spec)
                    for spec in specs
                    if spec.ref.key in inside
                )
            )
        finally:
            self.creating = False
        if any(each.result == "refused" for each in outcomes):
            self._refusals += 1
            # what `prepare` made may be gone; it also says when it is not us who may create
            self.prepared = self._refusals % _REFUSALS != 0
        return outcomes

    async def _prepare_again(self, ledger: Ledger) -> None:
        """Fix addresses for a new job attempt, or a role that was scaled beyond what is known."""
        attempt = ledger.job.first_attempt
        sizes = {name: entry.replicas for name, entry in ledger.roles.items()}
        for (
            entry
        ) in ledger.instances.values():  # those that are left need not have the lowest indexes
            if not entry.retired:
                sizes[entry.role] = max(sizes[entry.role], entry.index + 1)
        known = all(size <= len(self.addresses.get(name, ())) for name, size in sizes.items())
        if known and self.prepared and attempt == self.prepared_for:
            return
        roles = tuple(
            dataclasses.replace(role, replicas=max(role.replicas, sizes.get(role.name, 0)))
            for role in self.job.roles
        )
        await self.keeper.confirm()
        self.prepared_for, self.prepared = attempt, False
        self.addresses = await self.runtime.prepare(
            self.run, dataclasses.replace(self.job, roles=roles), attempt=attempt
        )
        self.prepared = True

    def _specs(
        self, creates: Sequence[Create | RestartProcess], ledger: Ledger, *, now: float
    ) -> tuple[list[InstanceSpec], list[Outcome]]:
        """Return what can be created, and the failed outcomes of what cannot be rendered."""
        specs, failed = [], []
        live = live_addresses(ledger)
        for each in creates:
            held = isinstance(each, Create) and each.held
            waits = held or not trains(self.job, each.role)
            try:
                spec = self._render(
                    each,
                    ledger,
                    held=held,
                    live=live,
                    deadline_seconds=remaining_seconds(self.job, ledger, now=now, waits=waits),
                )
            except InputError as error:  # one bad template spoils no other
                failed.append(
                    Outcome(
                        ref=self._ref(each, ledger, ()), result="impossible", message=str(error)
                    )
                )
            else:
                entry = ledger.instances[each.key]
                spec = dataclasses.replace(spec, excluded_nodes=self.excluded_nodes)
                known = with_revision(_with_experience(spec, entry), self.job, ledger)
                specs.append(
                    dataclasses.replace(
                        known,
                        in_place_seconds=self._in_place(each.role),
                        keep_seconds=self.job.restart.keep_failed_seconds
                        if self.runtime.capabilities.restart_in_place
                        else 0.0,
                    )
                )
        return specs, failed

    def _render(
        self,
        of: Create | RestartProcess | InstanceRef,
        ledger: Ledger,
        *,
        held: bool = False,
        live: Mapping[str, Sequence[str]] | None = None,
        deadline_seconds: float | None = None,
    ) -> InstanceSpec:
        """Render the attempt that is meant; raises InputError."""
        entry = ledger.instances[of.key]
        return render_instance(
            with_its_memory(self.job, entry),
            self.run,
            self.addresses,
            role=of.role,
            index=of.index,
            attempt=of.attempt_id,
            held=held,
            replicas={name: each.replicas for name, each in ledger.roles.items()},
            live=live,
            deadline_seconds=deadline_seconds,
            state=entry_for_instance(ledger, entry),
        )

    def _in_place(self, role: str) -> float:
        """Return how long an instance waits for its next attempt after its command has failed."""
        if not self.runtime.capabilities.restart_in_place:
            return 0.0
        return wait_seconds(self.job, self.job.role(role))

    def _impossible(self, action: Create | RestartProcess, error: InputError) -> Outcome:
        """Return what becomes of an instance while others run that were made before."""
        return Outcome(
            ref=InstanceRef(run=self.run, key=action.key, attempt_id=action.attempt_id),
            result="impossible",
            message=str(error),
        )

    def _not_now(self, action: Create | RestartProcess, error: RefusedForNow) -> Outcome:
        return Outcome(
            ref=InstanceRef(run=self.run, key=action.key, attempt_id=action.attempt_id),
            result="refused",
            reason=error.reason,
            message=str(error),
            patience_seconds=error.patience_seconds,
            grace_seconds=error.grace_seconds,
        )

    def _ref(self, action: Action, ledger: Ledger, seen: Collection[Observation]) -> InstanceRef:
        """Return the attempt that the action means: the object's own, as it was observed."""
        uid = "" if isinstance(action, Create) else action.uid
        known = next((each for each in seen if uid and each.uid == uid), None)
        entry = known or ledger.instances[action.key]
        attempt = dataclasses.replace(entry.attempt_id, generation=self.run.generation)
        return InstanceRef(run=self.run, key=action.key, attempt_id=attempt, uid=uid)


def _holds_seconds(action: Action) -> float:
    """Return how long an action that was carried out is not carried out again, though decisions repeat it."""
    match action:
        case RevisePlan():
            return math.inf
        case AwaitPeers():
            return HOLDS_SECONDS
    return _REPEAT_SECONDS


def _with_experience(spec: InstanceSpec, entry: InstanceEntry) -> InstanceSpec:
    """Return it with what earlier attempts taught: where not to go, and what has to be there."""
    readiness = spec.readiness
    if readiness is not None and entry.observed_hardware is not None:
        readiness = dataclasses.replace(readiness, before=entry.observed_hardware)
    return dataclasses.replace(spec, avoid_nodes=entry.avoid_nodes, readiness=readiness)


def live_addresses(ledger: Ledger) -> dict[str, list[str]]:
    """Return role -> addresses of the instances that can be reached now, by index."""
    live: dict[str, list[str]] = {}
    for (role, _), entry in sorted(ledger.instances.items()):
        if entry.phase.readiness.address_live and entry.address:
            live.setdefault(role, []).append(entry.address)
    return live


def remaining_seconds(
    job: ResolvedJob, ledger: Ledger, *, now: float, waits: bool = False
) -> float | None:
    """Return after how long an instance shall end itself, though nobody is left to tell it.

    The loop ends the job at its deadline; the instance's own comes a grace later. It cannot know when
    the job's stands still, so one that `waits` has as much longer as others may look for a place.
    """
    if job.active_deadline_seconds is None:
        return None
    used = seconds_of(ledger.job.active_time, now=now)
    longer = job.scheduling.schedule_timeout_seconds if waits else 0.0
    return max(1.0, job.active_deadline_seconds - used) + job.grace_seconds + longer


def never_created(outcome: Outcome, *, now: float) -> Observation:
    """Return a failed instance for a create that the runtime could not carry out.

    So it is counted, classified and retried by the same rules as any other failure.
    """
    ref = outcome.ref
    return Observation(
        key=ref.key,
        uid=f"never-created-{ref.epoch}-{ref.job_attempt}-{ref.attempt}",
        attempt_id=ref.attempt_id,
        state="failed",
        reason=_FAILED[outcome.result],
        message=outcome.message,
        state_since=now,
        finished_at=now,
    )
