"""Logs of a run's instances: which attempts have one, and how the runtime reads it. Prints nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_training.cli.context import check_role, open_store, settings
from airflow_training.cli.output import command_line, fail
from airflow_training.control.model import TERMINAL_JOB_STATES

if TYPE_CHECKING:
    from airflow_training.control.model import InstanceEntry
    from airflow_training.logs.reading.instance import Fetched, InstanceLog
    from airflow_training.runtimes.port import InstanceRef, Runtime
    from airflow_training.state.store import RunRecord, RunState, Store

__all__ = ["InstanceLogs", "Numbers", "RunLogs"]

Numbers = tuple[int, int, int]
"""(epoch, job attempt, attempt): they grow with every attempt of an instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLogs:
    """A run whose instances print, with the runtime that reads what they printed."""

    store: Store
    record: RunRecord
    runtime: Runtime

    @classmethod
    def find(cls, run: str) -> RunLogs:
        """Return the run that `run` names; raises InputError for none, and for a simulated one."""
        from airflow_training.supervise.runtimes import make_runtime

        store = open_store()
        record = store.find_run(run)
        if record.runtime == "memory":
            raise fail(
                "RUN",
                "a simulated run prints nothing",
                value=run,
                hint=command_line("events", record.key.run_id),
            )
        connection = store.job(record.uid).connection
        runtime = make_runtime(record.runtime, settings(), connection=connection)
        return cls(store=store, record=record, runtime=runtime)

    def instance(self, role: str, index: int) -> InstanceLogs:
        """Return one of its instances."""
        return InstanceLogs(store=self.store, uid=self.record.uid, role=role, index=index)

    def instances(self) -> list[InstanceLogs]:
        """Return all that were ever started, in the order of the job's roles."""
        state = self.store.read([self.record.uid])[self.record.uid]
        order = {role.name: number for number, role in enumerate(state.job.roles)}
        known = {(row["role"], row["index"]) for row in self.store.usage(self.record.uid)}
        known |= {key for key, entry in state.ledger.instances.items() if _has_log(entry)}
        ordered = sorted(known, key=lambda key: (order.get(key[0], len(order)), key[1]))
        return [self.instance(role, index) for role, index in ordered]

    def open(self, instance: InstanceLogs, numbers: Numbers) -> InstanceLog:
        """Return the log of one attempt, for readers that block."""
        from airflow_training.logs.reading.instance import Fetched, InstanceLog
        from airflow_training.runtimes.port import Cursor

        ref = instance.ref(numbers)
        loop = asyncio.new_event_loop()

        def fetch(offset: int, token: str, limit: int) -> Fetched:
            cursor = Cursor(offset=offset, token=token)
            chunk = loop.run_until_complete(self.runtime.read_log(ref, cursor, limit=limit))
            return Fetched(chunk.data, chunk.next.offset, chunk.next.token, chunk.end)

        return InstanceLog(instance.name, fetch, close=loop.close)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLogs:
    """One instance of a run in the store. Every method blocks."""

    store: Store
    uid: str
    role: str
    index: int

    @property
    def name(self) -> str:
        """Return how people call it."""
        return f"{self.role}-{self.index}"

    def state(self) -> RunState:
        """Return the run as it is now; raises InputError where it has no such instance."""
        state = self.store.read([self.uid])[self.uid]
        roles = state.ledger.roles
        check_role(self.role, roles)
        there = {index for role, index in state.ledger.instances if role == self.role}
        there |= set(range(roles[self.role].replicas))
        if self.index not in there:
            raise fail(
                "--index",
                f"role {self.role!r} has no instance {self.index}",
                value=self.index,
                allowed=sorted(there),
            )
        return state

    def rank(self) -> int | None:
        """Return the rank of its first process; None where the role takes none."""
        role = next((each for each in self.state().job.roles if each.name == self.role), None)
        return None if role is None or role.rank_offset is None else role.rank_offset + self.index

    def attempts(self, state: RunState) -> Mapping[int, Numbers]:
        """Return the attempts that may have a log, by their number."""
        known = {
            int(row["attempt"]): (int(row["epoch"]), int(row["job_attempt"]), int(row["attempt"]))
            for row in self.store.usage(self.uid)
            if (row["role"], row["index"]) == (self.role, self.index)
        }
        entry = state.ledger.instances.get((self.role, self.index))
        if entry is not None and _has_log(entry):
            known[entry.attempt] = (entry.epoch, entry.job_attempt, entry.attempt)
        return known

    def chosen(self, attempt: int | None) -> Numbers | None:
        """Return that attempt, by default the newest; None where none was started yet.

        Raises InputError for an attempt that there is not.
        """
        known = self.attempts(self.state())
        if attempt is not None and attempt not in known:
            raise fail(
                "--attempt",
                f"{self.name} has no attempt {attempt}",
                value=attempt,
                allowed=sorted(known),
            )
        return known[max(known) if attempt is None else attempt] if known else None

    def printed_until(self, numbers: Numbers) -> float | None:
        """Return when the newest attempt failed, now while it runs; else None: it did not hang."""
        entry = self.state().ledger.instances.get((self.role, self.index))
        if entry is None or (entry.epoch, entry.job_attempt, entry.attempt) != numbers:
            return None
        if entry.state == "running":
            return time.time()
        return entry.finished_at if entry.state == "failed" else None

    def after(self, numbers: Numbers | None) -> Numbers | None:
        """Return the first attempt after the one that was shown, if there is one."""
        later = self.attempts(self.state()).values()
        return min((each for each in later if numbers is None or each > numbers), default=None)

    def final(self) -> bool:
        """Return whether no other attempt can follow."""
        entry = self.state().ledger.instances.get((self.role, self.index))
        return (entry is not None and entry.final) or self.drained()

    def drained(self) -> bool:
        """Return whether the run is over and nothing of it is alive."""
        job = self.state().ledger.job
        return job.state in TERMINAL_JOB_STATES and job.drained

    def ref(self, numbers: Numbers) -> InstanceRef:
        """Return one of its attempts as a runtime names it."""
        from airflow_training.runtimes.port import InstanceRef

        epoch, job_attempt, attempt = numbers
        return InstanceRef(
            run=self.state().record.ref(),
            role=self.role,
            index=self.index,
            epoch=epoch,
            job_attempt=job_attempt,
            attempt=attempt,
        )


def _has_log(entry: InstanceEntry) -> bool:
    """Return whether there is a process of the current attempt, or was one if only for a moment."""
    ran = entry.was_running or entry.exit_code is not None or entry.signal is not None
    return entry.wanted or ran
