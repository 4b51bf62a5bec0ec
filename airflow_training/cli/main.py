"""`airflow-training`: the commands and their exit codes. What they do is in the modules beside."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

import typer

from airflow_training.cli import (
    authoring,
    databases,
    demo,
    frameworks,
    inspecting,
    logs,
    remote,
    running,
    steering,
)
from airflow_training.cli.output import note
from airflow_training.errors import InputError, JobFailed, TrainingError

__all__ = ["app", "main"]

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2

app = typer.Typer(
    name="airflow-training",
    help="Run distributed training jobs, here or through Apache Airflow.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help starts faster and reads well in a pipe
    pretty_exceptions_enable=False,
)
_COMMANDS: Mapping[str, Callable[..., None]] = {
    "init": authoring.init,
    "validate": authoring.validate,
    "explain": authoring.explain,
    "schema": authoring.schema,
    "run": running.run,
    "submit": remote.submit,
    "list": inspecting.list_runs,
    "status": inspecting.status,
    "events": inspecting.events,
    "scale": steering.scale,
    "pause": steering.pause,
    "resume": steering.resume,
    "kill": steering.kill,
    "export": inspecting.export,
    "sweep": steering.sweep,
    "demo": demo.demo,
}
for name, command in _COMMANDS.items():
    app.command(name)(command)
app.add_typer(logs.app)
app.add_typer(frameworks.app)
app.add_typer(databases.app)


def main() -> None:
    """Run one command; exit 0 for success, 1 for a job or check that failed, 2 for bad input."""
    try:
        app(prog_name="airflow-training")
    except InputError as error:
        for problem in error.problems:
            where = f"{error.path}: " if error.path else ""
            note(f"error: {where}{problem}")
        sys.exit(EXIT_BAD_INPUT)
    except JobFailed as error:
        note(f"failed: {error}")
        sys.exit(EXIT_FAILED)
    except TrainingError as error:
        note(f"error: {error}")
        sys.exit(EXIT_FAILED)
    except BrokenPipeError:
        # whoever read our output has gone: say nothing more, also not while shutting down
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
