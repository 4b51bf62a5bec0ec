"""`airflow-training`: the commands and their exit codes. What they do is in the modules beside."""

from __future__ import annotations

import os
import sys

import typer

from airflow_training.cli import (
    authoring,
    databases,
    frameworks,
    inspecting,
    logs,
    remote,
    running,
    steering,
)
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
for command in (
    authoring.init,
    authoring.validate,
    authoring.explain,
    authoring.schema,
    running.run,
    remote.submit,
    inspecting.list_runs,
    inspecting.status,
    inspecting.events,
    steering.scale,
    steering.pause,
    steering.resume,
    steering.kill,
    inspecting.export,
    steering.sweep,
    running.demo,
):
    app.command(getattr(command, "command_name", command.__name__))(command)
app.add_typer(logs.app, name="logs")
app.add_typer(frameworks.app, name="frameworks")
app.add_typer(databases.app, name="db")


def main() -> None:
    """Run one command; exit 0 for success, 1 for a job or check that failed, 2 for bad input."""
    try:
        app(prog_name="airflow-training")
    except InputError as error:
        for problem in error.problems:
            where = f"{error.path}: " if error.path else ""
            print(f"error: {where}{problem}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
    except JobFailed as error:
        print(f"failed: {error}", file=sys.stderr)
        sys.exit(EXIT_FAILED)
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_FAILED)
    except ValueError as error:
        ...
    except BrokenPipeError:
        # whoever read our output has gone; say nothing more, also not while shutting down
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
