"""`list`, `status`, `events`, `export`: what the store knows about runs of any source. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from airflow_training.cli.context import (
    RunArgument,
    SourceOption,
    check_run_or_dag_run,
    open_store,
)
from airflow_training.cli.documents import OutputOption
from airflow_training.cli.output import (
    OutputFormat,
    event_json,
    event_line,
    fail,
    next_step,
    note,
    print_json,
    print_table,
    time_text,
)
from airflow_training.cli.statuses import print_status
from airflow_training.control.model import TERMINAL_JOB_STATES, JobState
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.spelling import did_you_mean
from airflow_training.state.nodes import Cluster
from airflow_training.supervise.absences import Absence, absence_of_run, what_to_type
from airflow_training.supervise.role_checks import check_role

if TYPE_CHECKING:
    from airflow_training.control.node_faults import NodeExclusion
    from airflow_training.state.store import RunRecord, Store, StoredEvent

__all__ = ["events", "list_runs", "status"]

_MOST_TOLD = 5
"""Runs that nobody drives, of each of which a list says what to type."""


def list_runs(
    limit: Annotated[int, typer.Option(min=1, help="Show the newest so many.")] = 20,
    state: Annotated[
        list[str] | None, typer.Option(help="Only runs in this state; may be repeated.")
    ] = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """List runs of any source, newest first."""
    chosen = [_job_state(each) for each in state or ()]
    store = open_store()
    records = store.runs(limit=limit, states=chosen)
    absences = _absences(store, records)
    if output is OutputFormat.json:
        rows = [
            {
                "run_id": each.key.run_id,
                "uid": each.uid,
                "job": each.job,
                "source": each.key.source,
                "dag_id": each.key.dag_id or None,
                "group_id": each.key.group_id or None,
                "map_index": each.key.map_index,
                "runtime": each.runtime,
                "state": each.listed_state,
                "condition": each.condition,
                "undriven_since": time_text(_since(absences.get(each.uid))) or None,
                "submitted_by": each.submitted_by or None,
                "submitted_at": time_text(each.submitted_at),
                "finished_at": time_text(each.finished_at) or None,
            }
            for each in records
        ]
        print_json({"runs": rows})
        return
    print_table(
        ["run", "uid", "job", "source", "by", "runtime", "state", "submitted", "finished"],
        [
            [
                each.key.run_id,
                each.uid[:8],
                each.job,
                each.key.dag_id or each.key.source,
                each.submitted_by,
                each.runtime,
                each.listed_state + (", not driven" if each.uid in absences else ""),
                time_text(each.submitted_at),
                time_text(each.finished_at),
            ]
            for each in records
        ],
    )
    for each in [each for each in records if each.uid in absences][:_MOST_TOLD]:
        note(f"{each.key.run_id}: {absences[each.uid]}. {what_to_type(each, absences[each.uid])}")
    if records:
        next_step("status", _shortest(records))
    else:
        next_step("init")


def status(
    run: Annotated[
        str, typer.Argument(metavar="[RUN]", help="Run id, or the beginning of its uid.")
    ] = "",
    dag_run: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="DAG RUN", help="Instead of RUN: all runs of this DAG run, in a line."
        ),
    ] = None,
    source: SourceOption = "",
    server: Annotated[
        str, typer.Option(help="Ask the plugin of this Airflow instead of the local store.")
    ] = "",
    dag: Annotated[str, typer.Option(help="For --server: the DAG of the run.")] = "training_job",
    username: Annotated[str, typer.Option(help="For --server.")] = "",
    password: Annotated[str, typer.Option(envvar="AIRFLOW_PASSWORD", help="For --server.")] = "",
    output: OutputOption = OutputFormat.table,
) -> None:
    """Show the state of a run, its roles and its instances; or how far all runs of a DAG run are."""
    check_run_or_dag_run(run, dag_run, source=source)
    if dag_run is not None:
        from airflow_training.cli.dag_runs import show_dag_run

        show_dag_run(*dag_run, source=source, output=output)
        return
    gone = ""
    rejected: Sequence[str] = ()
    left_out: Sequence[NodeExclusion] = ()
    metrics: Mapping[InstanceKey, Mapping[str, float]] = {}
    if server:
        from airflow_training.cli.airflow_api import AirflowApi

        with AirflowApi(server, username=username, password=password) as api:
            document = api.training_status(dag, run)
    else:
        from airflow_training.supervise.status import rejected_checkpoints, run_status

        store = open_store()
        record = store.find_run(run)
        document = run_status(store, record.uid)
        metrics = store.metrics.newest(record.uid) if output is OutputFormat.table else {}
        gone = record.tombstone_reason
        job = store.job(record.uid)
        rejected = rejected_checkpoints(job, store.ledger(record.uid))
        if job.scheduling.avoids_excluded and record.state not in TERMINAL_JOB_STATES:
            left_out = store.nodes.excluded(Cluster.of_job(job))
    print_status(document, output=output, metrics=metrics, rejected=rejected)
    for each in left_out:
        note(f"not on node {each}")
    if gone:
        note(gone)
    verb = "resume" if document["state"] == "Paused" else "events"
    next_step(verb, document["run_id"])


def events(
    run: RunArgument,
    role: Annotated[str, typer.Option(help="Only events of this role.")] = "",
    after: Annotated[int, typer.Option(min=0, help="Only events after this number.")] = 0,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Show the story of a run.

    Every start, end, restart and decision; in JSON with the rule that fired.
    """
    store = open_store()
    record = store.find_run(run)
    if role:
        check_role(role, store.ledger(record.uid).roles)
    found: list[StoredEvent] = []
    while page := store.events(record.uid, after=after, role=role or None, limit=1000):
        found += page
        after = page[-1].seq
    if output is OutputFormat.json:
        rows = [{"seq": each.seq, **event_json(each.event)} for each in found]
        print_json({"run_id": record.key.run_id, "events": rows})
        return
    for each in found:
        print(f"{each.seq:>5}  {event_line(each.event, as_json=False)}")
    next_step("status", record.key.run_id)


def _shortest(records: Sequence[RunRecord]) -> str:
    """Return a name of the first run that means no other one of these."""
    first = records[0]
    same = sum(each.key.run_id == first.key.run_id for each in records)
    return first.key.run_id if same == 1 else first.uid


def _absences(store: Store, records: Sequence[RunRecord]) -> Mapping[str, Absence]:
    """Return of the runs that nobody drives since when that is, and why."""
    now = store.now()
    unfinished = [
        each.uid
        for each in records
        if each.state not in TERMINAL_JOB_STATES or each.condition == "StopRequested"
    ]
    found = {
        uid: absence_of_run(run.record, run.entry, run.driver, now=now)
        for uid, run in store.overviews(unfinished).items()
    }
    return {uid: absence for uid, absence in found.items() if absence is not None}


def _since(absence: Absence | None) -> float | None:
    return None if absence is None else absence.since


def _job_state(text: str) -> str:
    known: Sequence[str] = get_args(JobState)
    by_lower = {each.lower(): each for each in known}
    if text.lower() not in by_lower:
        hint = did_you_mean(text, known)
        raise fail("--state", f"no state is called {text!r}", allowed=known, hint=hint)
    return by_lower[text.lower()]
