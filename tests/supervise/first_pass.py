"""A process that makes the first pass of a run, as `plan` does, and is killed while it does.

Forked from a server that has imported this, so that it begins at once and its death is its own.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from airflow_training.admission.check import check_text
from airflow_training.admission.launch import launch
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.runtimes.local.runtime import LocalRuntime
from airflow_training.state.store import Store
from airflow_training.supervise.loop import Supervisor
from airflow_training.supervise.owners import new_owner
from tests.waiting import PATIENCE

__all__ = ["SEAMS", "Beginner", "local_runtime", "supervisor"]

RUN_SECONDS = 0.2

# worker 0 fails in its first attempt: exactly one restart is due, whoever counts it
SCRIPT = f"""
mark() {{ echo "$1 $TRAINING_ROLE $TRAINING_INDEX $TRAINING_ATTEMPT $$ $(date +%s.%N)" >> "$MARKS"; }}
mark start
sleep {RUN_SECONDS}
mark stop
if [ "$TRAINING_ROLE $TRAINING_INDEX $TRAINING_ATTEMPT" = "worker 0 0" ]; then exit 3; fi
"""

SEAMS = ("acquire", "try_start", "prepare", "commit", "create", "release")
"""The calls of store and runtime in a first pass, from the lease to its hand-over."""


class Beginner:
    """One first pass in a process of its own."""

    def __init__(self, home: Path, *, seam: str = "") -> None:
        """`seam`: the call after which it kills itself, one of SEAMS; empty: none."""
        home.mkdir()
        context = multiprocessing.get_context("forkserver")
        self._ready = context.Event()
        self.process = context.Process(target=_begin, args=(home, seam, self._ready))
        self.process.start()

    def wait_until_it_begins(self) -> None:
        """Return when the run is in the store, and the lease is what comes next."""
        assert self._ready.wait(PATIENCE)

    def end(self, *, after_seconds: float | None = None) -> bool:
        """Kill it after a while (None: let it end by itself); return whether a kill ended it."""
        self.process.join(PATIENCE if after_seconds is None else after_seconds)
        self.process.kill()
        self.process.join(PATIENCE)
        return self.process.exitcode == -signal.SIGKILL


def local_runtime(home: Path) -> LocalRuntime:
    """Return the runtime whose instances live below `home`."""
    return LocalRuntime(local_dir=home / "runs")


def supervisor(home: Path, store: Store, runtime: LocalRuntime) -> Supervisor:
    """Return a holder for the only run there is."""
    [record] = store.runs()
    return Supervisor(store=store, runtime=runtime, run_uid=record.uid, owner=new_owner())


def _begin(home: Path, seam: str, ready: Event) -> None:
    store, runtime = Store(f"sqlite:///{home / 'store.db'}"), local_runtime(home)
    key = RunKey(source="cli", run_id="one")
    launch(_job(home), key=key, store=store, controller="here", activate_all=True)
    if seam:
        seams: dict[str, Any] = {"prepare": runtime, "create": runtime, "try_start": store.queue}
        whose = seams.get(seam, store)
        setattr(whose, seam, _deadly(getattr(whose, seam)))
    ready.set()
    asyncio.run(supervisor(home, store, runtime).first_pass())


def _job(home: Path) -> ResolvedJob:
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "begun"},
        "spec": {
            "framework": "custom",
            "runtime": {"name": "local"},
            "command": ["sh", "-c", SCRIPT],
            "env": [{"name": "MARKS", "value": str(home / "marks")}],
            "roles": [
                {"name": "master", "replicas": 1},
                {
                    "name": "worker",
                    "replicas": 2,
                    "dependsOn": [{"role": "master", "status": "Running"}],
                },
            ],
            "restart": {"backoff": {"initialSeconds": 0.1}},
        },
    }
    [checked] = check_text(json.dumps(document), path="job.json", base_dir=str(home), run_uid="")
    assert checked.resolved is not None, checked.problems
    return checked.resolved


def _deadly(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return `call` with the death of this process after it."""

    def of_store(*args: Any, **kwargs: Any) -> None:
        call(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    async def of_runtime(*args: Any, **kwargs: Any) -> None:
        await call(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    return of_runtime if asyncio.iscoroutinefunction(call) else of_store
