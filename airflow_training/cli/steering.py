"""`scale`, `pause`, `resume`, `kill`: requests to the holder of a run; `sweep`. They decide nothing.

A request is appended to the store; whoever drives the run acts on it within a second or two.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_training.builtin_runtimes import SIMULATED
from airflow_training.cli.context import (
    RunArgument,
    SourceOption,
    check_run_or_dag_run,
    open_store,
    runtime_of,
    settings,
)
from airflow_training.cli.documents import OutputOption
from airflow_training.cli.output import (
    OutputFormat,
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
from airflow_training.settings import user_name
from airflow_training.supervise.role_checks import check_replicas

if TYPE_CHECKING:
    from airflow_training.control.model import RequestKind
    from airflow_training.documents.resolved import ResolvedJob
    from airflow_training.state.store import RunRecord, Store
    from airflow_training.supervise.sweep import SweepResult

__all__ = ["kill", "pause", "resume", "scale", "sweep"]

YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Also where the job has no checkpoint to go on from.")
]
_BEGUN = frozenset({"Starting", "Running", "Restarting"})


def scale(
    run: RunArgument,
    role: Annotated[str, typer.Option(help="Name of the role.")],
    replicas: Annotated[int, typer.Option(min=1, help="How many instances it shall have.")],
    yes: YesOption = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Change the size of a role while the job runs."""
    store, record = _living(run)
    job = store.job(record.uid)
    check_replicas(job, role, replicas, most=settings().max_replicas)
    _confirm_loss(record, job, "scale", yes=yes)
    number = store.add_request(record.uid, "scale", role=role, replicas=replicas, by=user_name())
    _confirmed(store, record, "scale", number, output=output)


def pause(
    run: RunArgument, yes: YesOption = False, output: OutputOption = OutputFormat.table
) -> None:
    """End the instances, keep the run; see `resume`."""
    store, record = _living(run)
    _confirm_loss(record, store.job(record.uid), "pause", yes=yes)
    _say_if_paused(store, record, already=True)
    number = store.add_request(record.uid, "pause", by=user_name())
    _confirmed(store, record, "pause", number, output=output, then="resume")


def resume(run: RunArgument, output: OutputOption = OutputFormat.table) -> None:
    """Let a paused run go on."""
    store, record = _living(run)
    _say_if_paused(store, record, already=False)
    number = store.add_request(record.uid, "resume", by=user_name())
    _confirmed(store, record, "resume", number, output=output)


