"""Sends a program away, follows it and ends as it ended: for the line in a script and for `cloud run`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

from airflow_training.capture.command import storage_addresses
from airflow_training.cloud.client import CloudClient, connect
from airflow_training.cloud.data_sharing import start_sharing
from airflow_training.cloud.early_returns import returning_early
from airflow_training.cloud.following import DetachError, ask_person, follow
from airflow_training.cloud.journal import known_run
from airflow_training.cloud.local_service import LocalService, start_local
from airflow_training.cloud.options import RunOptions
from airflow_training.cloud.protocol import CloudRunState
from airflow_training.cloud.returning import ModelReturn
from airflow_training.cloud.shared_data import SharedData, describe_shared
from airflow_training.cloud.submit import prepare, submit
from airflow_training.cloud.targets import HERE_NAME, find_target, list_targets
from airflow_training.errors import InputError, TrainingError

__all__ = ["bill_text", "follow_to_end", "main_program", "run_program", "send_program"]

_EXIT_FAILED = 1
_EXIT_BAD_INPUT = 2
_CONDITION = "stop.until holds"


def run_program(options: RunOptions) -> int:
    """Send the program that this process runs; returns the exit code to end with. Raises nothing of ours."""
    try:
        argv = main_program(sys.modules["__main__"], sys.argv)
        return send_program(argv, options, ranks=(0,))
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
    argv: Sequence[str],
    options: RunOptions,
    *,
    ranks: Sequence[int],
    local: LocalService | None = None,
) -> int:
    """Submit, follow, bring the model back; returns the exit code of the run. Raises TrainingError.

    `local`: the service of this machine, where the target needs it and it was started already.
    """
    chosen = find_target(options.target)
    with contextlib.ExitStack() as stack:
        local = local or start_local(chosen)
        if local is not None:
            stack.callback(local.close)
        submission = prepare(argv, options, cwd=Path.cwd(), is_here=chosen.name == HERE_NAME)
        for note in submission.capture.notes:
            say(f"note: {note}")
        for each in storage_addresses(submission.capture.command.args):
            say(f"read where it is: {each}")
        if submission.shared is not None and not chosen.is_direct:
            _say_shared(submission.shared, target=chosen.name)
        client = stack.enter_context(connect(chosen, local=local))
        submitted = submit(client, submission, target=chosen.name, told=say, whole=options.whole)
        again = " (goes on with the submission that was interrupted)" if submitted.again else ""
        say(
            f"run {submitted.run_id} on {chosen.name}: {submission.request.files} files,"
            f" {submitted.sent} bytes sent{again}"
        )
        start_sharing(submitted.run_id, target=chosen.name)
        if options.detach:
            print(submitted.run_id, flush=True)  # noqa: T201 - the result, also for who reads it by a pipe
            say(f"next: airflow-training cloud logs {submitted.run_id}")
            return 0
        return follow_to_end(client, submitted.run_id, ranks=ranks, bill=options.bill)


def _say_shared(shared: SharedData, *, target: str) -> None:
    """Show what the run may read, before anything is sent."""
    for note in shared.notes:
        say(f"note: {note}")
    for row in describe_shared(shared.manifest):
        say(f"stays here, and {target} gets it when the run reads it: {row}")
    for each in shared.manifest.omissions:
        say(f"note: {os.path.relpath(each.path)} is never shared: {each.reason}")


def follow_to_end(
    client: CloudClient, run_id: str, *, ranks: Sequence[int], bill: bool = False
) -> int:
    """Show a run until it is over, and bring its model to where it was submitted from; returns its exit code.

    `bill`: say what it has cost, too.
    """
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
    has_ended_well = state.state == "Succeeded"
    if has_ended_well:
        if state.message.startswith(_CONDITION):
            say(state.message)
        if model is not None:
            model.bring_back(client, told=say)
    else:
        say(_end_text(state, elsewhere=known is not None and _has_service(known.target)))
    if bill:
        _tell_bill(client, run_id)
    if has_ended_well and model is not None:
        return 0
    return _EXIT_FAILED if state.exit_code is None else state.exit_code


def _tell_bill(client: CloudClient, run_id: str) -> None:
    try:
        say(bill_text(client.bill(run_id)))
    except TrainingError as error:  # how the run ended is another matter
        say(f"bill: {error}\nnext: airflow-training cloud bill {run_id}")


def bill_text(bill: Mapping[str, Any]) -> str:
    """A bill on one line: what is to be paid, and for what."""
    used = f"{bill['instance_seconds']} instance seconds"
    if Decimal(bill["gpu_seconds"]):
        used += f", {bill['gpu_seconds']} GPU seconds"
    payer = bill["team"] or bill["account"]
    cost = (
        f"{bill['total']} {bill['currency']}, charged to {payer}" if payer else "charged to nobody"
    )
    more = "" if bill["final"] else "; it may become more"
    return f"bill: {cost} ({used}){more}\nnext: airflow-training cloud bill {bill['run_id']}"


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


def say(text: str) -> None:
    """A message for people, on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
