"""A submission that is laid out becomes a run: who does it, and a run driven by a process that outlives the service."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from airflow_training.admission.check import check_text
from airflow_training.admission.launch import check_runtime, check_size, controller_id, launch
from airflow_training.cloud.protocol import CloudRunState
from airflow_training.cloud.service.driver_watch import watch_driver
from airflow_training.cloud.service.engine_check import ask_runtime
from airflow_training.control.model import TERMINAL_JOB_STATES, Event
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.errors import InputError
from airflow_training.runtimes.port import Runtime
from airflow_training.runtimes.registry import adapter_of
from airflow_training.settings import load_settings
from airflow_training.state.store import RunRecord, Store, open_store
from airflow_training.supervise.owners import is_provably_dead
from airflow_training.supervise.runtimes import make_runtime, open_runtime

__all__ = ["ProcessLauncher", "RunLauncher", "end_run"]

_HOST, _SAID = "host.json", "host.log"


class RunLauncher(Protocol):
    """Where submissions become runs. All methods block."""

    def check(self, document: Mapping[str, Any], *, run_id: str, folder: Path, by: str) -> None:
        """Raise InputError with all that is wrong with a job whose files are not here yet."""

    def begin(
        self,
        document: Mapping[str, Any],
        *,
        run_id: str,
        folder: Path,
        state_folder: Path,
        by: str,
        events: Sequence[Event],
    ) -> None:
        """Store the run and drive it, once however often this is called.

        `events`: what stands at the beginning of its story. Raises InputError for what is refused.
        """

    def key(self, run_id: str) -> RunKey:
        """What the store calls a run."""

    def runtime(self, job: ResolvedJob) -> Runtime:
        """The runtime of a job, reached from here; raises TrainingError."""

    def before_start(self, run_id: str) -> CloudRunState | None:
        """How a run stands that began and that the store does not know (yet); None: there is none."""

    def stop(self, run_id: str, by: str) -> None:
        """Ask for the end of a run; nothing happens to one that has ended. Raises KeyError."""


class ProcessLauncher:
    """See `RunLauncher`: runs of this machine's store, each driven by a process of its own.

    They are runs of the command line: `list`, `status` and `ui` show them.
    """

    def check(self, document: Mapping[str, Any], *, run_id: str, folder: Path, by: str) -> None:
        """See `RunLauncher`. This machine, or an engine, is asked whether it has room at all, and now: not only once content has moved."""
        job = _resolved(document, run_id=run_id, folder=folder, by=by)
        check_size(job)
        if not adapter_of(job.runtime).capabilities.runs_here:
            ask_runtime(job, _key(run_id))

    def begin(
        self,
        document: Mapping[str, Any],
        *,
        run_id: str,
        folder: Path,
        state_folder: Path,
        by: str,
        events: Sequence[Event],
    ) -> None:
        """See `RunLauncher`."""
        # of who drives it, also where the tree lies elsewhere
        folder.mkdir(parents=True, exist_ok=True)
        key, store = _key(run_id), open_store()
        record = store.run(key.uid)
        if record is None:
            settings = load_settings()
            job = _resolved(document, run_id=run_id, folder=folder, by=by)
            controller = controller_id(store, settings)
            runtime = make_runtime(job.runtime, settings, connection=job.connection)
            asyncio.run(check_runtime(job, key=key, controller=controller, runtime=runtime))
            record = launch(
                job, key=key, store=store, controller=controller, activate_all=True, submitted_by=by
            )
        told = {each.event.reason for each in store.events(record.uid)}
        store.add_events(record.uid, [each for each in events if each.reason not in told])
        if record.state not in TERMINAL_JOB_STATES and not _is_driven(store, record, state_folder):
            job_file = state_folder / "job.json"
            job_file.write_text(json.dumps(document, indent=1))
            start = partial(_drive, job_file, run_id=run_id, folder=folder)
            watch_driver(record.uid, start, said=state_folder / _SAID)

    def key(self, run_id: str) -> RunKey:
        """See `RunLauncher`."""
        return _key(run_id)

    def runtime(self, job: ResolvedJob) -> Runtime:
        """See `RunLauncher`."""
        return open_runtime(job.runtime, connection=job.connection)

    def before_start(self, run_id: str) -> CloudRunState | None:  # noqa: ARG002 - the protocol's
        """None: `begin` stores the run."""
        return None

    def stop(self, run_id: str, by: str) -> None:
        """See `RunLauncher`."""
        if not end_run(_key(run_id), by=by):
            raise KeyError(run_id)


def end_run(key: RunKey, *, by: str) -> bool:
    """Ask who drives a run to end it; returns whether the store has the run."""
    store = open_store()
    record = store.run(key.uid)
    if record is not None and record.state not in TERMINAL_JOB_STATES:
        store.add_request(record.uid, "stop", reason="Stopped", by=by)
    return record is not None


def _key(run_id: str) -> RunKey:
    return RunKey(source="cli", run_id=run_id)


def _resolved(document: Mapping[str, Any], *, run_id: str, folder: Path, by: str) -> ResolvedJob:
    """The job as it will run; raises InputError with all that is wrong with it."""
    checked = check_text(
        json.dumps(document),
        path="submission",
        base_dir=str(folder),
        params={},
        variables={"run_id": run_id},
        run_uid=_key(run_id).uid,
        user=by,
    )[0]
    if checked.resolved is None:
        raise InputError(problems=checked.problems)
    return checked.resolved


def _is_driven(store: Store, record: RunRecord, state_folder: Path) -> bool:
    """Whether a process holds the run, or one that was started for it is about to."""
    held = store.lease(record.uid)
    if held is not None and not is_provably_dead(held.owner):
        return True
    with contextlib.suppress(OSError, ValueError, KeyError):
        known = json.loads((state_folder / _HOST).read_text())
        words = Path(f"/proc/{known['pid']}/cmdline").read_bytes().split(b"\0")
        return record.key.run_id.encode() in words
    return False


def _drive(job_file: Path, *, run_id: str, folder: Path) -> subprocess.Popen[bytes]:
    state_folder = job_file.parent
    words = ["run", str(job_file), "--base-dir", str(folder), "--run-id", run_id]
    with (state_folder / _SAID).open("ab") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "airflow_training.cli", *words],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,  # Ctrl-C of whoever serves is not for it
            env={
                name: text for name, text in os.environ.items() if name != "AIRFLOW_TRAINING_MODE"
            },
        )
    (state_folder / _HOST).write_text(json.dumps({"pid": process.pid}))
    return process
