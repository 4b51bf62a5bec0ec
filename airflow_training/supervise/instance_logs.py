"""Logs of a run's instances: which attempts have one, and how the runtime reads it. Prints nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from airflow_training.control.attempts import AttemptId, InstanceRecord
from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import InputError
from airflow_training.supervise.role_checks import check_role

if TYPE_CHECKING:
    from airflow_training.control.model import InstanceEntry
    from airflow_training.logs.reading.instance import FetchResult, InstanceLog
    from airflow_training.runtimes.port import InstanceRef, Runtime
    from airflow_training.state.store import RunRecord, RunState, Store

__all__ = ["InstanceLogs", "NewestLog", "RunLogs"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLogs:
    """A run whose instances print, with the runtime that reads what they printed."""

    store: Store
    record: RunRecord
    runtime: Runtime

    def instance(self, role: str, index: int) -> InstanceLogs:
        """Return the logs of an instance of the run, whether it was ever started or not."""
        return InstanceLogs(store=self.store, uid=self.record.uid, key=InstanceKey(role, index))

    def instances(self) -> list[InstanceLogs]:
        """Return all that were ever started, in the order of the job's roles."""
        state = self.store.read([self.record.uid])[self.record.uid]
        order = {role.name: number for number, role in enumerate(state.job.roles)}
        known = {each.key for each in self.store.usage.of_run(self.record.uid)}
        known |= {key for key, entry in state.ledger.instances.items() if _has_log(entry)}
        ordered = sorted(known, key=lambda key: (order.get(key.role, len(order)), key.index))
        return [self.instance(role, index) for role, index in ordered]

    def only_instance(self) -> InstanceKey | None:
        """The instance that is all of the run, started or not; None where there are more."""
        state = self.store.read([self.record.uid])[self.record.uid]
        known = {each.key for each in self.store.usage.of_run(self.record.uid)}
        known |= set(state.ledger.instances)
        known |= {
            InstanceKey(role.name, index)
            for role in state.job.roles
            for index in range(role.replicas)
        }
        return known.pop() if len(known) == 1 else None

    def newest(self) -> list[NewestLog]:
        """Return the newest attempt of each instance that was ever started, in the same order."""
        from airflow_training.runtimes.port import InstanceRef

        state = self.store.read([self.record.uid])[self.record.uid]
        order = {role.name: number for number, role in enumerate(state.job.roles)}
        found: dict[InstanceKey, tuple[AttemptId, float]] = {}
        for each in self.store.usage.of_run(self.record.uid):
            if each.key not in found or found[each.key][0] <= each.attempt_id:
                found[each.key] = each.attempt_id, each.started_at
        for key, entry in state.ledger.instances.items():
            if _has_log(entry) and (key not in found or found[key][0] != entry.attempt_id):
                found[key] = entry.attempt_id, entry.started_at or entry.last_transition_at
        run = state.record.ref()
        newest = []
        for key in sorted(found, key=lambda each: (order.get(each[0], len(order)), each[1])):
            known = state.ledger.instances.get(key)
            newest.append(
                NewestLog(
                    instance=self.instance(*key),
                    ref=InstanceRef(run=run, key=key, attempt_id=found[key][0]),
                    begun=found[key][1],
                    over=state.ledger.job.is_over or (known is not None and known.final),
                )
            )
        return newest

    def open(
        self,
        instance: InstanceLogs,
        attempt_id: AttemptId,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> InstanceLog:
        """Return the log of one attempt, for readers that block; see `open_ref`."""
        return self.open_ref(instance.name, instance.ref(attempt_id), loop=loop)

    def open_ref(
        self,
        name: str,
        ref: InstanceRef,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> InstanceLog:
        """Return the log of one attempt, for readers that block.

        `loop`: runs in another thread, where the runtime is at home; None: one of its own. A reader
        is then in no thread that the runtime waits for, as those of `asyncio.to_thread` are.
        `before`: called before each read, which it may refuse by raising.
        """
        from airflow_training.logs.reading.instance import FetchResult, InstanceLog
        from airflow_training.runtimes.port import Cursor

        used = asyncio.new_event_loop() if loop is None else loop

        def wait(coroutine: Coroutine[None, None, T]) -> T:
            if loop is None:
                return used.run_until_complete(coroutine)
            return asyncio.run_coroutine_threadsafe(coroutine, used).result()

        def fetch(offset: int, token: str, limit: int) -> FetchResult:
            before()
            cursor = Cursor(offset=offset, token=token)
            chunk = wait(self.runtime.read_log(ref, cursor, limit=limit))
            place = chunk.next
            return FetchResult(chunk.data, place.offset, place.token, chunk.end, chunk.missing)

        def close() -> None:
            if loop is None:
                used.run_until_complete(used.shutdown_asyncgens())  # they hold the connections
                used.close()

        return InstanceLog(name, fetch, close=close)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestLog:
    """The newest attempt of one instance."""

    instance: InstanceLogs
    ref: InstanceRef
    begun: float
    over: bool
    """Nothing follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLogs(InstanceRecord):
    """One instance of a run in the store. Every method blocks."""

    store: Store
    uid: str
    key: InstanceKey

    @property
    def name(self) -> str:
        """Return how people call it."""
        return str(self.key)

    def state(self) -> RunState:
        """Return the run as it is now; raises InputError where it has no such instance."""
        state = self.store.read([self.uid])[self.uid]
        roles = state.ledger.roles
        check_role(self.role, roles)
        there = {index for role, index in state.ledger.instances if role == self.role}
        there |= set(range(roles[self.role].replicas))
        if self.index not in there:
            raise InputError.of(
                code="not_allowed",
                field="--index",
                message=f"role {self.role!r} has no instance {self.index}",
                value=self.index,
                allowed=sorted(there),
            )
        return state

    def rank(self) -> int | None:
        """Return the rank of its first process; None where the role takes none."""
        role = next((each for each in self.state().job.roles if each.name == self.role), None)
        return None if role is None else role.rank_of(self.index)

    def attempts(self, state: RunState) -> Mapping[int, AttemptId]:
        """Return the attempts that may have a log, by their number."""
        known = {
            each.attempt: each.attempt_id
            for each in self.store.usage.of_run(self.uid)
            if each.key == self.key
        }
        entry = state.ledger.instances.get(self.key)
        if entry is not None and _has_log(entry):
            known[entry.attempt] = entry.attempt_id
        return known

    def chosen(self, attempt: int | None) -> AttemptId | None:
        """Return that attempt, by default the newest; None where none was started yet.

        Raises InputError for an attempt that there is not.
        """
        known = self.attempts(self.state())
        if attempt is not None and attempt not in known:
            raise InputError.of(
                code="not_allowed",
                field="--attempt",
                message=f"{self.name} has no attempt {attempt}",
                value=attempt,
                allowed=sorted(known),
            )
        return known[max(known) if attempt is None else attempt] if known else None

    def has_begun(self, attempt_id: AttemptId) -> bool:
        """Return whether an attempt was seen: one that is only intended has no log yet."""
        entry = self.state().ledger.instances.get(self.key)
        return entry is None or entry.attempt_id != attempt_id or _ran(entry)

    def printed_until(self, attempt_id: AttemptId) -> float | None:
        """Return when the newest attempt failed, now while it runs; else None: it did not hang."""
        entry = self.state().ledger.instances.get(self.key)
        if entry is None or entry.attempt_id != attempt_id:
            return None
        if entry.state == "running":
            return time.time()
        return entry.finished_at if entry.state in ("failed", "stopped") else None

    def after(self, attempt_id: AttemptId | None) -> AttemptId | None:
        """Return the first attempt after the one that was shown, if there is one."""
        later = self.attempts(self.state()).values()
        return min(
            (each for each in later if attempt_id is None or each > attempt_id), default=None
        )

    def final(self) -> bool:
        """Return whether no other attempt can follow."""
        entry = self.state().ledger.instances.get(self.key)
        return (entry is not None and entry.final) or self.drained()

    def waits_for(self) -> str:
        """Return why the next attempt has not begun, in words; "" where nothing is said of it."""
        entry = self.state().ledger.instances.get(self.key)
        return "" if entry is None else ": ".join(filter(None, (entry.reason, entry.message)))

    def silence(self) -> str:
        """Return why its attempt has printed nothing, in words."""
        entry = self.state().ledger.instances.get(self.key)
        if self.final():
            never = entry is not None and not _ran(entry)
            return f"was {self.never_started()}" if never else "printed nothing"
        if entry is not None and entry.state == "pending":
            waits = self.waits_for()
            return f"does not run yet ({waits})" if waits else "does not run yet"
        return "has printed nothing yet"

    def never_started(self) -> str:
        """Return that it never started, and why where that is known."""
        entry = self.state().ledger.instances.get(self.key)
        message = "" if entry is None else entry.message
        told = message.startswith("never started")
        return message if told else ": ".join(filter(None, ("never started", message)))

    def drained(self) -> bool:
        """Return whether the run is over and nothing of it is alive."""
        return self.state().ledger.job.is_over

    def ref(self, attempt_id: AttemptId) -> InstanceRef:
        """Return one of its attempts as a runtime names it."""
        from airflow_training.runtimes.port import InstanceRef

        return InstanceRef(run=self.state().record.ref(), key=self.key, attempt_id=attempt_id)


def _has_log(entry: InstanceEntry) -> bool:
    """Return whether there is a process of the current attempt, or was one if only for a moment."""
    return entry.desired or _ran(entry)


def _ran(entry: InstanceEntry) -> bool:
    return entry.was_running or entry.end.exit_code is not None or entry.end.signal is not None
