"""A runtime without machines: it truly implements the port, in memory, and follows a fault script.

For tests and for `airflow-training run --simulate`. Event driven: an idle instance costs nothing.
All calls must come from one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from airflow_training.builtin_runtimes import SIMULATED
from airflow_training.control.attempts import FIRST_ATTEMPT, AttemptId
from airflow_training.control.observations import Observation
from airflow_training.control.reasons import WAITING_FOR_OLD_INSTANCE
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.errors import LeaseLost, Problem, RuntimeUnavailable
from airflow_training.runtimes.adapter import Adapter, RuntimeContext
from airflow_training.runtimes.clock import Clock, WallClock
from airflow_training.runtimes.faults import Script, load_script
from airflow_training.runtimes.port import (
    Address,
    Addresses,
    Capabilities,
    ClusterSnapshot,
    Cursor,
    InstanceRef,
    InstanceRemoval,
    InstanceSpec,
    InstanceUpdate,
    LogChunk,
    NodeView,
    Outcome,
    ReleaseAnswer,
    Snapshot,
)
from airflow_training.runtimes.registry import every_reason
from airflow_training.runtimes.simulated import (
    ENDED,
    Attempt,
    Change,
    SimulatedInstance,
    SimulatedRun,
    attempt_of,
)
from airflow_training.runtimes.simulation import Simulation
from airflow_training.settings import Settings

__all__ = ["MEMORY", "MemoryRuntime"]

_FIRST_PORT = 20000
_NODE = NodeView(name="memory", cpus=64, memory_bytes=256 << 30)


class MemoryRuntime(Simulation):
    """Keeps instances as plain objects; `script` says how they behave and what goes wrong."""

    name = SIMULATED
    capabilities = Capabilities(
        hold=True,
        restart_in_place=True,
        finishes=True,
        replaces_files=True,
        runs_here=True,
        reasons=every_reason(),  # it plays whichever there is
        place="this process",
    )

    def __init__(self, *, script: Script | None = None, clock: Clock | None = None) -> None:
        super().__init__(script=script or Script(), clock=clock or WallClock())
        self._next_port = _FIRST_PORT

    # the port ----------------------------------------------------------------------------------
    async def check(
        self,
        run: RunRef,  # noqa: ARG002 - the port's signature
        job: ResolvedJob,  # noqa: ARG002 - the port's signature
        firsts: Sequence[InstanceSpec],  # noqa: ARG002 - the port's signature
    ) -> Sequence[Problem]:
        """Return nothing: a simulation lacks nothing."""
        return ()

    async def prepare(
        self, run: RunRef, job: ResolvedJob, *, attempt: AttemptId = FIRST_ATTEMPT
    ) -> Addresses:
        """Fix addresses and start the clock of the fault script; raises LeaseLost."""
        self._check_reachable()
        state = self._runs.setdefault(run.uid, SimulatedRun())
        refusal = state.refuse_or_own(run.generation)
        if refusal:
            raise LeaseLost(f"run {run.uid}: {refusal}")
        addresses = state.addresses.setdefault((attempt.epoch, attempt.job_attempt), {})
        for role in job.roles:
            known = addresses.setdefault(role.name, [])
            while len(known) < max(role.replicas, role.max_replicas or 0):
                ports = {name: self._take_port() for name in role.ports}
                known.append(Address(host="127.0.0.1", ports=ports))
        if state.prepared_at is None:
            state.prepared_at = self.clock.now()
            self._schedule_faults(run.uid, state)
        return {role: tuple(found) for role, found in addresses.items()}

    async def create(self, instances: Sequence[InstanceSpec]) -> Sequence[Outcome]:
        """Create or adopt; see the port."""
        self._check_reachable()
        return [self._create(spec) for spec in instances]

    async def release(self, instances: Sequence[InstanceRef], answer: ReleaseAnswer) -> None:
        """Let held instances run."""
        del answer  # nothing here reads addresses
        for run_uid, found in self._existing(instances):
            if found.held:
                self._set(run_uid, found, state="pending", reason="Starting")
                if found.placed:
                    self._start(run_uid, found)

    async def stop_process(
        self,
        instances: Sequence[InstanceRef],
        *,
        grace_seconds: float,
        dump_stacks: bool = False,  # noqa: ARG002 - nothing here has stacks
    ) -> None:
        """Let instances terminate as `delete` does, and then wait."""
        for run_uid, found in self._existing(instances):
            if found.in_place and found.state in ("pending", "running"):
                self._stop(run_uid, found, grace_seconds=grace_seconds)

    async def finish_early(self, instances: Sequence[InstanceRef], *, grace_seconds: float) -> None:
        """Let instances that run end well after their `stop_seconds` (at most the grace)."""
        for run_uid, found in self._existing(instances):
            if found.state == "running" and not found.finishing:
                found.finishing = True
                stop = min(self.script.behaviour(found.key.role).stop_seconds, grace_seconds)
                self._later(stop, run_uid, found, partial(self._end, run_uid, exit_code=0))

    async def await_peers(
        self, instances: Sequence[InstanceRef], *, seconds: float, number: int
    ) -> None:
        """Let the clocks of scripted stalls stand for so long."""
        for _, found in self._existing(instances):
            if number != found.excuse:
                found.excuse, found.excused_until = number, self.clock.now() + seconds

    async def replace_files(self, given: Sequence[tuple[InstanceRef, Mapping[str, str]]]) -> None:
        """Replace files of instances; raises LeaseLost."""
        self._check_reachable()
        for ref, files in given:
            state, found = self._runs.get(ref.run.uid), self._find(ref)
            if state is None or found is None:
                continue
            if refusal := state.refuse_or_own(ref.run.generation):
                raise LeaseLost(f"run {ref.run.uid}: {refusal}")
            found.spec = replace(found.spec, files={**found.spec.files, **files})

    async def can_replace_files(self, instances: Sequence[InstanceRef]) -> bool:
        """Return whether all of these were created with files that may be replaced."""
        self._check_reachable()
        there = [found for ref in instances if (found := self._find(ref)) is not None]
        return all(found.spec.replaced for found in there)

    async def restart_process(self, instance: InstanceRef, spec: InstanceSpec) -> Outcome:
        """Put a new instance in the place of the one that waits."""
        self._check_reachable()
        state = self._runs.get(instance.run.uid, SimulatedRun())
        found = state.instances.get(spec.ref.key)
        begun = found is not None and found.attempt == attempt_of(spec.ref)
        waiting = self._waiting(instance)
        if begun or waiting is not None:
            return self._create(spec, inside=waiting)
        return Outcome(ref=spec.ref, result="refused", message="nothing waits there")

    async def dismiss(self, instances: Sequence[InstanceRef]) -> None:
        """Let instances wait no more."""
        for run_uid, found in self._existing(instances):
            if found.waits_in_place:
                self._stop_waiting(run_uid, found)

    async def delete(
        self,
        instances: Sequence[InstanceRef],
        *,
        grace_seconds: float,
        dump_stacks: bool = False,  # noqa: ARG002 - nothing here has stacks
    ) -> None:
        """Let instances terminate for their `stop_seconds` (at most the grace), then vanish."""
        for run_uid, found in self._existing(instances):
            if found.state != "terminating" or found.in_place:
                self._terminate(run_uid, found, grace_seconds=grace_seconds)

    async def watch(
        self, run: RunRef
    ) -> AsyncIterator[Snapshot | InstanceUpdate | InstanceRemoval]:
        """Yield a snapshot, then changes; raises RuntimeUnavailable."""
        self._check_reachable()
        state = self._runs.setdefault(run.uid, SimulatedRun())
        queue: asyncio.Queue[Change] = asyncio.Queue()
        state.watchers.add(queue)
        try:
            yield Snapshot(instances=tuple(each.observe() for each in state.instances.values()))
            while True:
                change = await queue.get()
                if isinstance(change, RuntimeUnavailable):
                    raise change
                yield change
        finally:
            state.watchers.discard(queue)

    async def read_log(
        self, instance: InstanceRef, cursor: Cursor, *, limit: int, attempt: int | None = None
    ) -> LogChunk:
        """Return the simulated story of one attempt."""
        self._check_reachable()
        if attempt is None:
            attempt = instance.attempt
        key: Attempt = (instance.epoch, instance.job_attempt, attempt)
        state = self._runs.get(instance.run.uid, SimulatedRun())
        whole = state.logs.get((instance.role, instance.index, key), b"")
        data = whole[cursor.offset : cursor.offset + limit]
        position = cursor.offset + len(data)
        current = state.instances.get(instance.key)
        writing = current is not None and current.attempt == key and current.state not in ENDED
        return LogChunk(
            data=data, next=Cursor(offset=position), end=not writing and position >= len(whole)
        )

    async def tail_log(self, instance: InstanceRef, *, limit: int) -> bytes:
        """Return the end of the simulated story of one attempt."""
        self._check_reachable()
        key: Attempt = (instance.epoch, instance.job_attempt, instance.attempt)
        state = self._runs.get(instance.run.uid, SimulatedRun())
        return state.logs.get((*instance.key, key), b"")[-limit:]

    async def collect_logs(
        self, run: RunRef, *, only: Collection[InstanceKey] | None = None
    ) -> None:
        """Return: nothing of a log goes away."""

    async def remove(self, run: RunRef) -> None:
        """Forget every instance at once and refuse later creates of this generation."""
        self._check_reachable()
        state = self._runs.setdefault(run.uid, SimulatedRun())
        state.generation = max(state.generation, run.generation)
        state.removed_generation = state.generation
        for found in list(state.instances.values()):
            if not found.kept:
                self._forget(run.uid, found)

    async def cluster_view(
        self,
        job: ResolvedJob | None = None,  # noqa: ARG002 - the port's signature
        *,
        with_free: bool = False,  # noqa: ARG002 - as above
    ) -> ClusterSnapshot:
        """Return the nodes it was made with."""
        self._check_reachable()
        return ClusterSnapshot(nodes=(_NODE,))

    # what tests and simulations may do -----------------------------------------------------------
    def live(self, run_uid: str) -> Mapping[InstanceKey, Observation]:
        """Return the instances that hold resources now (not ended)."""
        state = self._runs.get(run_uid, SimulatedRun())
        return {k: i.observe() for k, i in state.instances.items() if i.state not in ENDED}

    def spec(self, run_uid: str, role: str, index: int) -> InstanceSpec:
        """The spec of the current object; raises KeyError."""
        return self._runs[run_uid].instances[InstanceKey(role, index)].spec

    def finish(
        self,
        run_uid: str,
        role: str,
        index: int,
        *,
        exit_code: int = 0,
        signal: int | None = None,
        reason: str = "",
        message: str = "",
    ) -> None:
        """End a living instance now; raises KeyError where there is none."""
        found = self._runs[run_uid].instances[InstanceKey(role, index)]
        self._end(
            run_uid, found, exit_code=exit_code, signal=signal, reason=reason, message=message
        )

    def report(self, run_uid: str, role: str, index: int, progress: ProgressReport) -> None:
        """Let an instance report progress; raises KeyError where there is none."""
        found = self._runs[run_uid].instances[InstanceKey(role, index)]
        found.progress = progress
        self._emit(run_uid, InstanceUpdate(instance=found.observe()))

    def vanish(self, run_uid: str, role: str, index: int) -> None:
        """Let an object disappear, as if somebody else had deleted it; KeyError."""
        self._forget(run_uid, self._runs[run_uid].instances[InstanceKey(role, index)])

    async def keep(self, instance: InstanceRef, *, seconds: float) -> None:
        """Let an instance that waits stay."""
        self._check_reachable()
        found = self._waiting(instance)
        if found is not None:
            found.in_place, found.kept = False, True
            self._emit(instance.run.uid, InstanceUpdate(instance=found.observe()))
            until = self.clock.now() + seconds
            self.clock.call_at(until, partial(self._go, instance.run.uid, found))

    async def end_kept(self, run: RunRef) -> None:
        """End what stays."""
        state = self._runs.get(run.uid)
        for each in list(state.instances.values()) if state else ():
            self._go(run.uid, each)

    # inside --------------------------------------------------------------------------------------
    def _take_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def _existing(
        self, instances: Sequence[InstanceRef]
    ) -> Iterator[tuple[str, SimulatedInstance]]:
        """Yield what is there of these, with its run; raises RuntimeUnavailable."""
        self._check_reachable()
        for ref in instances:
            found = self._find(ref)
            if found is not None:
                yield ref.run.uid, found

    def _find(self, ref: InstanceRef) -> SimulatedInstance | None:
        """Return the object `ref` means: the same uid, or without one the same attempt."""
        state = self._runs.get(ref.run.uid)
        found = state.instances.get(ref.key) if state else None
        if found is None:
            return None
        same = found.uid == ref.uid if ref.uid else found.attempt == attempt_of(ref)
        return found if same else None

    def _waiting(self, ref: InstanceRef) -> SimulatedInstance | None:
        found = self._find(ref)
        return found if found is not None and found.waits_in_place else None

    def _create(self, spec: InstanceSpec, *, inside: SimulatedInstance | None = None) -> Outcome:
        """`inside`: an instance that waits for this very attempt."""
        ref = spec.ref
        state = self._runs.setdefault(ref.run.uid, SimulatedRun())
        refusal = state.refuse_or_own(ref.run.generation)
        if refusal:
            return Outcome(ref=ref, result="refused", message=refusal)
        old = state.instances.get(ref.key)
        if old is not None:
            if old.attempt == attempt_of(ref) and old.state != "terminating":
                return Outcome(ref=replace(ref, uid=old.uid), result="adopted")
            if old.attempt > attempt_of(ref):
                return Outcome(ref=ref, result="refused", message="a newer attempt exists")
            waits = (old.in_place and old is not inside) or old.kept
            if old.state not in ENDED or waits:
                return Outcome(
                    ref=ref,
                    result="refused",
                    reason=WAITING_FOR_OLD_INSTANCE,
                    message="another attempt still lives",
                )
        if inside is None and (full := self._refuses(state, ref)):
            return Outcome(ref=ref, result="refused", message=full)
        if old is not None:
            self._forget(ref.run.uid, old)
        state.next_uid += 1
        uid = f"{ref.run.uid}-{ref.key}-{state.next_uid}"
        made = SimulatedInstance(
            spec, uid=uid, address=self._address(state, ref), now=self.clock.now()
        )
        place_seconds = self.script.behaviour(ref.role).place_seconds
        made.placed = inside is not None or place_seconds <= 0
        if not (made.placed or made.held):
            made.reason = "Unschedulable"
        state.instances[made.key] = made
        self._log(ref.run.uid, made, "created")
        self._emit(ref.run.uid, InstanceUpdate(instance=made.observe()))
        self._later(
            0.0 if made.placed else place_seconds,
            ref.run.uid,
            made,
            lambda i: self._placed(ref.run.uid, i),
        )
        if made.held:
            self._limit(ref.run.uid, made)
        return Outcome(ref=replace(ref, uid=uid), result="created")

    @staticmethod
    def _address(state: SimulatedRun, ref: InstanceRef) -> str:
        known = state.addresses.get((ref.epoch, ref.job_attempt), {}).get(ref.role, [])
        return str(known[ref.index]) if ref.index < len(known) else "127.0.0.1"

    def _refuses(self, state: SimulatedRun, ref: InstanceRef) -> str:
        """Return why an instance may not be created now; empty where it may."""
        passed = self.clock.now() - (state.prepared_at or 0.0)
        found = (
            fault.message or "no room now"
            for fault in self.script.faults
            if fault.kind == "refuse"
            and fault.matches(role=ref.role, index=ref.index, attempt=ref.attempt)
            and fault.at is not None
            and fault.at <= passed < fault.at + fault.seconds
        )
        return next(found, "")


class _MemoryAdapter(Adapter):
    name = SIMULATED
    module = __name__
    capabilities = MemoryRuntime.capabilities

    def open(self, settings: Settings, given: RuntimeContext) -> MemoryRuntime:  # noqa: ARG002 - a simulation has none
        script = None if given.simulate is None else load_script(given.simulate)
        return MemoryRuntime(script=script, clock=given.clock)


MEMORY = _MemoryAdapter()
