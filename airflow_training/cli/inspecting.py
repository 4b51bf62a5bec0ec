"""`list`, `status`, `events`, `export`: what the store knows about runs of any source. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from airflow_training.cli.context import RunArgument, open_store
from airflow_training.cli.output import (
    Output,
    OutputOption,
    event_json,
    event_line,
    fail,
    next_step,
    print_json,
    print_table,
    time_text,
)
from airflow_training.control.model import JobState

if TYPE_CHECKING:
    from airflow_training.state.store import Store, StoredEvent

__all__ = ["events", "export", "list_runs", "print_status", "status", "status_document"]


class ExportFormat(str, Enum):
    """How a document is written."""

    yaml = "yaml"
    json = "json"


def list_runs(
    limit: Annotated[int, typer.Option(min=1, help="Show the newest so many.")] = 20,
    state: Annotated[
        list[str] | None, typer.Option(help="Only runs in this state; may be repeated.")
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """List runs, newest first: from the command line and from Airflow."""
    chosen = [_job_state(each) for each in state or ()]
    records = open_store().runs(limit=limit, states=chosen)
    if output is Output.json:
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
                "state": each.state,
                "condition": each.condition,
                "submitted_at": time_text(each.submitted_at),
                "finished_at": time_text(each.finished_at) or None,
            }
            for each in records
        ]
        print_json({"runs": rows})
        return
    print_table(
        ["run", "uid", "job", "source", "runtime", "state", "submitted", "finished"],
        [
            [
                each.key.run_id,
                each.uid[:8],
                each.job,
                each.key.dag_id or each.key.source,
                each.runtime,
                each.state,
                time_text(each.submitted_at),
                time_text(each.finished_at),
            ]
            for each in records
        ],
    )
    if records:
        next_step(f"airflow-training status {records[0].key.run_id}")
    else:
        next_step("airflow-training init")


def status(
    run: RunArgument,
    server: Annotated[
        str, typer.Option(help="Ask the plugin of this Airflow instead of the local store.")
    ] = "",
    dag: Annotated[str, typer.Option(help="For --server: the DAG of the run.")] = "training_job",
    username: Annotated[str, typer.Option(help="For --server.")] = "",
    password: Annotated[str, typer.Option(envvar="AIRFLOW_PASSWORD", help="For --server.")] = "",
    output: OutputOption = Output.table,
) -> None:
    """Show the state of a run, its roles and its instances."""
    if server:
        from airflow_training.cli.airflow_api import AirflowApi

        with AirflowApi(server, username=username, password=password) as api:
            document = api.training_status(dag, run)
    else:
        store = open_store()
        document = status_document(store, store.find_run(run).uid)
    print_status(document, output=output)
    if document["state"] in {"Succeeded", "Failed", "Stopped"}:
        next_step(f"airflow-training events {document['run_id']}")
    else:
        next_step(f"airflow-training kill {document['run_id']}")


def status_document(store: Store, uid: str) -> Mapping[str, Any]:
    """Return what `status --output json` prints of a run."""
    from airflow_training.supervise.status import run_status

    return run_status(store, uid)


def print_status(document: Mapping[str, Any], *, output: Output) -> None:
    """Print a status document on stdout."""
    if output is Output.json:
        print_json(document)
        return
    print(f"{document['job']}  {document['run_id']}")
    print(
        f"{document['state']} ({document['condition']})  {document['reason']}: {document['message']}"
    )
    print()
    print_table(
        [
            "role",
            "state",
            "desired",
            "pending",
            "running",
            "succeeded",
            "failed",
            "restarts",
            "why",
        ],
        [
            [
                name,
                role["state"],
                role["desired"],
                role["pending"],
                role["running"],
                role["succeeded"],
                role["failed"],
                role["restarts"],
                role["message"] or role["reason"],
            ]
            for name, role in document["roles"].items()
        ],
    )
    if document["instances"]:
        print()
        print_table(
            ["instance", "attempt", "state", "exit", "address", "progress", "why"],
            [_instance_row(each) for each in document["instances"]],
        )
    if document["root_cause"]:
        print(f"\nroot cause: {document['root_cause'].get('message', document['root_cause'])}")
    if document["output"]:
        print(f"\noutput: {document['output']['uri']}")


def _instance_row(each: Mapping[str, Any]) -> Sequence[Any]:
    ended = each["exit_code"] if each["signal"] is None else f"signal {each['signal']}"
    why = each["message"] or each["reason"]
    return [
        f"{each['role']}-{each['index']}",
        each["attempt"],
        each["state"],
        ended,
        each["address"],
        progress_text(each["progress"]),
        why,
    ]


def progress_text(progress: Mapping[str, Any] | None) -> str:
    """Return `step 30/900, loss 0.31` for a progress document."""
    if not progress:
        return ""
    parts = []
    if progress.get("step") is not None:
        total = progress.get("total_steps")
        parts.append(f"step {progress['step']}" + (f"/{total}" if total else ""))
    elif progress.get("epoch") is not None:
        parts.append(f"epoch {progress['epoch']:g}")
    metrics = progress.get("metrics") or {}
    parts += [f"{name} {value:.4g}" for name, value in list(metrics.items())[:3]]
    return ", ".join(parts)


def events(
    run: RunArgument,
    role: Annotated[str, typer.Option(help="Only events of this role.")] = "",
    after: Annotated[int, typer.Option(min=0, help="Only events after this number.")] = 0,
    output: OutputOption = Output.table,
) -> None:
    """Show the story of a run: every start, end, restart and decision, with the rule that fired."""
    store = open_store()
    record = store.find_run(run)
    found: list[StoredEvent] = []
    while page := store.events(record.uid, after=after, role=role or None, limit=1000):
        found += page
        after = page[-1].seq
    if output is Output.json:
        rows = [{"seq": each.seq, **event_json(each.event)} for each in found]
        print_json({"run_id": record.key.run_id, "events": rows})
        return
    for each in found:
        print(f"{each.seq:>5}  {event_line(each.event, as_json=False)}")
    next_step(f"airflow-training status {record.key.run_id}")


def export(
    run: RunArgument,
    output: Annotated[
        ExportFormat, typer.Option("--output", "-o", help="How to write the document.")
    ] = ExportFormat.yaml,
) -> None:
    """Print the job of a run as a document that runs again."""
    store = open_store()
    record = store.find_run(run)
    document = dict(store.job(record.uid).document)
    if output is ExportFormat.json:
        print_json(document)
    else:
        from airflow_training.spec.loading import dump_yaml

        print(dump_yaml(document), end="")
    next_step(f"airflow-training run --from-run {record.key.run_id}")


def _job_state(text: str) -> str:
    known: Sequence[str] = get_args(JobState)
    by_lower = {each.lower(): each for each in known}
    if text.lower() not in by_lower:
        raise fail("--state", f"no state is called {text!r}", allowed=known)
    return by_lower[text.lower()]
