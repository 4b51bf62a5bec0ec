"""`airflow-training demo`: a real training job as a DAG in a real Airflow, in one command."""

from __future__ import annotations

import contextlib
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from airflow_training.cli.output import Output, OutputOption, fail, next_step, note, print_json

__all__ = ["demo"]


def demo(
    folder: Annotated[
        Path, typer.Option(help="Home of the Airflow that is started; the model goes there too.")
    ] = Path(".demo"),
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave Airflow running afterwards, until Ctrl-C.")
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Train a real PyTorch job on 3 ranks as a DAG, in an Airflow that is started for it."""
    missing = [name for name in ("airflow", "torch", "sklearn") if find_spec(name) is None]
    if missing:
        raise fail(
            "demo",
            f"needs {', '.join(missing)}, not installed here",
            code="missing",
            hint="pip install 'airflow-training[examples]'",
        )
    from rich.console import Console

    from airflow_training.cli.airflow_demo import run_demo
    from airflow_training.cli.airflow_stack import AirflowStack

    console = Console(stderr=True)
    with AirflowStack(home=folder.resolve()) as stack:
        result = run_demo(stack, console)
        if output is Output.json:
            print_json({"accuracy": result.accuracy, "model": str(result.model)})
        else:
            print(f"accuracy {result.accuracy:.1%} on images it has not seen")
            print(f"model    {result.model}")
            print(f"run      {result.run_url}")
        if keep or console.is_terminal:
            note(f"Airflow keeps running at {stack.url} (no login); Ctrl-C stops it")
            with contextlib.suppress(KeyboardInterrupt):
                stack.wait()
        else:
            next_step("airflow-training demo --keep  (leaves Airflow running, to look at the run)")
