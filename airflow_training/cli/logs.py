"""`logs show`: what an instance printed, also while it runs. Interprets nothing."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_training.cli.context import RunArgument, open_store, settings
from airflow_training.cli.output import fail
from airflow_training.control.model import TERMINAL_JOB_STATES

if TYPE_CHECKING:
    from airflow_training.runtimes.port import InstanceRef, Runtime
    from airflow_training.state.store import Store

__all__ = ["app"]

app = typer.Typer(
    name="logs", help="Logs of instances.", no_args_is_help=True, rich_markup_mode=None
)
_CHUNK_BYTES = 1 << 20
_FOLLOW_SECONDS = 0.3


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
        bool, typer.Option("--follow", "-f", help="Go on until the instance ends.")
    ] = False,
) -> None:
    """Print the log of one instance to stdout, byte for byte."""
    from airflow_training.supervise.runtimes import make_runtime

    store = open_store()
    record = store.find_run(run)
    ref = _ref(store, record.uid, role=role, index=index, attempt=attempt)
    connection = store.job(record.uid).connection
    runtime = make_runtime(record.runtime, settings(), connection=connection)
    asyncio.run(_copy(store, runtime, ref, follow=follow))


def _ref(store: Store, uid: str, *, role: str, index: int, attempt: int | None) -> InstanceRef:
    from airflow_training.runtimes.port import InstanceRef
    from airflow_training.spec.resolved import RunRef

    record = store.run(uid)
    ledger = store.ledger(uid)
    if record is None or role not in ledger.roles:
        raise fail(
            "--role",
            f"no role is called {role!r}",
            code="unknown_role",
            value=role,
            allowed=sorted(ledger.roles),
        )
    entry = ledger.instances.get((role, index))
    if entry is None:
        there = sorted(i for name, i in ledger.instances if name == role)
        raise fail("--index", f"role {role!r} has no instance {index}", value=index, allowed=there)
    numbers = (entry.epoch, entry.job_attempt, entry.attempt)
    if attempt is not None:
        known = {
            row["attempt"]: (row["epoch"], row["job_attempt"], row["attempt"])
            for row in store.usage(uid)
            if (row["role"], row["index"]) == (role, index)
        }
        if attempt not in known:
            raise fail(
                "--attempt",
                f"{role}-{index} has no attempt {attempt}",
                value=attempt,
                allowed=sorted(known),
            )
        numbers = known[attempt]
    run = RunRef(uid=uid, job=record.job, namespace=record.namespace, controller=record.controller)
    return InstanceRef(
        run=run,
        role=role,
        index=index,
        epoch=numbers[0],
        job_attempt=numbers[1],
        attempt=numbers[2],
    )


async def _copy(store: Store, runtime: Runtime, ref: InstanceRef, *, follow: bool) -> None:
    from airflow_training.runtimes.port import Cursor

    cursor = Cursor()
    while True:
        chunk = await runtime.read_log(ref, cursor, limit=_CHUNK_BYTES)
        cursor = chunk.next
        if chunk.data:
            sys.stdout.buffer.write(chunk.data)
            sys.stdout.buffer.flush()
            continue
        if chunk.end or not follow or await asyncio.to_thread(_over, store, ref.run.uid):
            return
        await asyncio.sleep(_FOLLOW_SECONDS)


def _over(store: Store, uid: str) -> bool:
    job = store.ledger(uid).job
    return job.state in TERMINAL_JOB_STATES and job.drained
