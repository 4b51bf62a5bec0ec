"""`run --open`: drives every open run of this machine's command line on, as after a reboot."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_training.builtin_runtimes import SIMULATED
from airflow_training.cli.output import OutputFormat, event_line, log_to_stderr, note
from airflow_training.control.model import TERMINAL_JOB_STATES, Event

if TYPE_CHECKING:
    from airflow_training.cli.start import ResumeOpenRuns
    from airflow_training.settings import Settings
    from airflow_training.state.store import RunRecord, Store

__all__ = ["drive_unfinished_runs"]

_MOST_RUNS = 10_000


def find_unfinished_runs(store: Store, *, controller: str) -> list[RunRecord]:
    """Runs that the command line has started and that have not ended, the oldest first."""
    found = store.runs(limit=_MOST_RUNS, controller=controller)
    return [
        each
        for each in reversed(found)
        if each.key.source == "cli"
        and each.runtime != SIMULATED
        and not each.tombstone
        and each.state not in TERMINAL_JOB_STATES
    ]


def drive_unfinished_runs(asked: ResumeOpenRuns, *, settings: Settings) -> bool:
    """Drive all open runs to their ends; return whether all of them succeeded.

    A run that another process drives is waited for. SIGINT and SIGTERM end this process only: the
    runs go on, and can be taken up again.
    """
    from airflow_training.admission.launch import controller_id
    from airflow_training.state.store import open_store

    log_to_stderr(as_json=False)
    with contextlib.closing(open_store()) as store:
        found = find_unfinished_runs(store, controller=controller_id(store, settings))
        note(f"taking up {', '.join(each.key.run_id for each in found) or 'no run: none is open'}")
        asyncio.run(_drive(store, found, settings=settings))
        ended = {each.key.run_id: store.ledger(each.uid).job.state for each in found}
    if asked.output is OutputFormat.json:
        runs = [{"run_id": run_id, "state": state} for run_id, state in ended.items()]
        sys.stdout.write(json.dumps({"runs": runs}) + "\n")
    else:
        for run_id, state in ended.items():
            sys.stdout.write(f"{run_id}  {state}\n")
    return all(state == "Succeeded" for state in ended.values())


async def _drive(store: Store, runs: list[RunRecord], *, settings: Settings) -> None:
    from airflow_training.cli.context import runtime_of
    from airflow_training.supervise.loop import Supervisor
    from airflow_training.supervise.owners import new_owner

    def event_printer(run_id: str) -> Callable[[Event], None]:
        return lambda event: note(f"{run_id}  {event_line(event, as_json=False)}")

    driving = [
        asyncio.ensure_future(
            Supervisor(
                store=store,
                runtime=runtime_of(record, store),
                run_uid=record.uid,
                owner=new_owner(),
                on_event=event_printer(record.key.run_id),
                max_running_jobs=settings.max_running_jobs,
                read_logs=settings.read_logs,
            ).run()
        )
        for record in runs
    ]
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: [each.cancel() for each in driving])
    for record, ended in zip(
        runs, await asyncio.gather(*driving, return_exceptions=True), strict=True
    ):
        if isinstance(ended, Exception):
            note(f"run {record.key.run_id}: {ended}")
