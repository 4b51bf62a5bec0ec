"""`airflow-training`: the commands and their exit codes. What they do is in the modules beside."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_training.cli.output import note, protect_terminal
from airflow_training.errors import InputError, JobFailed, TrainingError
from airflow_training.settings import load_settings

if TYPE_CHECKING:
    import typer

    from airflow_training.cli.start import ResumeOpenRuns, StartRequest

__all__ = ["build", "main"]

PROGRAM = "airflow-training"

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
_TYPER_INTERRUPTED = 130
"""What Typer makes of a Ctrl-C in a command, without a word."""

_COMMANDS = {
    "init": "authoring:init",
    "align": "align:align",
    "validate": "authoring:validate",
    "explain": "authoring:explain",
    "schema": "authoring:schema",
    "import": "importing:import_jobs",
    "run": "running:run",
    "submit": "remote:submit",
    "list": "inspecting:list_runs",
    "status": "inspecting:status",
    "events": "inspecting:events",
    "scale": "steering:scale",
    "pause": "steering:pause",
    "resume": "steering:resume",
    "kill": "steering:kill",
    "shell": "shell:shell",
    "export": "exporting:export",
    "sweep": "steering:sweep",
    "ui": "ui:ui",
    "demo": "demo:demo",
}
_GROUPS = {
    "plan": "planning:app",
    "logs": "logs:app",
    "frameworks": "frameworks:app",
    "checkpoints": "checkpoints:app",
    "networks": "networks:app",
    "environments": "environments:app",
    "cloud": "cloud:app",
    "db": "databases:app",
    "accounts": "accounts:app",
    "nodes": "nodes:app",
}


def build(words: Sequence[str] = ()) -> typer.Typer:
    """Return the program; where `words` begin with a command, with nothing but that one in it.

    Help, completion and misspelt words need all commands; anything else starts faster without.
    """
    import typer

    app = typer.Typer(
        name=PROGRAM,
        no_args_is_help=True,
        rich_markup_mode=None,  # plain help starts faster and reads well in a pipe
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_load("program:about"))
    typed = words[0] if words else ""
    for name in _chosen(_COMMANDS, typed):
        app.command(name)(_load(_COMMANDS[name]))
    for name in _chosen(_GROUPS, typed):
        app.add_typer(_load(_GROUPS[name]))
    return app


def __getattr__(name: str) -> Any:
    """Return the whole program as `app`, for tools that read it; a run never needs all of it."""
    if name == "app":
        return build()
    raise AttributeError(name)


def _chosen(names: Iterable[str], typed: str) -> Iterable[str]:
    if typed not in {*_COMMANDS, *_GROUPS}:
        return names
    return [name for name in names if name == typed]


def _load(where: str) -> Any:
    module, _, name = where.partition(":")
    return getattr(import_module(f"airflow_training.cli.{module}"), name)


def main() -> None:
    """Run one command; exit 0 for success, 1 for a job or check that failed, 2 for bad input."""
    protect_terminal()
    try:
        if sys.argv[1:2] == ["run"]:
            _run(sys.argv[1:])
        elif sys.argv[1:3] == ["cloud", "run"]:
            _cloud_run(sys.argv[1:])
        else:
            _do(sys.argv[1:])
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
    except KeyboardInterrupt:
        note("interrupted")
        sys.exit(EXIT_FAILED)
    except BrokenPipeError:
        # whoever read our output has gone: say nothing more, also not while shutting down
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    except OSError as error:
        # a full disk, a folder that may not be written: the machine's fault, which its message says
        note(f"error: {error.filename or 'this machine'}: {error.strerror or error}")
        sys.exit(EXIT_BAD_INPUT if error.errno == errno.ENAMETOOLONG else EXIT_FAILED)


def _do(words: Sequence[str]) -> None:
    try:
        build(words)(prog_name=PROGRAM)
    except SystemExit as end:
        if end.code == _TYPER_INTERRUPTED:
            raise KeyboardInterrupt from None
        raise


def _cloud_run(words: Sequence[str]) -> None:
    gc.disable()  # as of `run`
    from airflow_training.cli.cloud_run import plain_words, run_there, start_service

    plain = plain_words(words[2:])
    if plain is None:
        gc.enable()
        _do(words)
        return
    local = start_service(plain)
    import_module("airflow_training.cloud.program")  # what `run_there` needs

    gc.freeze()
    gc.enable()
    sys.exit(run_there(plain, local=local))


def _run(words: Sequence[str]) -> None:
    gc.disable()  # what is imported until a job starts stays: the collector need not look at it
    try:
        start = _understand(words)
        from airflow_training.cli.hosting import host, import_host_modules
        from airflow_training.cli.start import ResumeOpenRuns

        import_host_modules()
    except KeyboardInterrupt:
        note("interrupted; nothing was started")
        sys.exit(EXIT_BAD_INPUT)
    gc.freeze()
    gc.enable()
    if isinstance(start, ResumeOpenRuns):
        from airflow_training.cli.unfinished_runs import drive_unfinished_runs

        succeeded = drive_unfinished_runs(start, settings=load_settings())
    else:
        succeeded = host(start, settings=load_settings()) == "Succeeded"
    gc.freeze()  # the process ends here: its last collection need not look at all that was imported
    if not succeeded:
        sys.exit(EXIT_FAILED)


def _understand(words: Sequence[str]) -> StartRequest | ResumeOpenRuns:
    started: list[StartRequest | ResumeOpenRuns] = []
    try:
        build(words)(list(words), prog_name=PROGRAM, obj=started)
    except SystemExit as end:
        if end.code == _TYPER_INTERRUPTED:
            raise KeyboardInterrupt from None
        if not started:  # help, or a slip of the fingers
            raise
    return started[0]
