"""Hosts the loop in this process: shows the run, turns signals into a clean stop. Parses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_training.cli.output import Output, log_to_stderr, next_step, note, print_warnings
from airflow_training.cli.statuses import print_status
from airflow_training.errors import JobFailed, LeaseLost

if TYPE_CHECKING:
    from airflow_training.cli.live import Story
    from airflow_training.cli.start import Start
    from airflow_training.runtimes.port import Runtime
    from airflow_training.settings import Settings
    from airflow_training.state.store import RunRecord, Store

__all__ = ["host", "import_what_hosts"]

_POLL_SECONDS = 1.0


def import_what_hosts() -> None:
    """Import what `host` needs, in one go: the collector need not look at it, all of it stays."""
    gc.disable()
    import airflow_training.runtimes.local
    import airflow_training.supervise.launch
    import airflow_training.supervise.loop
    import airflow_training.supervise.status  # noqa: F401  # imported here, used later

    gc.freeze()
    gc.enable()


def host(start: Start, *, settings: Settings) -> str:
    """Run a job to its end in this process, print its status, return its state."""
    from airflow_training.cli.live import story
    from airflow_training.state.store import open_store
    from airflow_training.supervise.launch import (
        beginning,
        check_runtime,
        controller_id,
        launch,
    )
    from airflow_training.supervise.runtimes import make_runtime
    from airflow_training.supervise.status import run_status

    view = story(as_json=start.as_json)
    if start.as_json:
        for warning in start.warnings:
            view.say(str(warning), level="warning")
    else:
        print_warnings(start.warnings)
    runtime = make_runtime(
        start.job.runtime, settings, connection=start.job.connection, simulate=start.simulate
    )
    with contextlib.closing(open_store()) as store:
        controller = controller_id(store, settings)
        if store.run(start.key.uid) is None:  # else it was let in already
            asyncio.run(
                check_runtime(start.job, key=start.key, controller=controller, runtime=runtime)
            )
        record = launch(
            start.job, key=start.key, store=store, controller=controller, activate_all=True
        )
        log_to_stderr(as_json=start.as_json)
        stored = store.job(record.uid)
        if begins := beginning(stored):
            view.say(f"starts from {begins}")
        if plan := stored.plan:
            from airflow_training.planning.text import plan_lines

            for line in plan_lines(plan):
                view.say(line)
        if not start.as_json:
            note(f"run {record.key.run_id} of job {record.job} on {record.runtime}")
        asyncio.run(_host(store, runtime, record, view, settings=settings))
        document = run_status(store, record.uid)
        metrics = store.newest_metrics(record.uid) if start.output is Output.table else {}
    print_status(document, output=start.output, metrics=metrics)
    if not start.as_json:
        next_step(*_next(document, simulated=record.runtime == "memory"))
    return str(document["state"])


async def _host(
    store: Store, runtime: Runtime, record: RunRecord, view: Story, *, settings: Settings
) -> None:
    """Drive the run until it ends; the first signal asks it to stop, and is heard only once."""
    from airflow_training.supervise.drive import retrying
    from airflow_training.supervise.hub import get_hub
    from airflow_training.supervise.loop import Supervisor
    from airflow_training.supervise.owners import new_owner

    get_hub(store, poll_seconds=_POLL_SECONDS)
    supervisor = Supervisor(
        store=store,
        runtime=runtime,
        run_uid=record.uid,
        owner=new_owner(),
        on_event=view.tell,
        max_running_jobs=settings.max_running_jobs,
        read_logs=settings.read_logs and record.runtime != "memory",
    )
    loop = asyncio.get_running_loop()
    driving = asyncio.ensure_future(supervisor.run())
    stopping: list[asyncio.Future[None]] = []

    def stop(name: str) -> None:
        if supervisor.ledger is None:
            driving.cancel()  # another process drives the run, and goes on
        elif not stopping:
            view.say(f"{name}: stopping the job; nothing of it will be alive when this ends")
            stopping.append(asyncio.ensure_future(ask(name)))

    async def ask(name: str) -> None:
        await retrying(lambda: store.add_request(record.uid, "stop", reason="Interrupted", by=name))
        supervisor.poke()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number.name)
    try:
        async with view.beside(supervisor):
            await driving
    except asyncio.CancelledError:
        raise JobFailed(
            f"run {record.key.run_id} is driven by another process, which goes on;"
            f" to stop it: airflow-training kill {record.key.run_id}"
        ) from None
    except LeaseLost:
        raise JobFailed(
            f"another process has taken over run {record.key.run_id};"
            f" see airflow-training status {record.key.run_id}"
        ) from None
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _next(document: Mapping[str, Any], *, simulated: bool) -> Sequence[str]:
    """Return the command that tells more about how a run ended."""
    run_id = document["run_id"]
    events = ["events", run_id]
    if document["state"] == "Stopped" or simulated or not document["instances"]:
        return events
    # the root cause may be a role that could not start: then no single log tells it
    cause = document["root_cause"] or document["instances"][0]
    if cause["role"] is None or cause["index"] is None:
        return events
    words = ["logs", "show", run_id, "--role", cause["role"], "--index", str(cause["index"])]
    newest = {(each["role"], each["index"]): each["attempt"] for each in document["instances"]}
    if cause["attempt"] not in (None, newest.get((cause["role"], cause["index"]))):
        words += ["--attempt", str(cause["attempt"])]
    return words
