"""`run`: from what was typed to a job that can be hosted. `hosting` does the rest."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_training.builtin_runtimes import HERE, SIMULATED
from airflow_training.cli.context import open_store, settings
from airflow_training.cli.documents import (
    JobOption,
    OutputOption,
    ParamOption,
    RuntimeOption,
    SetOption,
    only_job,
    parse_params,
    run_variables,
)
from airflow_training.cli.output import OutputFormat, fail
from airflow_training.cli.start import ResumeOpenRuns, StartRequest
from airflow_training.documents.resolved import RunKey

if TYPE_CHECKING:
    from airflow_training.admission.plan.job_plan import JobPlan
    from airflow_training.admission.request import Planner
    from airflow_training.documents.parsing import TrainingJob
    from airflow_training.documents.resolved import ResolvedJob
    from airflow_training.errors import Problem

__all__ = ["JobReference", "run"]


class LogFormat(str, Enum):
    """How event lines look."""

    text = "text"
    json = "json"


def run(
    ctx: typer.Context,
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
    base_dir: Annotated[
        str,
        typer.Option(
            metavar="FOLDER", help="Where relative paths of the job start, not beside FILE."
        ),
    ] = "",
    run_id: Annotated[
        str, typer.Option(help="Name of the run; the same name again takes it up where it is.")
    ] = "",
    runtime: RuntimeOption = "",
    simulate: Annotated[
        Path | None,
        typer.Option(metavar="FAULTS", help="Simulate the instances, with these faults."),
    ] = None,
    single: Annotated[bool, typer.Option(help="Run it as one local instance.")] = False,
    all_open: Annotated[
        bool,
        typer.Option("--open", help="Take up every run that nobody drives, as after a reboot."),
    ] = False,
    logs: Annotated[bool, typer.Option("--logs", help="Show what the instances print.")] = False,
    pages: Annotated[
        bool, typer.Option("--ui", help="Serve the page of the run while it runs; see `ui`.")
    ] = False,
    log_format: Annotated[LogFormat, typer.Option(help="Of the event lines on stderr.")] = (
        LogFormat.text
    ),
    output: OutputOption = OutputFormat.table,
) -> None:
    """Run a job here, without Airflow.

    Exit 0 when it succeeded, 1 when not, 2 if it never started.
    Ctrl-C stops the job cleanly. A run that was killed goes on with the same --run-id.
    """
    if all_open:
        if file or template or from_run or run_id or base_dir:
            raise fail("--open", "takes up all open runs: it names none", code="conflict")
        ctx.obj.append(ResumeOpenRuns(output=output))
        return
    wanted = JobReference(
        file=file, template=template, from_run=from_run, job=job, base_dir=base_dir
    )
    start = wanted.start(
        params=params or (),
        overrides=overrides or (),
        run_id=run_id,
        runtime=runtime,
        simulate=simulate,
        single=single,
    )
    as_json = log_format is LogFormat.json
    start = dataclasses.replace(start, as_json=as_json, output=output, logs=logs, pages=pages)
    ctx.obj.append(start)  # `main` hosts it


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReference:
    """The job that was named, in exactly one of three ways."""

    file: Path | None = None
    template: str = ""
    from_run: str = ""
    job: str = ""
    base_dir: str = ""
    """Where its relative paths start; empty: where it comes from."""

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
        """The name after which a new run is called."""
        return self.job or self.template or self.from_run or (self.file or Path()).stem

    def start(
        self,
        *,
        params: Sequence[str] = (),
        overrides: Sequence[str] = (),
        run_id: str = "",
        runtime: str = "",
        simulate: Path | None = None,
        single: bool = False,
    ) -> StartRequest:
        """Return the run to host, after all checks; raises InputError."""
        from airflow_training.admission.check import check_text
        from airflow_training.admission.single import single_text

        key = RunKey(source="cli", run_id=run_id or _new_run_id(self.name))
        key.check()
        source = self._read()
        if self.base_dir:
            if not Path(self.base_dir).is_dir():
                raise fail("--base-dir", f"there is no folder {self.base_dir}", value=self.base_dir)
            source = dataclasses.replace(source, base_dir=str(Path(self.base_dir).resolve()))
        text = source.text
        given = parse_params(params)
        if single:
            text = single_text(text, path=source.path, base_dir=source.base_dir, fetch=True)
        checked = check_text(
            text,
            path=source.path,
            base_dir=source.base_dir,
            params={**source.params, **given.values},
            overrides=overrides,
            variables=run_variables(key.run_id),
            runtime=HERE if single else runtime or None,
            fetch=True,
            run_uid=key.uid,
            planner=_planner(key, job=self.job, simulate=simulate),
        )
        given.check(checked, path=source.path)
        chosen = only_job(checked, name=self.job, path=source.path)
        job = chosen.resolved
        if job is None:
            raise fail("FILE", "holds no job that can run", value=source.path)
        job, more = _hot_started(job, key)
        if simulate is not None:
            from airflow_training.runtimes.faults import load_script

            load_script(simulate, roles=[role.name for role in job.roles])
        return StartRequest(
            job=job if simulate is None else dataclasses.replace(job, runtime=SIMULATED),
            warnings=(*chosen.warnings, *more),
            key=key,
            simulate=simulate,
        )

    def _read(self) -> _JobText:
        from airflow_training.admission.job_templates import find_template
        from airflow_training.documents.loading import dump_yaml, read_file

        if self.from_run:
            store = open_store()
            record = store.find_run(self.from_run)
            old = store.job(record.uid)
            return _JobText(
                text=dump_yaml(dict(old.document)),
                path=f"run {record.key.run_id}",
                base_dir=old.base_dir,
                params=old.variables.get("params") or {},
            )
        path = self.file or find_template(self.template, folder=settings().templates_folder)
        return _JobText(text=read_file(path), path=str(path), base_dir=str(path.resolve().parent))


def _hot_started(job: ResolvedJob, key: RunKey) -> tuple[ResolvedJob, Sequence[Problem]]:
    """Return the job of a new run with what it asks to start from, and warnings."""
    if not job.starts_from_elsewhere:
        return job, ()
    from airflow_training.supervise.hot_start import hot_start

    with contextlib.closing(open_store()) as store:
        if store.run(key.uid) is not None:  # it goes on as it began
            return job, ()
        return hot_start(job, key=key, store=store)


def _planner(key: RunKey, *, job: str, simulate: Path | None) -> Planner:
    """Return what plans the job of a run that is new; one that goes on has its plan."""

    def planner(asked: TrainingJob, resolved: ResolvedJob) -> JobPlan | None:
        from airflow_training.admission.plan.history import history_of
        from airflow_training.admission.plan.step import plan_job
        from airflow_training.supervise.runtimes import make_runtime

        if job not in ("", asked.metadata.name):
            return None
        with contextlib.closing(open_store()) as store:
            if store.run(key.uid) is not None:
                return None
        known = settings()
        return plan_job(
            asked,
            resolved,
            runtime=lambda made: make_runtime(
                made.runtime, known, connection=made.connection, simulate=simulate
            ),
            history=history_of(open_store()),
        )

    return planner


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobText:
    """A document, and what belongs to where it came from."""

    text: str
    path: str
    base_dir: str
    params: Mapping[str, Any] = field(default_factory=dict)


def _new_run_id(name: str) -> str:
    now = datetime.now(tz=timezone.utc)
    return f"{name}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
