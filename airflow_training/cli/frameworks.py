"""`frameworks list | show | check`: what jobs can name in `spec.framework`. Runs nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airflow_training.cli.context import settings
from airflow_training.cli.documents import OutputOption
from airflow_training.cli.output import (
    OutputFormat,
    next_step,
    note,
    print_json,
    print_table,
    problem_json,
)
from airflow_training.cli.program import command_group

__all__ = ["app"]

app = command_group("frameworks", "Frameworks that jobs can name.")


@app.command("list")
def list_all(output: OutputOption = OutputFormat.table) -> None:
    """List the frameworks that jobs can name.

    Built-in ones, those in your folder and those of other packages.
    """
    from airflow_training.frameworks.registry import list_frameworks

    listed = list_frameworks(settings=settings())
    if output is OutputFormat.json:
        rows = [
            {
                "name": each.name,
                "origin": each.origin,
                "location": each.location,
                "description": each.description,
                "problems": [problem_json(problem) for problem in each.problems],
            }
            for each in listed
        ]
        print_json({"frameworks": rows})
        return
    print_table(
        ["name", "from", "description"],
        [
            [
                each.name,
                each.origin,
                f"broken: {each.problems[0].message}" if each.problems else each.description,
            ]
            for each in listed
        ],
    )
    next_step("frameworks", "show", "pytorch")


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `frameworks list` prints it.")],
    output: OutputOption = OutputFormat.table,
) -> None:
    """Show what a framework adds to a job.

    Roles, environment, files, parameters, policies.
    """
    from airflow_training.frameworks.registry import find

    loaded = find(name, settings=settings())
    framework = loaded.framework
    if output is OutputFormat.json:
        document = framework.model_dump(mode="json", by_alias=True, exclude_unset=True)
        print_json({"origin": loaded.origin, "location": loaded.location, "framework": document})
        return
    print(Path(loaded.location).read_text(encoding="utf-8"), end="")
    note(f"{loaded.origin}: {loaded.location}  {loaded.digest}")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A framework document.")],
    output: OutputOption = OutputFormat.table,
) -> None:
    """Check a framework file of your own.

    Exit 0 when jobs can use it, 2 otherwise.
    """
    from airflow_training.admission.log_patterns import check_framework_file

    problems = check_framework_file(file)
    if output is OutputFormat.json:
        rows = [problem_json(problem) for problem in problems]
        print_json({"path": str(file), "valid": not problems, "errors": rows})
    else:
        for problem in problems:
            print(f"error: {file}: {problem}")
        if not problems:
            print(f"{file}: valid")
            note(f"in a job: framework: {{name: ..., ref: {file}}}")
    if problems:
        raise typer.Exit(2)
