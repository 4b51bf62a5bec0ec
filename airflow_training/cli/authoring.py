"""`init`, `validate`, `explain`, `schema`: writing job files. Starts nothing and opens no store."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import typer

from airflow_training.builtin_runtimes import OURS
from airflow_training.cli.documents import (
    FileArgument,
    JobOption,
    OutputOption,
    ParamOption,
    RuntimeOption,
    SetOption,
    only_job,
    parse_params,
    run_variables,
)
from airflow_training.cli.output import (
    OutputFormat,
    fail,
    next_step,
    note,
    print_json,
    print_table,
    print_warnings,
    problem_json,
)
from airflow_training.documents.problems import how_many
from airflow_training.documents.resolved import RunKey
from airflow_training.documents.text import counted, value_text

__all__ = ["explain", "init", "schema", "validate"]

_STARTERS = Path(__file__).parent / "starters"
_EXAMPLES = Path(__file__).parents[1] / "examples"


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write it.")] = Path(),
    template: Annotated[
        str,
        typer.Option(
            "--from", help="A job template of the templates folder, or digits or measure_cluster."
        ),
    ] = "",
    force: Annotated[bool, typer.Option(help="Overwrite files of the same name.")] = False,
) -> None:
    """Write a job file that runs as it is."""
    job, *scripts = _sources(template)
    sources = [job, *scripts]
    targets = [folder / "job.yaml", *(folder / script.name for script in scripts)]
    for target in targets:
        if target.exists() and not force:
            raise fail(str(target), "is there already", hint="another folder, or --force")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fail("FOLDER", f"cannot be made: {error.strerror}", value=str(folder)) from None
    for source, target in zip(sources, targets, strict=True):
        shutil.copyfile(source, target)
        print(f"wrote {target}")
    next_step("run", targets[0])


def _sources(template: str) -> list[Path]:
    """Return the job file to start from, and the scripts that come with it."""
    from airflow_training.admission.job_templates import find_template, template_names
    from airflow_training.cli.context import settings

    if not template:
        return [_STARTERS / "job.yaml", _STARTERS / "train.py"]
    templates = settings().templates_folder
    example = _EXAMPLES / template / f"{template}.yaml"
    if template not in template_names(templates) and example.is_file():
        return [example, *sorted(example.parent.glob("*.py"))]
    return [find_template(template, folder=templates)]


def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Job files.")],
    params: ParamOption = None,
    overrides: SetOption = None,
    runtime: RuntimeOption = "",
    fetch: Annotated[
        bool, typer.Option(help="Fetch frameworks from their addresses, too.")
    ] = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Check job files and report every mistake.

    Exit 0 when all are valid, 2 otherwise.
    """
    from airflow_training.admission.check import check_file

    given = parse_params(params)
    all_checked = [
        check_file(
            file,
            params=given.values,
            overrides=overrides or (),
            runtime=runtime or None,
            fetch=fetch,
        )
        for file in files
    ]
    mistyped = given.mistakes([each for checked in all_checked for each in checked])
    if output is OutputFormat.table:
        for problem in mistyped:
            note(f"error: {', '.join(map(str, files))}: {problem}")
    answers: list[dict[str, Any]] = []
    for file, checked in zip(files, all_checked, strict=True):
        own = [problem for each in checked for problem in given.without_missing(each)]
        errors = [*mistyped, *own]
        warnings = [problem for each in checked for problem in each.warnings]
        answers.append(
            {
                "path": str(file),
                "valid": not errors,
                "errors": [problem_json(each) for each in errors],
                "warnings": [problem_json(each) for each in warnings],
            }
        )
        if output is OutputFormat.table:
            for each in own:
                print(f"error: {file}: {each}")
            print_warnings(warnings, path=str(file))
            print(f"{file}: " + (counted(how_many(errors), "mistake") if errors else "valid"))
    if output is OutputFormat.json:
        print_json({"files": answers})
    if not all(answer["valid"] for answer in answers):
        raise typer.Exit(2)
    next_step("run", files[0], *_given(params, overrides), *_chosen(runtime=runtime))


