"""All runs of one DAG run: how far they are in one line, and one stop for all, also those yet to begin."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_training.builtin_runtimes import SIMULATED
from airflow_training.cli.context import open_store, settings
from airflow_training.cli.output import (
    OutputFormat,
    command_line,
    fail,
    note,
    print_json,
    terminal,
)
from airflow_training.control.keeping import may_be_there
from airflow_training.control.model import TERMINAL_JOB_STATES
from airflow_training.documents.text import counted
from airflow_training.errors import StillAlive

if TYPE_CHECKING:
    from airflow_training.control.model import RequestKind
    from airflow_training.runtimes.port import Runtime
    from airflow_training.state.store import RunRecord, Store

__all__ = ["show_dag_run", "stop_dag_run"]

_MOST_RUNS = 100_000
_AT_ONCE = 16
"""Runs that are seen to their end at the same time: each has a connection to the store."""
_LINE_SECONDS = 10.0
_MOST_TOLD = 5
"""Runs that did not end of which the reason is told."""


class _Progress:
    """One line that says how far it got: renewed in a terminal, written now and then elsewhere."""

    def __init__(self, total: int) -> None:
        self._total, self._ended, self._said_at = total, 0, time.monotonic()

    def print_progress(self, *, ended: int) -> None:
        """Say that so many more runs have ended."""
        self._ended += ended
        text = f"{self._ended} of {counted(self._total, 'run')} ended"
        last = self._ended == self._total
        if sys.stderr.isatty():
            drawn = terminal(sys.stderr)
            drawn.write(f"\r{text}" + ("\n" if last else ""))
            drawn.flush()
        elif last or time.monotonic() - self._said_at >= _LINE_SECONDS:
            self._said_at = time.monotonic()
            note(text)


def stop_dag_run(
    dag_id: str,
    run_id: str,
    *,
    source: str,
    kind: RequestKind,
    reason: str,
    by: str,
    wait_seconds: float,
    output: OutputFormat,
) -> None:
    """Ask for the end of every run, and see to it; raises InputError as `_stored_runs` does.

    First it is written down that the DAG run was stopped, so that nothing of it begins later.
    """
    store = open_store()
    source = _stored_runs(store, dag_id, run_id, source=source)[0].key.source
    store.airflow.save_stop(source, dag_id=dag_id, run_id=run_id, reason=reason, by=by)
    # a run that was stored before that was written down is among them now
    runs = _runs(store, dag_id, run_id, source=source)
    living = [each for each in runs if not store.ledger(each.uid).job.drained]
    for each in living:
        store.add_request(each.uid, kind, reason=reason, by=by)
    alive: Sequence[str] = ()
    now, unfinished = store.now(), {each.uid for each in living}
    here = [
        each
        for each in runs
        # a simulation lives in its own process only
        if (each.uid in unfinished and each.runtime != SIMULATED)
        or may_be_there(store.ledger(each.uid).job, now=now)
    ]
    if wait_seconds and here:
        alive = asyncio.run(
            _see_to_end(here, store=store, wait_seconds=wait_seconds, reason=reason, by=by)
        )
    runs = _runs(store, dag_id, run_id, source=source)
    _print(runs, dag_id=dag_id, run_id=run_id, kind=kind, output=output)
    if alive:
        raise StillAlive(
            f"{len(alive)} of {len(living)} runs did not end: " + "; ".join(alive[:_MOST_TOLD])
        )


def show_dag_run(dag_id: str, run_id: str, *, source: str, output: OutputFormat) -> None:
    """Say in one line how far the runs are; raises InputError as `_stored_runs` does."""
    store = open_store()
    runs = _stored_runs(store, dag_id, run_id, source=source)
    found = store.overviews([each.uid for each in runs])
    restarts = sum(len(each.entry.restarts) for each in found.values())
    states = Counter(each.state for each in runs)
    ended = sum(number for state, number in states.items() if state in TERMINAL_JOB_STATES)
    if output is OutputFormat.json:
        numbers = {"ended": ended, "restarts": restarts, "runs": dict(states)}
        print_json({"dag_id": dag_id, "run_id": run_id, **numbers})
        return
    told = f", {counted(restarts, 'restart')}" if restarts else ""
    print(f"{ended} of {counted(len(runs), 'run')} ended: {_counts(states)}{told}")


def _stored_runs(store: Store, dag_id: str, run_id: str, *, source: str) -> Sequence[RunRecord]:
    """Return the runs of a DAG run; raises InputError where there are none, or of several deployments."""
    known = _runs(store, dag_id, run_id, source=source)
    if not known:
        raise fail(
            "--dag-run",
            f"no run of DAG run {run_id} of DAG {dag_id} is known{source and f' in {source}'}",
            value=f"{dag_id} {run_id}",
            hint=f"{command_line('list')} shows the runs",
        )
    sources = sorted({each.key.source for each in known})
    if len(sources) > 1:
        message = f"DAG run {run_id} of DAG {dag_id} is one of several deployments: name one"
        raise fail("--source", message, code="missing", allowed=sources)
    return known


def _counts(states: Counter[str]) -> str:
    return ", ".join(f"{number} {state}" for state, number in states.most_common())


def _runs(store: Store, dag_id: str, run_id: str, *, source: str) -> Sequence[RunRecord]:
    sources = [source] if source else None
    return store.runs(limit=_MOST_RUNS, sources=sources, dag_ids=[dag_id], run_id=run_id)


async def _see_to_end(
    living: Sequence[RunRecord], *, store: Store, wait_seconds: float, reason: str, by: str
) -> Sequence[str]:
    """Return why runs are still alive after so long; of each run that is, whatever kept it from its end."""
    from airflow_training.supervise.cleanup import drive_to_end
    from airflow_training.supervise.kept import end_kept
    from airflow_training.supervise.runtimes import make_runtime

    progress, turns = _Progress(len(living)), asyncio.Semaphore(_AT_ONCE)
    made: dict[tuple[str, str], Runtime] = {}
    until = time.monotonic() + wait_seconds

    async def end(record: RunRecord) -> str:
        async with turns:
            try:
                where = (record.runtime, store.job(record.uid).connection)
                if where not in made:
                    made[where] = make_runtime(where[0], settings(), connection=where[1])
                await drive_to_end(
                    record.uid,
                    store=store,
                    runtime=made[where],
                    timeout_seconds=max(1.0, until - time.monotonic()),
                )
                await end_kept(record, store=store, runtime=made[where], reason=reason, by=by)
            except StillAlive as error:
                return str(error)
            except Exception as error:  # noqa: BLE001 - what one has must not keep others from their end
                return f"run {record.uid}: {str(error) or type(error).__name__}"
            progress.print_progress(ended=1)
            return ""

    return [each for each in await asyncio.gather(*map(end, living)) if each]


def _print(
    runs: Sequence[RunRecord],
    *,
    dag_id: str,
    run_id: str,
    kind: RequestKind,
    output: OutputFormat,
) -> None:
    states = Counter(each.state for each in runs)
    if output is OutputFormat.json:
        print_json({"dag_id": dag_id, "run_id": run_id, "request": kind, "runs": dict(states)})
        return
    count = counted(len(runs), "run")
    print(f"{kind} of DAG run {run_id} of {dag_id}: {count} ({_counts(states)})")
