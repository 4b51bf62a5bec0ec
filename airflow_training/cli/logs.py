"""`logs show`: what an instance printed, also while it runs and is restarted. Interprets nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_training.cli.context import RunArgument, check_role, open_store, settings
from airflow_training.cli.output import command_line, fail, note
from airflow_training.control.model import TERMINAL_JOB_STATES

if TYPE_CHECKING:
    from airflow_training.control.model import InstanceEntry
    from airflow_training.runtimes.port import InstanceRef, Runtime
    from airflow_training.state.store import RunState, Store

__all__ = ["app"]

app = typer.Typer(
    name="logs", help="Logs of instances.", no_args_is_help=True, rich_markup_mode=None
)
_CHUNK_BYTES = 1 << 20
_FOLLOW_SECONDS = 0.3

Numbers = tuple[int, int, int]
"""(epoch, job attempt, attempt): they grow with every attempt of an instance."""


@app.callback()
def logs() -> None:
    """Logs of instances."""


@app.command()
def show(
    run: RunArgument,
    role: Annotated[str, typer.Option(help="Name of the role.")],
    index: Annotated[int, typer.Option(min=0, help="Which of its instances.")] = 0,
    attempt: Annotated[
        int | None, typer.Option(min=0, help="An earlier attempt; the newest by default.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Go on, into later attempts too; with --attempt in that one."
        ),
    ] = False,
) -> None:
    """Print the log of one instance to stdout, byte for byte."""
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
    instance = _Instance(store=store, uid=record.uid, role=role, index=index)
    connection = store.job(record.uid).connection
    runtime = make_runtime(record.runtime, settings(), connection=connection)
    known = instance.attempts(instance.state())
    if attempt is not None and attempt not in known:
        raise fail(
            "--attempt",
            f"{instance.name} has no attempt {attempt}",
            value=attempt,
            allowed=sorted(known),
        )
    chosen = known[max(known) if attempt is None else attempt] if known else None
    if chosen is None and instance.final():
        note(f"{instance.name} was never started")
        return
    if chosen is None and not follow:
        note(f"{instance.name} has not been started yet; --follow waits for it")
        return
    only = attempt is not None
    printed = asyncio.run(_show(instance, runtime, chosen, follow=follow, only=only))
    if not printed and record.tombstone_reason:
        raise fail("RUN", f"there is no log of it any more: {record.tombstone_reason}", value=run)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Instance:
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

    def attempts(self, state: RunState) -> Mapping[int, Numbers]:
        """Return the attempts that may have a log, by their number."""
        known = {
            int(row["attempt"]): (int(row["epoch"]), int(row["job_attempt"]), int(row["attempt"]))
            for row in self.store.usage(self.uid)
            if (row["role"], row["index"]) == (self.role, self.index)
        }
        entry = state.ledger.instances.get((self.role, self.index))
        if entry is not None and (entry.wanted or _has_run(entry)):
            known[entry.attempt] = (entry.epoch, entry.job_attempt, entry.attempt)
        return known

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


def _has_run(entry: InstanceEntry) -> bool:
    """Return whether there was a process of the current attempt, if only for a moment."""
    return entry.was_running or entry.exit_code is not None or entry.signal is not None


async def _show(
    instance: _Instance, runtime: Runtime, numbers: Numbers | None, *, follow: bool, only: bool
) -> int:
    """Copy an attempt (None: none was started yet), and unless it is the `only` one those after.

    Returns how many bytes there were.
    """
    shown = None
    printed = 0
    while True:
        if numbers is not None:
            if shown is not None:
                note(f"{instance.name} was restarted: attempt {numbers[2]}")
            printed += await _copy(instance, runtime, numbers, follow=follow)
            shown = numbers
        if only or not follow:
            return printed
        # in this order: an attempt that began meanwhile is not missed
        final = await asyncio.to_thread(instance.final)
        numbers = await asyncio.to_thread(instance.after, shown)
        if numbers is None:
            if final:
                return printed
            await asyncio.sleep(_FOLLOW_SECONDS)


async def _copy(instance: _Instance, runtime: Runtime, numbers: Numbers, *, follow: bool) -> int:
    """Print the log of one attempt, with `follow` until it is over; return how many bytes it had."""
    from airflow_training.runtimes.port import Cursor

    ref = await asyncio.to_thread(instance.ref, numbers)
    cursor = Cursor()
    last = False
    while True:
        chunk = await runtime.read_log(ref, cursor, limit=_CHUNK_BYTES)
        cursor = chunk.next
        if chunk.data:
            sys.stdout.buffer.write(chunk.data)
            sys.stdout.buffer.flush()
            continue
        if chunk.end or not follow or last:
            return cursor.offset
        # nobody writes any more, though the runtime does not know its end: its folder is gone
        last = await asyncio.to_thread(_superseded, instance, numbers)
        if not last:
            await asyncio.sleep(_FOLLOW_SECONDS)


def _superseded(instance: _Instance, numbers: Numbers) -> bool:
    """Return whether a later attempt has begun, or the run is over."""
    return instance.drained() or instance.after(numbers) is not None
