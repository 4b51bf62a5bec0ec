"""Hosts the loop in this process: shows the run, turns signals into a clean stop. Parses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import random
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from airflow_training.builtin_runtimes import HERE, SIMULATED
from airflow_training.cli.output import OutputFormat, log_to_stderr, next_step, note, print_warnings
from airflow_training.cli.statuses import print_status
from airflow_training.control.reason_facts import NOT_ADMITTED
from airflow_training.errors import JobFailed, LeaseLost, RuntimeUnavailable, StopUnconfirmed
from airflow_training.settings import user_name
from airflow_training.supervise.waiting import alongside

if TYPE_CHECKING:
    from airflow_training.cli.live import EventPrinter
    from airflow_training.cli.start import StartRequest
    from airflow_training.control.model import JobState
    from airflow_training.runtimes.clock import Clock
    from airflow_training.runtimes.port import Runtime
    from airflow_training.settings import Settings
    from airflow_training.state.store import RunRecord, Store
    from airflow_training.supervise.loop import Supervisor

__all__ = ["host", "import_host_modules"]

_POLL_SECONDS = 1.0
_ANSWER_SECONDS = 2.0
"""How long an interrupted command waits for the store to say who drives the run."""
_STOPS = (signal.SIGINT, signal.SIGTERM)
_EXIT_FAILED = 1
_EXIT_BAD_INPUT = 2
_THREADS = 64
"""Enough that those which wait for a locked store hold up none that ends a process."""


def import_host_modules() -> None:
    """Import what `host` needs, in one go."""
    from airflow_training.runtimes.registry import adapter_of

    importlib.import_module(adapter_of(HERE).module)


def host(start: StartRequest, *, settings: Settings) -> str:
    """Run a job to its end in this process, print its status, return its state."""
    from airflow_training.admission.launch import (
        check_runtime,
        controller_id,
        describe_start,
        launch,
    )
    from airflow_training.cli.live import make_event_printer
    from airflow_training.runtimes.clock import VirtualClock
    from airflow_training.state.store import open_store
    from airflow_training.supervise.run_clock import newest_time
    from airflow_training.supervise.runtimes import make_runtime
    from airflow_training.supervise.status import run_status

    pages = None
    if start.pages:
        from airflow_training.cli.ui import Pages

        pages = Pages()  # where that fails, nothing has begun
    view = make_event_printer(as_json=start.as_json)
    if start.as_json:
        for warning in start.warnings:
            view.print_line(str(warning), level="warning")
    else:
        print_warnings(start.warnings)
    clock = VirtualClock() if start.simulate is not None else None
    runtime = make_runtime(
        start.job.runtime,
        settings,
        connection=start.job.connection,
        simulate=start.simulate,
        clock=clock,
    )
    with contextlib.closing(open_store()) as store:
        controller = controller_id(store, settings)
        if store.run(start.key.uid) is None:  # else it was let in already
            for warning in asyncio.run(
                check_runtime(start.job, key=start.key, controller=controller, runtime=runtime)
            ):
                view.print_line(str(warning), level="warning")
        with _keeping_signals() as early:
            record = launch(
                start.job,
                key=start.key,
                store=store,
                controller=controller,
                activate_all=True,
                submitted_by=user_name(),
            )
            log_to_stderr(as_json=start.as_json)
            stored = store.job(record.uid)
            if begins := describe_start(stored):
                view.print_line(f"starts from {begins}")
            if plan := stored.plan:
                from airflow_training.planning.answers.text import plan_lines

                for line in plan_lines(plan.document):
                    view.print_line(line)
            if not start.as_json:
                note(f"run {record.key.run_id} of job {record.job} on {record.runtime}")
            if pages is not None:
                view.print_line(f"its page: {pages.address(record.uid)}")
                pages.serve_in_background()
            hosting = _host(
                store,
                runtime,
                record,
                view,
                settings=settings,
                logs=start.logs,
                clock=clock,
                early=early,
            )
            if clock is None:
                state = asyncio.run(hosting)
            else:
                random.seed(0)  # what is drawn is drawn again in the next simulation
                clock.advance_to(newest_time(store.ledger(record.uid)))
                state = clock.run(hosting)
        try:
            document = run_status(store, record.uid)
            metrics = store.metrics.newest(record.uid) if start.output is OutputFormat.table else {}
        except RuntimeUnavailable as error:
            note(f"{state}, and nothing of it is alive; but {error}")
            return state
    print_status(document, output=start.output, metrics=metrics)
    if not start.as_json:
        next_step(*_next(document, simulated=record.runtime == SIMULATED))
    if (document["root_cause"] or {}).get("id") == NOT_ADMITTED:
        sys.exit(_EXIT_BAD_INPUT)
    return state


async def _host(
    store: Store,
    runtime: Runtime,
    record: RunRecord,
    view: EventPrinter,
    *,
    settings: Settings,
    logs: bool,
    clock: Clock | None,
    early: Sequence[str],
) -> JobState:
    """Drive the run until it ends, and return how; the first signal asks it to stop, and others say how to end it at once.

    `early`: the names of signals that came before.
    """
    from airflow_training.cli.live_logs import showing_logs
    from airflow_training.supervise.hub import get_hub
    from airflow_training.supervise.loop import Supervisor
    from airflow_training.supervise.owners import is_provably_dead, new_owner

    owner = new_owner()
    get_hub(store, poll_seconds=_POLL_SECONDS)
    supervisor = Supervisor(
        store=store,
        runtime=runtime,
        run_uid=record.uid,
        owner=owner,
        on_event=view.print_event,
        max_running_jobs=settings.max_running_jobs,
        read_logs=settings.read_logs and record.runtime != SIMULATED,
        clock=clock,
    )
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS))
    driving = asyncio.ensure_future(supervisor.run())
    heard: list[str] = []
    asking: set[asyncio.Future[None]] = set()
    unknown = False

    def end(name: str) -> None:
        if not heard:
            heard.append(name)
            view.print_line(f"{name}: stopping the job; nothing of it will be alive when this ends")
            supervisor.interrupt(by=name)
        else:
            view.print_line(
                f"{name}: it is being stopped; what does not end by itself is killed when its grace is over,"
                f" and at once by: airflow-training kill {shlex.quote(record.key.run_id)} --now"
            )

    async def end_or_detach(name: str) -> None:
        """End the run, unless another process drives it or nobody can say: that one goes on."""
        nonlocal unknown
        try:
            held = await asyncio.wait_for(
                asyncio.to_thread(store.lease, record.uid), _ANSWER_SECONDS
            )
        except (RuntimeUnavailable, asyncio.TimeoutError):
            unknown = True
            driving.cancel()
            return
        if held is None or held.owner == owner or is_provably_dead(held.owner):
            end(name)
        else:
            driving.cancel()

    def stop(name: str) -> None:
        if supervisor.ledger is not None:
            end(name)
        else:
            asking.add(asyncio.ensure_future(end_or_detach(name)))

    for number in _STOPS:
        loop.add_signal_handler(number, stop, number.name)
    for name in early:
        stop(name)
    try:
        async with (
            view.following(supervisor),
            _watching(store, record, supervisor, view, owner=owner),
            showing_logs(runtime, record, supervisor, view) if logs else contextlib.nullcontext(),
        ):
            return await driving
    except asyncio.CancelledError:
        who = "may be driven by another process" if unknown else "is driven by another process"
        raise JobFailed(
            f"run {record.key.run_id} {who}, which goes on;"
            f" to stop it: airflow-training kill {record.key.run_id}"
        ) from None
    except LeaseLost:
        raise JobFailed(
            f"another process has taken over run {record.key.run_id};"
            f" see airflow-training status {record.key.run_id}"
        ) from None
    except StopUnconfirmed as error:
        _tell_unconfirmed(record, error)
        sys.stdout.flush()
        os._exit(_EXIT_FAILED)  # threads that wait for the runtime would hold this process for long
    except RuntimeUnavailable:
        if store.is_gone():
            note(
                f"failed: the store of run {record.key.run_id} was deleted or moved while it ran:"
                f" {store.url}; nothing of it is alive, and how it ended is not recorded"
            )
            sys.stdout.flush()
            os._exit(_EXIT_FAILED)
        note(
            f"failed: run {record.key.run_id} was stopped and nothing of it is alive, but the store"
            f" does not know; once it answers: airflow-training kill {record.key.run_id}"
        )
        sys.stdout.flush()
        os._exit(_EXIT_FAILED)  # threads that wait for the store would hold this process for long
    finally:
        for number in _STOPS:
            loop.remove_signal_handler(number)


def _tell_unconfirmed(record: RunRecord, error: StopUnconfirmed) -> None:
    """Say what a stop has left behind, as the runtime does not answer, and what ends it."""
    alive = f", where {', '.join(error.instances)} may still be alive" if error.instances else ""
    stop = "is recorded" if error.recorded else "could not be recorded either"
    note(
        f"failed: the {record.runtime} runtime does not answer{alive}; that run {record.key.run_id}"
        f" shall end {stop}. Once it answers: airflow-training kill {record.key.run_id}"
    )


@contextlib.contextmanager
def _keeping_signals() -> Iterator[list[str]]:
    """Keep what asks this process to stop: a run that is written has to be ended, not left open."""
    kept: list[str] = []

    def keep(number: int, _: object) -> None:
        kept.append(signal.Signals(number).name)

    before = {number: signal.signal(number, keep) for number in _STOPS}
    try:
        yield kept
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.asynccontextmanager
async def _watching(
    store: Store, record: RunRecord, supervisor: Supervisor, view: EventPrinter, *, owner: str
) -> AsyncIterator[None]:
    """Tell the story of a run that another process drives, for as long as it does. `owner`: this one."""
    from airflow_training.supervise.owners import name_of

    seen = -1  # nothing is told before it is known that somebody drives

    def print_updates() -> None:
        nonlocal seen
        held = store.lease(record.uid)
        if (
            held is not None and held.owner == owner
        ):  # it was given just now, and is about to be known
            return
        if seen < 0 and held is not None:
            state = store.read([record.uid]).get(record.uid)
            seen = 0 if state is None else state.last_seq
            view.print_line(
                f"{name_of(held.owner)} drives run {record.key.run_id}; this command watches, and"
                " takes over if that ends. Ctrl-C ends the watching only"
            )
        for each in store.events(record.uid, after=seen) if seen >= 0 else ():
            seen = each.seq
            view.print_event(each.event)

    async def watch() -> None:
        await asyncio.sleep(_POLL_SECONDS)  # the lease may just be there for the taking
        while supervisor.ledger is None:
            with contextlib.suppress(RuntimeUnavailable):
                await asyncio.to_thread(print_updates)
            await asyncio.sleep(_POLL_SECONDS)

    async with alongside(watch()):
        yield
        if supervisor.ledger is None and seen >= 0:
            await asyncio.to_thread(print_updates)


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
