"""`submit`: runs a job on a remote Airflow through its REST API and brings the outcome back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_training.cli.documents import (
    GivenParams,
    JobOption,
    OutputOption,
    ParamOption,
    SetOption,
    parse_params,
)
from airflow_training.cli.output import (
    OutputFormat,
    fail,
    next_step,
    note,
    print_json,
    print_table,
    print_warnings,
)
from airflow_training.cli.statuses import print_status
from airflow_training.errors import InputError, Problem

if TYPE_CHECKING:
    from airflow_training.cli.airflow_api import AirflowApi

__all__ = ["submit"]

_POLL_SECONDS = 1.0
_ENDED = frozenset({"success", "failed"})


def submit(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="A job file.")] = None,
    server: Annotated[
        str, typer.Option(envvar="AIRFLOW_SERVER", help="Address of the Airflow.")
    ] = "http://localhost:8080",
    username: Annotated[str, typer.Option(help="Without one, $AIRFLOW_TOKEN is used.")] = "",
    password: Annotated[str, typer.Option(envvar="AIRFLOW_PASSWORD", help="Of the user.")] = "",
    template: Annotated[
        str, typer.Option(help="A job template of that Airflow, instead of a file.")
    ] = "",
    from_run: Annotated[
        str, typer.Option(help="The job of an earlier run in the store here, instead of a file.")
    ] = "",
    params: ParamOption = None,
    overrides: SetOption = None,
    job: JobOption = "",
    run_id: Annotated[str, typer.Option(help="Id of the DAG run.")] = "",
    dag: Annotated[str, typer.Option(help="The generic DAG there.")] = "training_job",
    follow: Annotated[bool, typer.Option(help="Stay until the job has ended.")] = True,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Run a job on a remote Airflow.

    Exit 0 when it succeeded, 1 when not, 2 if it never started.
    """
    from airflow_training.cli.airflow_api import AirflowApi

    given = parse_params(params)
    conf: dict[str, Any] = {"parameters": given.values}
    if template:
        if file is not None or from_run or overrides:
            raise fail(
                "--template",
                "goes without FILE, --from-run and --set",
                code="conflict",
                hint="the document is on the server: change it there, or give --param",
            )
        if given.problems:
            raise InputError(problems=given.problems)
        conf["template"] = template
    else:
        conf["job"] = _document(
            file, from_run=from_run, overrides=overrides or [], name=job, given=given
        )
    with AirflowApi(server, username=username, password=password) as api:
        started = api.trigger(dag, conf=conf, run_id=run_id)
        note(f"DAG run {started}: {api.server}/dags/{dag}/runs/{started}")
        outcome: Mapping[str, Any] = {"dag_id": dag, "dag_run_id": started, "state": "queued"}
        if follow:
            outcome = _follow(api, dag, started)
    if output is OutputFormat.json:
        print_json(outcome)
    else:
        print_table(["dag run", "state"], [[started, outcome["state"]]])
        if outcome.get("status"):
            print()
            print_status(outcome["status"], output=output)
    if follow and outcome["state"] != "success":
        note(f"next: open {server.rstrip('/')}/dags/{dag}/runs/{started}")
        raise typer.Exit(1)
    next_step("status", started, "--server", server.rstrip("/"), "--dag", dag)


def _document(
    file: Path | None, *, from_run: str, overrides: list[str], name: str, given: GivenParams
) -> str:
    """Return the text of the one job, with `--set` applied, after every check possible here."""
    from airflow_training.admission.check import check_unresolved
    from airflow_training.documents.loading import dump_yaml, read_file
    from airflow_training.documents.parsing import parse

    if (file is None) == (not from_run):
        raise fail(
            "FILE", "name one job", code="missing", allowed=["FILE", "--from-run", "--template"]
        )
    if from_run:
        from airflow_training.cli.context import open_store

        store = open_store()
        old = store.job(store.find_run(from_run).uid)
        text, path, folder = dump_yaml(dict(old.document)), from_run, Path(old.base_dir)
    else:
        text, path, folder = read_file(file or ""), str(file), Path(file or "").parent
    documents = parse(text, path, overrides=overrides, params=tuple(given.values))
    if name:
        documents = [each for each in documents if each.job and each.job.metadata.name == name]
    checked = check_unresolved(documents, params=given.values)
    given.check(checked, path=path)
    if any(each.problems for each in checked):
        raise InputError(problems=[p for each in checked for p in each.problems], path=path)
    if len(documents) != 1:
        raise fail("--job", f"{path} holds {len(documents)} such jobs: choose one", value=name)
    missing = list(_files_of(documents[0].raw, "", folder))
    if missing:
        raise InputError(problems=missing, path=path)
    print_warnings(documents[0].warnings, path=path)
    return dump_yaml(documents[0].raw)


def _files_of(value: Any, field: str, folder: Path) -> Iterator[Problem]:
    """Yield the words of commands that name files beside the document: none of them is sent."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _files_of(inner, f"{field}.{key}" if field else str(key), folder)
    elif isinstance(value, list):
        words = field.rpartition(".")[2] in ("command", "args")
        for index, inner in enumerate(value):
            where = f"{field}[{index}]"
            if not words or not isinstance(inner, str):
                yield from _files_of(inner, where, folder)
            elif inner and not Path(inner).is_absolute() and _is_file(folder / inner):
                yield Problem(
                    code="not_supported",
                    field=where,
                    value=inner,
                    message=f"the server does not have the file {inner!r}: submit sends the document alone",
                    hint="bring it there (an image, a package, a shared folder) and name it as it is called there",
                )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a script of many lines is no name of a file
        return False


def _follow(api: AirflowApi, dag: str, run_id: str) -> Mapping[str, Any]:
    """Tell the tasks' changes on stderr until the DAG run has ended; return the outcome."""
    known: dict[str, str] = {}
    while True:
        run = api.dag_run(dag, run_id)
        for task in api.tasks(dag, run_id):
            name = task["task_id"] + (f"[{task['map_index']}]" if task["map_index"] >= 0 else "")
            if task["state"] and known.get(name) != task["state"]:
                known[name] = task["state"]
                note(f"{name}: {task['state']}")
        if run["state"] in _ENDED:
            break
        time.sleep(_POLL_SECONDS)
    return {
        "dag_id": dag,
        "dag_run_id": run_id,
        "state": run["state"],
        "tasks": known,
        "status": _status(api, dag, run_id),
    }


def _status(api: AirflowApi, dag: str, run_id: str) -> Mapping[str, Any] | None:
    """Return the job's own status; None for a run that `plan` has refused."""
    try:
        return api.training_status(dag, run_id)
    except InputError as error:
        note(str(error))
        return None
