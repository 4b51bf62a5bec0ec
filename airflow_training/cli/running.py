"""`run`: hosts the loop in this process, shows it, and turns signals into a clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import secrets
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_training.cli.beside import beside
from airflow_training.cli.context import open_store, settings
from airflow_training.cli.documents import JobOption, ParamOption, SetOption, only_job, parse_params
from airflow_training.cli.output import (
    Output,
    OutputOption,
    fail,
    log_to_stderr,
    next_step,
    note,
    print_warnings,
)
from airflow_training.errors import JobFailed, LeaseLost, Problem
from airflow_training.spec.resolved import RunKey

if TYPE_CHECKING:
    from airflow_training.cli.live import Story
    from airflow_training.runtimes.port import Runtime
    from airflow_training.spec.resolved import ResolvedJob
    from airflow_training.state.store import RunRecord, Store

__all__ = ["execute", "run"]

_POLL_SECONDS = 1.0


class LogFormat(str, Enum):
    """How event lines look."""

    text = "text"
    json = "json"


def run(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A job file, YAML or JSON.")
    ] = None,
    template: Annotated[
        str, typer.Option(help="Run this job template of the templates folder.")
    ] = "",
    from_run: Annotated[str, typer.Option(help="Run the job of an earlier run again.")] = "",
    params: ParamOption = None,
    overrides: SetOption = None,
    job: JobOption = "",
    run_id: Annotated[
        str, typer.Option(help="Name of the run; the same name again takes it up where it is.")
    ] = "",
    runtime: Annotated[str, typer.Option(help="Instead of the document's: local.")] = "",
    simulate: Annotated[
        Path | None,
        typer.Option(metavar="FAULTS", help="Simulate the instances, with these faults."),
    ] = None,
    single: Annotated[bool, typer.Option(help="Run it as one local instance.")] = False,
    log_format: Annotated[LogFormat, typer.Option(help="Of the event lines on stderr.")] = (
        LogFormat.text
    ),
    output: OutputOption = Output.table,
) -> None:
    """Run a job here, without Airflow; exit 0 when it succeeded, 1 when not, 2 if it never started.

    Ctrl-C stops the job cleanly. A run that was killed goes on with the same --run-id.
    """
    wanted = _Wanted(file=file, template=template, from_run=from_run, job=job)
    run_id = run_id or _new_run_id(wanted.name)
    key = RunKey(source="cli", run_id=run_id)
    resolved_job = beside(
        lambda: wanted.resolve(
            params=params,
            overrides=overrides or (),
            key=key,
            runtime=runtime or None,
            single=single,
        )
    )
    with _no_collection():
        _import_what_drives()
    resolved, warnings = resolved_job()
    print_warnings(warnings)
    if simulate is not None:
        resolved = dataclasses.replace(resolved, runtime="memory")
    state = execute(
        resolved, key=key, simulate=simulate, as_json=log_format is LogFormat.json, output=output
    )
    if state != "Succeeded":
        raise typer.Exit(1)


def execute(
    resolved: ResolvedJob, *, key: RunKey, simulate: Path | None, as_json: bool, output: Output
) -> str:
    """Run a resolved job to its end in this process, print its status, return its state."""
    from airflow_training.cli.inspecting import print_status, status_document
    from airflow_training.cli.live import story
    from airflow_training.supervise.launch import controller_id, launch
    from airflow_training.supervise.runtimes import make_runtime

    options = settings()
    runtime = make_runtime(resolved.runtime, options, simulate=simulate)
    store = open_store()
    record = launch(
        resolved,
        key=key,
        store=store,
        controller=controller_id(store, options),
        activate_all=True,
    )
    log_to_stderr(as_json=as_json)
    view = story(as_json=as_json)
    if not as_json:
        note(f"run {record.key.run_id} of job {record.job} on {record.runtime}")
    asyncio.run(_host(store, runtime, record, view, max_running_jobs=options.max_running_jobs))
    document = status_document(store, record.uid)
    print_status(document, output=output)
    _say_next(document)
    return str(document["state"])


async def _host(
    store: Store, runtime: Runtime, record: RunRecord, view: Story, *, max_running_jobs: int
) -> None:
    """Drive the run until it ends; the first signal asks it to stop, and is heard only once."""
    from airflow_training.supervise.drive import retrying
    from airflow_training.supervise.hub import get_hub
    from airflow_training.supervise.loop import Supervisor
    from airflow_training.supervise.owners import new_owner

    get_hub(store, poll_seconds=_POLL_SECONDS)
    supervisor = Supervisor(
        store=store,
        runtime=runtime,
        run_uid=record.uid,
        owner=new_owner(),
        on_event=view.tell,
        max_running_jobs=max_running_jobs,
    )
    loop = asyncio.get_running_loop()
    driving = asyncio.ensure_future(supervisor.run())
    stopping: list[asyncio.Future[None]] = []

    def stop(name: str) -> None:
        if supervisor.ledger is None:
            driving.cancel()  # another process drives the run, and goes on
        elif not stopping:
            note(f"{name}: stopping the job; nothing of it will be alive when this ends")
            stopping.append(asyncio.ensure_future(ask(name)))

    async def ask(name: str) -> None:
        await retrying(lambda: store.add_request(record.uid, "stop", reason="Interrupted", by=name))
        supervisor.poke()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number.name)
    try:
        async with view.beside(supervisor):
            await driving
    except asyncio.CancelledError:
        raise JobFailed(
            f"run {record.key.run_id} is driven by another process, which goes on;"
            f" to stop it: airflow-training kill {record.key.run_id}"
        ) from None
    except LeaseLost:
        raise JobFailed(
            f"another process has taken over run {record.key.run_id};"
            f" see airflow-training status {record.key.run_id}"
        ) from None
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The job that was named, in exactly one of three ways."""

    file: Path | None
    template: str
    from_run: str
    job: str

    def __post_init__(self) -> None:
        given = [str(each) for each in (self.file, self.template, self.from_run) if each]
        if len(given) != 1:
            raise fail(
                "FILE",
                "name only one of these" if given else "name one job to run",
                code="conflict" if given else "missing",
                value=given or None,
                allowed=["FILE", "--template NAME", "--from-run RUN"],
            )

    @property
    def name(self) -> str:
        """Return what a new run is called after."""
        return self.job or self.template or self.from_run or (self.file or Path()).stem

    def resolve(
        self,
        *,
        params: Sequence[str] | None,
        overrides: Sequence[str],
        key: RunKey,
        runtime: str | None,
        single: bool,
    ) -> tuple[ResolvedJob, Sequence[Problem]]:
        """Return the job after all checks, and its warnings; raises InputError."""
        from airflow_training.supervise.admission import check_text
        from airflow_training.supervise.single import single_text

        source = self._read()
        text = source.text
        if single:
            text = single_text(text, path=source.path, base_dir=source.base_dir)
        checked = check_text(
            text,
            path=source.path,
            base_dir=source.base_dir,
            params={**source.params, **parse_params(params)},
            overrides=overrides,
            variables=_variables(key.run_id),
            runtime="local" if single else runtime,
            fetch=True,
            run_uid=key.uid,
        )
        chosen = only_job(checked, name=self.job, path=source.path)
        if chosen.resolved is None:
            raise fail("FILE", "holds no job that can run", value=source.path)
        return chosen.resolved, chosen.warnings

    def _read(self) -> _Source:
        from airflow_training.spec.loading import dump_yaml, read_file
        from airflow_training.supervise.job_templates import find_template

        if self.from_run:
            store = open_store()
            record = store.find_run(self.from_run)
            old = store.job(record.uid)
            return _Source(
                text=dump_yaml(dict(old.document)),
                path=f"run {record.key.run_id}",
                base_dir=old.base_dir,
                params=old.variables.get("params") or {},
            )
        path = self.file or find_template(self.template, folder=settings().templates_folder)
        return _Source(text=read_file(path), path=str(path), base_dir=str(path.resolve().parent))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A document, and what belongs to where it came from."""

    text: str
    path: str
    base_dir: str
    params: Mapping[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the collector from looking again and again at what imports make: all of it stays."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _import_what_drives() -> None:
    """Import, while a child checks the document, what is needed when it is done."""
    import airflow_training.runtimes.local
    import airflow_training.supervise.launch
    import airflow_training.supervise.loop  # noqa: F401


def _new_run_id(name: str) -> str:
    now = datetime.now(tz=timezone.utc)
    return f"{name}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _variables(run_id: str) -> Mapping[str, Any]:
    now = datetime.now(tz=timezone.utc).isoformat(timespec="seconds")
    return {
        "run_id": run_id,
        "logical_date": now,
        "data_interval_start": now,
        "data_interval_end": now,
        "triggering_assets": [],
    }


def _say_next(document: Mapping[str, Any]) -> None:
    run_id = document["run_id"]
    failed = next((each for each in document["instances"] if each["state"] == "failed"), None)
    if failed is not None:
        next_step(
            f"airflow-training logs show {run_id} --role {failed['role']} --index {failed['index']}"
        )
    elif document["state"] == "Succeeded" and document["instances"]:
        first = document["instances"][0]
        next_step(
            f"airflow-training logs show {run_id} --role {first['role']} --index {first['index']}"
        )
    else:
        next_step(f"airflow-training events {run_id}")
