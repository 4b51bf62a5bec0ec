"""Runs that are started again without Airflow: each by a process of `airflow-training run`, which drives it.

It does not notice when the server of the pages ends.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

from fastapi import Request

from airflow_training.admission.request import Source
from airflow_training.control.model import Event
from airflow_training.documents.resolved import RunKey
from airflow_training.state.store import RunRecord, open_store
from airflow_training.web.new_runs import refuse_simulated

__all__ = ["CommandRuns"]

_NEVER_STARTED = 2
"""Exit code of the command line for what it refuses."""
_LONGEST_MESSAGE = 2000


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

    def _begin(self, run: RunRecord, run_id: str, words: Sequence[str], document: str = "") -> None:
        store = open_store()
        with self._lock:
            if run_id in self._begun or store.run(RunKey(source="cli", run_id=run_id).uid):
                return
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
        waiting = threading.Thread(
            target=_tell_refusal, args=(run.uid, run_id, process, said), daemon=True
        )
        waiting.start()


def _tell_refusal(uid: str, run_id: str, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
    """Wait for the process; where it has begun nothing, say why in the story of the old run."""
    with said:
        if process.wait() != _NEVER_STARTED:
            return
        said.seek(0)
        why = said.read(_LONGEST_MESSAGE).decode(errors="replace").strip()
    store = open_store()
    event = Event(
        at=store.now(),
        level="error",
        reason="RunAgainRefused",
        message=f"{run_id}: {why}",
        data={"run_id": run_id},
    )
    store.add_events(uid, [event])
