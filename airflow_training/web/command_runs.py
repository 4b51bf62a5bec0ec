"""Runs that are started from pages without Airflow: each by a process of `airflow-training run`, which drives it.

It does not notice when the server of the pages ends.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from fastapi import HTTPException, Request

from airflow_training.admission.request import Source
from airflow_training.control.model import Event
from airflow_training.documents.resolved import RunKey
from airflow_training.state.store import RunRecord, open_store
from airflow_training.web.new_runs import ClusterConnection, refuse_simulated, trial_name

__all__ = ["CommandRuns"]

_NEVER_STARTED = 2
"""Exit code of the command line for what it refuses."""
_LONGEST_MESSAGE = 2000
_SECONDS_TO_BEGIN = 30.0
"""A new run is in the store after two or three; a machine that is busy needs longer."""
_LOOK_SECONDS = 0.1


class CommandRuns:
    """See `new_runs.NewRuns`."""

    document_source: Source = "file"
    """It is the machine of whoever writes here."""

    def __init__(self) -> None:
        self._begun: set[str] = set()
        self._lock = threading.Lock()

    def refusal(self, run: RunRecord) -> str:
        """Return why not; see `NewRuns.refusal`."""
        return refuse_simulated(run)

    def key(self, run: RunRecord, digest: str) -> RunKey:
        """Return the key of a run of the command line."""
        return RunKey(source="cli", run_id=f"{run.job}-again-{digest[:8]}")

    async def begin(
        self,
        request: Request,  # noqa: ARG002 - the protocol's
        run: RunRecord,
        run_id: str,
        *,
        resume: Mapping[str, Any] | None,
    ) -> None:
        """Start the process, unless this id has one."""
        words = ["--from-run", run.uid]
        if resume is not None:
            words += ["--set", f"spec.checkpoint.resume={json.dumps(resume)}"]
        await asyncio.to_thread(self._begin, run, run_id, words)

    def document_key(self, run: RunRecord, digest: str) -> RunKey:
        """Return the key of a run of the command line."""
        return RunKey(source="cli", run_id=f"{run.job}-edited-{digest[:8]}")

    async def begin_document(
        self,
        request: Request,  # noqa: ARG002 - the protocol's
        run: RunRecord,
        run_id: str,
        *,
        document: str,
    ) -> None:
        """Start the process, which reads the document from its input and finds files where the old run did."""
        folder = open_store().job(run.uid).base_dir or "."
        words = ["/dev/stdin", "--base-dir", folder]
        await asyncio.to_thread(self._begin, run, run_id, words, document)

    def new_key(self, job: str, digest: str) -> RunKey:
        """Return the key of a run of the command line."""
        return RunKey(source="cli", run_id=f"{job}-{digest[:8]}")

    def trial_key(self, job: str, tuning: str, number: int, trials: int) -> RunKey:
        """Return the key of a run of the command line."""
        return RunKey(source="cli", run_id=f"{job}-{trial_name(tuning, number, trials)}")

    async def begin_new(
        self,
        request: Request,  # noqa: ARG002 - the protocol's
        run_id: str,
        *,
        document: str,
        base_dir: str,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Start the process, and wait until its run is there; raises HTTPException with what it says where it begins none."""
        words = ["/dev/stdin", "--base-dir", base_dir]
        for name, value in (params or {}).items():
            words += ["--param", f"{name}={_param_text(value)}"]
        await asyncio.to_thread(self._begin_and_see, run_id, words, document)

    async def connections(self, request: Request) -> Sequence[ClusterConnection]:  # noqa: ARG002 - the protocol's
        """Return none: they are Airflow's."""
        return ()

    def _begin_and_see(self, run_id: str, words: Sequence[str], document: str) -> None:
        begun = self._start(run_id, words, document)
        if begun is not None and (why := begun.refusal(_SECONDS_TO_BEGIN)):
            raise HTTPException(422, why)

    def _begin(self, run: RunRecord, run_id: str, words: Sequence[str], document: str = "") -> None:
        begun = self._start(run_id, words, document)
        if begun is None:
            return
        threading.Thread(target=_tell_refusal, args=(run.uid, begun), daemon=True).start()

    def _start(self, run_id: str, words: Sequence[str], document: str) -> _BegunProcess | None:
        """Start the process; None: this id has one already."""
        store = open_store()
        with self._lock:
            if run_id in self._begun or store.run(RunKey(source="cli", run_id=run_id).uid):
                return None
            self._begun.add(run_id)
        command = [sys.executable, "-m", "airflow_training.cli", "run", *words, "--run-id", run_id]
        said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by whoever waits for the process
        with tempfile.TemporaryFile() as read:  # no name, so that nothing of it is left behind
            read.write(document.encode())
            read.seek(0)
            process = subprocess.Popen(
                command,
                stdin=read,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,  # Ctrl-C of the server is not for it
            )
        return _BegunProcess(run_id, process, said, refused=self._forget)

    def _forget(self, run_id: str) -> None:
        """Let an id whose process has begun no run be asked for again, however late that is known."""
        with self._lock:
            self._begun.discard(run_id)


class _BegunProcess:
    """A process that is to drive a run, watched until it ends."""

    def __init__(
        self,
        run_id: str,
        process: subprocess.Popen[bytes],
        said: IO[bytes],
        *,
        refused: Callable[[str], None],
    ) -> None:
        """`refused`: told the id once it is known that there will be no run of it."""
        self.run_id = run_id
        self._refused = refused
        self._process = process
        self._said = said
        self._over = threading.Event()
        self._why = ""
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        """Wait for its end, so that it leaves no zombie."""
        with self._said:
            code = self._process.wait()
            if code == _NEVER_STARTED or (code != 0 and not self._has_run()):
                self._said.seek(0)
                said = self._said.read(_LONGEST_MESSAGE).decode(errors="replace").strip()
                self._why = said or f"the process ended with exit code {code}"
                self._refused(self.run_id)
        self._over.set()

    def _has_run(self) -> bool:
        return open_store().run(RunKey(source="cli", run_id=self.run_id).uid) is not None

    def refusal(self, seconds: float) -> str:
        """Return why it begins no run, once that is known; empty: the run is there, or needs longer."""
        for _ in range(max(1, round(seconds / _LOOK_SECONDS))):
            if self._over.wait(_LOOK_SECONDS):
                return self._why
            if self._has_run():
                break
        return ""

    def refusal_at_end(self) -> str:
        """Wait for its end; return why it has begun no run, empty where it has."""
        self._over.wait()
        return self._why


def _param_text(value: Any) -> str:
    """Return a value as the command line reads it, which is YAML: of JSON's escapes it knows none in two halves."""
    text = json.dumps(value, ensure_ascii=False)
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _tell_refusal(uid: str, begun: _BegunProcess) -> None:
    """Wait for the process; where it has begun nothing, say why in the story of the old run."""
    why, run_id = begun.refusal_at_end(), begun.run_id
    if not why:
        return
    store = open_store()
    event = Event(
        at=store.now(),
        level="error",
        reason="RunAgainRefused",
        message=f"{run_id}: {why}",
        data={"run_id": run_id},
    )
    store.add_events(uid, [event])