def kill(
    run: Annotated[
        str, typer.Argument(metavar="[RUN]", help="Run id, or the beginning of its uid.")
    ] = "",
    dag_run: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="DAG RUN", help="Instead of RUN: all runs of this DAG run."),
    ] = None,
    source: SourceOption = "",
    reason: Annotated[str, typer.Option(help="Kept in the run's story.")] = "",
    now: Annotated[
        bool, typer.Option("--now", help="Within two seconds: give it no time to save anything.")
    ] = False,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait until nothing is alive; 0: only ask.")
    ] = 120.0,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Stop a run for good, or all runs of a DAG run.

    When this returns, nothing of them is alive, nor anything that stayed for a look inside.
    """
    import asyncio

    from airflow_training.supervise.cleanup import drive_to_end

    kind: RequestKind = "kill" if now else "stop"
    why = reason or f"{'killed' if now else 'stopped'} by {user_name()}"
    check_run_or_dag_run(run, dag_run, source=source)
    if dag_run is not None:
        from airflow_training.cli.dag_runs import stop_dag_run

        stop_dag_run(
            *dag_run,
            source=source,
            kind=kind,
            reason=why,
            by=user_name(),
            wait_seconds=wait,
            output=output,
        )
        return
    if _end_kept(run, reason=why, wait=wait, output=output):
        return
    store, record = _draining(run)
    number = store.add_request(record.uid, kind, reason=why, by=user_name())
    if wait and record.runtime != SIMULATED:  # a simulation lives in its own process only
        asyncio.run(
            drive_to_end(
                record.uid,
                store=store,
                runtime=runtime_of(record, store),
                timeout_seconds=wait,
                on_event=lambda event: note(event_line(event, as_json=False)),
            )
        )
    _confirmed(store, record, kind, number, output=output, then="events")


def _end_kept(text: str, *, reason: str, wait: float, output: OutputFormat) -> bool:
    """End what stays of a run that has failed; return whether there was something."""
    import asyncio

    from airflow_training.supervise.kept import end_kept

    store = open_store()
    record = store.find_run(text)
    job = store.ledger(record.uid).job
    if record.runtime == SIMULATED or job.kept is None or not job.drained:
        return False
    runtime = runtime_of(record, store)
    ending = end_kept(
        record,
        store=store,
        runtime=runtime,
        reason=reason,
        by=user_name(),
        timeout_seconds=wait or 1.0,
    )
    if not asyncio.run(ending):
        return False
    name = str(job.kept.key)
    if output is OutputFormat.json:
        print_json({"run_id": record.key.run_id, "ended": name, "state": job.state})
    else:
        print(f"{name} of {record.key.run_id}, which stayed for a look inside, is ended")
    next_step("status", record.key.run_id)
    return True


def sweep(
    idle: Annotated[
        float,
        typer.Option(min=0, help="Stop runs that nobody has driven for so many seconds."),
    ] = 3600.0,
    dry_run: Annotated[bool, typer.Option(help="Only say what would be done.")] = False,
    output: OutputOption = OutputFormat.table,
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
    if output is OutputFormat.json:
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
                [each.run_id or each.uid, each.job, each.why, each.problem or _result(each)]
                for each in found
            ],
        )
    if any(each.problem for each in found):
        raise JobFailed("not everything could be swept")


def _result(each: SweepResult) -> str:
    if each.deleted:
        return f"{each.deleted} {'was' if each.done else 'would be'} deleted"
    return "ended" if each.done else "would be ended"


def _say_if_paused(store: Store, record: RunRecord, *, already: bool) -> None:
    """Say where a request changes nothing: to pause what is paused, to resume what is not."""
    job = store.ledger(record.uid).job
    asked = any(
        each.kind in ("pause", "resume")
        for each in store.requests(record.uid, after=job.seen_request)
    )
    if not asked and (job.paused_at is not None) == already:
        stands = "is paused already" if already else "is not paused"
        note(f"run {record.key.run_id} {stands}: this changes nothing")


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


def _draining(text: str) -> tuple[Store, RunRecord]:
    """Return store and run, also where it has ended but something of it is still alive."""
    store = open_store()
    record = store.find_run(text)
    return (store, record) if not store.ledger(record.uid).job.drained else _living(text)


def _confirm_loss(record: RunRecord, job: ResolvedJob, verb: str, *, yes: bool) -> None:
    """Ask before a training begins anew; raises InputError where nobody can answer."""
    if yes or job.checkpoint is not None or record.state not in _BEGUN:
        return
    message = f"job {record.job} has no checkpoint: after {verb} it begins again at its first step"
    if not sys.stdin.isatty():
        raise fail("--yes", message, code="missing", hint="say --yes if that is meant")
    typer.confirm(f"{message}. Go on?", abort=True, err=True)


def _confirmed(
    store: Store,
    record: RunRecord,
    kind: str,
    number: int,
    *,
    output: OutputFormat,
    then: str = "status",
) -> None:
    now = store.run(record.uid) or record
    if output is OutputFormat.json:
        print_json({"run_id": record.key.run_id, "request": kind, "id": number, "state": now.state})
    else:
        print(f"{kind} of {record.key.run_id} is recorded as request {number}; it is {now.state}")
    _say_who_drives(store, record)
    next_step(then, record.key.run_id)


def _say_who_drives(store: Store, record: RunRecord) -> None:
    """Say where nobody acts on what is asked."""
    from airflow_training.supervise.absences import absence_of_run, what_to_type

    run = store.overviews([record.uid]).get(record.uid)
    absence = run and absence_of_run(run.record, run.entry, run.driver, now=store.now())
    if absence:
        note(f"nobody acts on that now: {absence}. {what_to_type(record, absence)}")
