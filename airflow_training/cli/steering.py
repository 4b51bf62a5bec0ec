"""`scale`, `pause`, `resume`, `kill`: requests to the holder of a run; `sweep`. They decide nothing.

A request is appended to the store; whoever drives the run acts on it within a second or two.
"""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_training.cli.context import RunArgument, check_role, open_store, settings
from airflow_training.cli.documents import OutputOption
from airflow_training.cli.output import (
    Output,
    command_line,
    event_line,
    fail,
    next_step,
    note,
    print_json,
    print_table,
)
from airflow_training.control.model import TERMINAL_JOB_STATES
from airflow_training.errors import JobFailed

if TYPE_CHECKING:
    from airflow_training.state.store import RunRecord, Store

__all__ = ["kill", "pause", "resume", "scale", "sweep"]


def scale(
    run: RunArgument,
    role: Annotated[str, typer.Option(help="Name of the role.")],
    replicas: Annotated[int, typer.Option(min=1, help="How many instances it shall have.")],
    output: OutputOption = Output.table,
) -> None:
    """Change the size of a role while the job runs."""
    store, record = _living(run)
    job = store.job(record.uid)
    check_role(role, [each.name for each in job.roles])
    found = job.role(role)
    low, high = found.min_replicas, found.max_replicas
    if (low is not None and replicas < low) or (high is not None and replicas > high):
        raise fail(
            "--replicas",
            f"role {role!r} runs with {low or 0} to {high if high is not None else 'any'} instances",
            code="out_of_range",
            value=replicas,
        )
    number = store.add_request(record.uid, "scale", role=role, replicas=replicas, by=_user())
    _asked(store, record, "scale", number, output=output)


def pause(run: RunArgument, output: OutputOption = Output.table) -> None:
    """End the instances, keep the run; see `resume`."""
    store, record = _living(run)
    number = store.add_request(record.uid, "pause", by=_user())
    _asked(store, record, "pause", number, output=output, then="resume")


def resume(run: RunArgument, output: OutputOption = Output.table) -> None:
    """Let a paused run go on."""
    store, record = _living(run)
    number = store.add_request(record.uid, "resume", by=_user())
    _asked(store, record, "resume", number, output=output)


def kill(
    run: RunArgument,
    reason: Annotated[str, typer.Option(help="Kept in the run's story.")] = "",
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait until nothing is alive; 0: only ask.")
    ] = 120.0,
    output: OutputOption = Output.table,
) -> None:
    """Stop a run for good.

    When this returns, nothing of it is alive.
    """
    import asyncio

    from airflow_training.supervise.cleanup import see_through
    from airflow_training.supervise.runtimes import make_runtime

    store, record = _living(run)
    number = store.add_request(record.uid, "stop", reason=reason or "Killed", by=_user())
    if wait and record.runtime != "memory":  # a simulation lives in its own process only
        connection = store.job(record.uid).connection
        runtime = make_runtime(record.runtime, settings(), connection=connection)
        asyncio.run(
            see_through(
                record.uid,
                store=store,
                runtime=runtime,
                timeout_seconds=wait,
                on_event=lambda event: note(event_line(event, as_json=False)),
            )
        )
    _asked(store, record, "stop", number, output=output, then="events")


def sweep(
    idle: Annotated[
        float,
        typer.Option(min=0, help="Stop runs that nobody has driven for so many seconds."),
    ] = 3600.0,
    dry_run: Annotated[bool, typer.Option(help="Only say what would be done.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """End what nothing else ends any more.

    Abandoned runs, leftovers of ended ones, lost processes.
    """
    import asyncio

    from airflow_training.supervise.sweep import sweep as sweep_all

    store = open_store()
    found = asyncio.run(
        sweep_all(store=store, settings=settings(), idle_seconds=idle, dry_run=dry_run)
    )
    if output is Output.json:
        rows = [
            {"uid": each.uid, "run_id": each.run_id, "job": each.job, "why": each.why,
             "done": each.done, "problem": each.problem or None}
            for each in found
        ]  # fmt: skip
        print_json({"swept": rows})
    else:
        print_table(
            ["run", "job", "why", "result"],
            [
                [each.run_id or each.uid, each.job, each.why, each.problem or _done(each.done)]
                for each in found
            ],
        )
    if any(each.problem for each in found):
        raise JobFailed("not everything could be swept")


def _done(done: bool) -> str:
    return "ended" if done else "would be ended"


def _living(text: str) -> tuple[Store, RunRecord]:
    """Return store and run; raises InputError for a run that has ended."""
    store = open_store()
    record = store.find_run(text)
    if record.state in TERMINAL_JOB_STATES:
        raise fail(
            "RUN",
            f"run {record.key.run_id} has ended: {record.state}",
            value=text,
            hint=f"run it again: {command_line('run', '--from-run', record.key.run_id)}",
        )
    return store, record


def _asked(
    store: Store, record: RunRecord, kind: str, number: int, *, output: Output, then: str = "status"
) -> None:
    now = store.run(record.uid) or record
    if output is Output.json:
        print_json({"run_id": record.key.run_id, "request": kind, "id": number, "state": now.state})
    else:
        print(f"{kind} of {record.key.run_id} is recorded as request {number}; it is {now.state}")
    next_step(then, record.key.run_id)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        return ""
