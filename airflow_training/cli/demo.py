"""`airflow-training demo`: the bundled digits example, here or as a DAG in an Airflow of its own."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from airflow_training.builtin_runtimes import HERE
from airflow_training.cli.documents import OutputOption
from airflow_training.cli.output import (
    OutputFormat,
    command_line,
    fail,
    next_step,
    note,
    print_json,
    terminal,
)

__all__ = ["demo"]

_EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "digits" / "digits.yaml"


def demo(
    airflow: Annotated[
        bool, typer.Option("--airflow", help="As a DAG, in an Airflow that is started for it.")
    ] = False,
    folder: Annotated[
        Path, typer.Option(help="Where the model goes; with --airflow also Airflow's home.")
    ] = Path(".demo"),
    keep: Annotated[
        bool, typer.Option("--keep", help="With --airflow: leave it running, until Ctrl-C.")
    ] = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Train a real PyTorch job on 3 ranks.

    On the digits images that scikit-learn ships.
    """
    needed = ("airflow", "torch", "sklearn") if airflow else ("torch", "sklearn")
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise fail(
            "demo",
            f"needs {', '.join(missing)}, not installed here",
            code="missing",
            hint="pip install 'airflow-training[examples]'",
        )
    if airflow:
        _in_airflow(folder.resolve(), keep=keep, output=output)
    else:
        _here(folder.resolve(), output=output)


def _here(folder: Path, *, output: OutputFormat) -> None:
    from airflow_training.cli.context import settings
    from airflow_training.cli.hosting import host
    from airflow_training.cli.running import JobReference

    model = f"{{uri: 'file://{folder}/models/digits/{{{{ run_id }}}}'}}"
    start = JobReference(file=_EXAMPLE).start(overrides=[f"spec.output={model}"], runtime=HERE)
    if host(replace(start, output=output), settings=settings()) != "Succeeded":
        raise typer.Exit(1)


def _in_airflow(folder: Path, *, keep: bool, output: OutputFormat) -> None:
    from rich.console import Console

    from airflow_training.cli.airflow_demo import run_demo
    from airflow_training.cli.airflow_stack import AirflowStack

    # a TERM ends the demo as Ctrl-C does: Airflow must not outlive it
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(file=terminal(sys.stderr))
    with AirflowStack(home=folder) as stack:
        result = run_demo(stack, console)
        if output is OutputFormat.json:
            print_json({"accuracy": result.accuracy, "model": str(result.model)})
        else:
            print(f"accuracy {result.accuracy:.1%} on images it has not seen")
            print(f"model    {result.model}")
            print(f"run      {result.run_url}")
        if keep or console.is_terminal:
            note(f"Airflow keeps running at {stack.url} (no login); Ctrl-C stops it")
            note(f"a job file in {folder / 'jobs'} is a DAG some seconds later")
            home = shlex.quote(str(folder))
            note(f"its runs, in another terminal: AIRFLOW_HOME={home} {command_line('list')}")
            with contextlib.suppress(KeyboardInterrupt):
                stack.wait()
        else:
            note("to look at the run in an Airflow that keeps running:")
            next_step("demo", "--airflow", "--keep")
