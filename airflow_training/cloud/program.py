"""Sends a program away, follows it and ends as it ended: for the line in a script and for `cloud run`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from airflow_training.cloud.client import CloudClient, connect, start_local
from airflow_training.cloud.data_sharing import start_sharing
from airflow_training.cloud.early_returns import returning_early
from airflow_training.cloud.following import DetachError, ask_person, follow
from airflow_training.cloud.journal import known_run
from airflow_training.cloud.protocol import CloudRunState
from airflow_training.cloud.returning import ModelReturn
from airflow_training.cloud.shared_data import SharedData, describe_shared
from airflow_training.cloud.submit import RunOptions, prepare, submit
from airflow_training.cloud.targets import HERE_NAME, find_target, list_targets
from airflow_training.errors import InputError, TrainingError

__all__ = ["chosen_variables", "follow_to_end", "main_program", "run_program", "send_program"]

_EXIT_FAILED = 1
_EXIT_BAD_INPUT = 2
_CONDITION = "stop.until holds"


def run_program(
    *,
    framework: str,
    replicas: int,
    resources: Mapping[str, Any],
    returns: str,
    until: str,
    hours: float,
    team: str,
    data: Sequence[str],
    data_wait: float,
    target: str,
    env: Sequence[str],
    root: str,
    allow_secrets: Sequence[str],
    allow_missing: Sequence[str],
    detach: bool,
) -> int:
    """Send the program that this process runs; returns the exit code to end with. Raises nothing of ours."""
    try:
        argv = main_program(sys.modules["__main__"], sys.argv)
        options = RunOptions(
            framework=framework,
            replicas=replicas,
            resources=resources,
            returns=returns,
            until=until,
            hours=hours,
            team=team,
            data=data,
            data_wait=data_wait,
            env=chosen_variables(env, os.environ),
            root=Path(root) if root else None,
            allow_secrets=allow_secrets,
            allow_missing=allow_missing,
        )
        return send_program(argv, options, target=target, detach=detach, ranks=(0,))
    except InputError as error:
        for problem in error.problems:
            say(f"error: {problem}")
        return _EXIT_BAD_INPUT
    except TrainingError as error:
        say(f"error: {error}")
        return _EXIT_FAILED
    except OSError as error:  # a folder that may not be written, a full disk
        say(f"error: {error.filename or 'this machine'}: {error.strerror or error}")
        return _EXIT_FAILED


def send_program(
    argv: Sequence[str], options: RunOptions, *, target: str, detach: bool, ranks: Sequence[int]
) -> int:
    """Submit, follow, bring the model back; returns the exit code of the run. Raises TrainingError."""
    chosen = find_target(target)
    with contextlib.ExitStack() as stack:
        local = start_local(chosen) if chosen.name == HERE_NAME or chosen.is_direct else None
        if local is not None:
            stack.callback(local.close)
        submission = prepare(argv, options, cwd=Path.cwd(), is_here=chosen.name == HERE_NAME)
        for note in submission.capture.notes:
            say(f"note: {note}")
        if submission.shared is not None and not chosen.is_direct:
            _say_shared(submission.shared, target=chosen.name)
        client = stack.enter_context(connect(chosen, local=local))
        submitted = submit(client, submission, target=chosen.name, told=say)
        again = " (goes on with the submission that was interrupted)" if submitted.again else ""
        say(
            f"run {submitted.run_id} on {chosen.name}: {submission.request.files} files,"
            f" {submitted.sent} bytes sent{again}"
        )
        start_sharing(submitted.run_id, target=chosen.name)
        if detach:
            print(submitted.run_id)  # noqa: T201 - the result
            say(f"next: airflow-training cloud logs {submitted.run_id}")
            return 0
        return follow_to_end(client, submitted.run_id, ranks=ranks)


def _say_shared(shared: SharedData, *, target: str) -> None:
    """Show what the run may read, before anything is sent."""
    for note in shared.notes:
        say(f"note: {note}")
    for row in describe_shared(shared.manifest):
        say(f"stays here, and {target} gets it when the run reads it: {row}")
    for each in shared.manifest.omissions:
        say(f"note: {os.path.relpath(each.path)} is never shared: {each.reason}")


def follow_to_end(client: CloudClient, run_id: str, *, ranks: Sequence[int]) -> int:
    """Show a run until it is over, and bring its model to where it was submitted from; returns its exit code."""
    known = known_run(run_id)
    model = None if known is None else ModelReturn(known)
    asks = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    try:
        with (
            contextlib.nullcontext() if model is None else returning_early(client, model, told=say)
        ):
            state = follow(
                client, run_id, ranks=ranks, told=say, asked=ask_person if asks else None
            )
    except InputError as error:
        if error.problems[0].code == "expired":
            say(f"run {run_id} goes on; airflow-training cloud logs {run_id} follows it")
        raise
    except DetachError:
        say(f"run {run_id} goes on; airflow-training cloud logs {run_id} follows it")
        return 0
    if state.state == "Succeeded":
        if state.message.startswith(_CONDITION):
            say(state.message)
        if model is not None:
            model.bring_back(client, told=say)
            return 0
    else:
        say(_end_text(state, elsewhere=known is not None and _has_service(known.target)))
    return _EXIT_FAILED if state.exit_code is None else state.exit_code


def _has_service(target: str) -> bool:
    """Whether the runs of a target are in a store that is not this machine's."""
    return any(each.name == target and each.url and not each.is_direct for each in list_targets())


def _end_text(state: CloudRunState, *, elsewhere: bool) -> str:
    why = f": {state.message}" if state.message else ""
    # the store of another machine is not that of `status` here
    command = f"cloud logs --all {state.run_id}" if elsewhere else f"status {state.run_id}"
    return f"run {state.run_id} ended as {state.state}{why}\nnext: airflow-training {command}"


def main_program(main: ModuleType, argv: Sequence[str]) -> Sequence[str]:
    """What this process was started with, as after `python`; raises InputError where nothing of it is a file."""
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return ["-m", spec.name.removesuffix(".__main__"), *argv[1:]]
    path = getattr(main, "__file__", None)
    if not path:
        raise InputError.of(
            code="not_supported",
            field="cloud.run",
            message="this is a notebook or an interactive session: there is no script that could be sent",
            hint="airflow-training cloud run NOTEBOOK.ipynb, in a terminal",
        )
    return [str(path), *argv[1:]]


def chosen_variables(rows: Sequence[str], environ: Mapping[str, str]) -> Sequence[str]:
    """NAME or NAME=VALUE with its value; raises InputError for a name that is not set."""
    missing = [each for each in rows if "=" not in each and each not in environ]
    if missing:
        raise InputError.of(
            code="missing",
            field="--env",
            message=f"{', '.join(missing)}: not set here",
            value=", ".join(missing),
            hint=f"--env {missing[0]}=VALUE",
        )
    return [each if "=" in each else f"{each}={environ[each]}" for each in rows]


def say(text: str) -> None:
    """A message for people, on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
