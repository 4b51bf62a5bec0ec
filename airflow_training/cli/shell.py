"""`airflow-training shell`: a look inside an instance that lives, or that stays after its job has failed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_training.builtin_runtimes import SIMULATED
from airflow_training.cli.context import RunArgument, open_store, runtime_of
from airflow_training.cli.output import fail
from airflow_training.documents.instances import InstanceKey

if TYPE_CHECKING:
    from airflow_training.control.model import JobEntry
    from airflow_training.documents.resolved import ResolvedJob

__all__ = ["shell"]

_ENDED = 143
"""Exit code of a command that SIGTERM has ended, as shells have it."""


def shell(
    run: RunArgument,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND]", help="What to run; a shell by default."),
    ] = None,
    role: Annotated[str, typer.Option(help="Name of the role.")] = "",
    index: Annotated[int | None, typer.Option(min=0, help="Which of its instances.")] = None,
) -> None:
    """Open a shell inside an instance, or run a command there.

    The instance runs, or stays after its job has failed (restart.keepFailedSeconds). By default it is
    the one that stays, else the first of the first role. The exit code is the command's.
    """
    import asyncio

    from airflow_training.runtimes.port import Streams
    from airflow_training.supervise.kept import open_shell

    store = open_store()
    record = store.find_run(run)
    if record.runtime == SIMULATED:
        raise fail("RUN", "a simulated run has nothing to look into", value=run)
    job = store.job(record.uid)
    key = _chosen(job, store.ledger(record.uid).job, role, index)
    runtime = runtime_of(record, store)
    streams = Streams(terminal=all(each.isatty() for each in (sys.stdin, sys.stdout)))
    looking = open_shell(record, key, command or (), streams, store=store, runtime=runtime)
    try:
        code = asyncio.run(looking)
    except asyncio.CancelledError:  # by a signal, while the terminal was raw
        code = _ENDED
    sys.exit(code)


def _chosen(job: ResolvedJob, entry: JobEntry, role: str, index: int | None) -> InstanceKey:
    kept = entry.kept
    if not role and index is None and kept is not None and kept.uid:
        return kept.key
    return InstanceKey(role or job.roles[0].name, index or 0)