def explain(
    file: FileArgument,
    params: ParamOption = None,
    overrides: SetOption = None,
    job: JobOption = "",
    runtime: Annotated[
        str,
        typer.Option(help=f"Where to show it: {' or '.join(OURS)}. Empty: in a cluster."),
    ] = "",
    run_id: Annotated[str, typer.Option(help="Give names the hash of this run.")] = "",
    fetch: Annotated[bool, typer.Option(help="Fetch the framework from its address, too.")] = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Show what a job would create.

    Waves, gang, instances with their environment, names, defaults.
    """
    from airflow_training.admission.check import check_file
    from airflow_training.admission.explain import explain as explain_job
    from airflow_training.cli.context import past_waits
    from airflow_training.runtimes.registry import explained_adapter

    key = RunKey(source="cli", run_id=run_id)
    key.check()
    given = parse_params(params)
    checked = check_file(
        file,
        params=given.values,
        overrides=overrides or (),
        variables=run_variables(run_id),
        runtime=runtime or None,
        shown_on=explained_adapter().name,
        fetch=fetch,
    )
    given.check(checked, path=file)
    chosen = only_job(checked, name=job, path=str(file))
    print_warnings(chosen.warnings, path=str(file))
    answer = explain_job(
        chosen,
        waits=past_waits(chosen.resolved) if chosen.resolved is not None else (),
        now=datetime.now(tz=timezone.utc),
        run_uid=key.uid if run_id else "",
        run_id=run_id,
    )
    if output is OutputFormat.json:
        print_json(answer)
        return
    _print_explained(answer)
    next_step("run", file, *_given(params, overrides), *_chosen(job=job, runtime=runtime))


def _given(params: Sequence[str] | None, overrides: Sequence[str] | None) -> list[str]:
    """Return the options with which `run` gets the same values."""
    pairs = [("-p", each) for each in params or ()] + [("--set", each) for each in overrides or ()]
    return [word for pair in pairs for word in pair]


def _chosen(**options: str) -> list[str]:
    """Return the options that were given, by their names."""
    given = [(f"--{name}", value) for name, value in options.items() if value]
    return [word for pair in given for word in pair]


def schema() -> None:
    """Print the JSON Schema of job files, for editors."""
    from airflow_training.documents.schema import json_schema

    print_json(json_schema())


def _print_explained(answer: Mapping[str, Any]) -> None:
    from airflow_training.cli.statuses import environment_line

    print(f"{answer['job']}: {answer['framework']}")
    if (environment := answer["environment"]) is not None:
        print(environment_line(environment))
    if (trainer := answer["trainer"]) is not None:
        print(
            f"trains {trainer['network']} ({trainer['digest'][:19]}) for {trainer['epochs']} epochs on {trainer['format']},"
            f" {trainer['batchSize']} samples a step in each process"
        )
    for number, wave in enumerate(answer["waves"], start=1):
        print(f"wave {number}: {', '.join(wave)}")
    gang = answer["gang"]
    reason = f" ({gang['reason']})" if gang.get("reason") else ""
    print(f"gang {gang['kind']} of {gang['minAvailable']}, startup {gang['startup']}{reason}")
    if gang["advice"]:
        print(f"  {gang['advice']}")
    if answer["expectedStart"] is not None:
        print(f"expected start: {answer['expectedStart']['message']}")
    if (schedule := answer["schedule"]) is not None:
        print(f"schedule {schedule['cron']} ({schedule['timezone']})")
        for each in schedule["next"]:
            print(f"  next {each['inZone']}, in UTC {each['utc']}")
    print()
    print_table(
        ["instance", "rank", "hostname", "ports", "command"],
        [
            [
                each["name"],
                each["rank"],
                each["hostname"],
                ",".join(str(port) for port in each["ports"].values()),
                shlex.join([*each["command"], *each.get("args", ())]),
            ]
            for each in answer["instances"]
        ],
    )
    for each in answer["warnings"]:
        if each["code"] == "too_many":
            print(f"and {each['message']}")
    for each in answer["instances"]:
        print(f"\n{each['name']}")
        for name, value in each["env"].items():
            print(f"  {name}={value}")
        for path in each["files"]:
            print(f"  writes {path}")
    print()
    print_table(
        ["field", "value", "from"],
        [[each["field"], value_text(each["value"]), _origin(each)] for each in answer["defaults"]],
    )


def _origin(default: Mapping[str, Any]) -> str:
    """Return who gave a default, and by which option where it was the deployment."""
    return f"{default['from']}: {default['why']}" if "why" in default else str(default["from"])
