"""A store, a simulated runtime, and runs to drive; nothing here waits for the wall clock."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflow_training.admission.launch import launch
from airflow_training.control.model import Event
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.state.store import RunRecord, Store
from airflow_training.supervise.loop import Supervisor
from airflow_training.supervise.owners import new_owner


@dataclass
class Stage:
    """One store and one simulated runtime, shared by any number of supervisors."""

    store: Store
    runtime: MemoryRuntime
    events: list[Event] = field(default_factory=list)

    def launch(self, job: ResolvedJob, *, run_id: str = "one", activate: bool = True) -> str:
        """Store a run and return its uid."""
        return self.record(job, run_id=run_id, activate=activate).uid

    def record(self, job: ResolvedJob, *, run_id: str, activate: bool = True) -> RunRecord:
        key = RunKey(source="cli", run_id=run_id)
        return launch(job, key=key, store=self.store, controller="here", activate_all=activate)

    def supervisor(self, uid: str, **options: Any) -> Supervisor:
        return Supervisor(
            store=self.store,
            runtime=options.pop("runtime", self.runtime),
            run_uid=uid,
            owner=options.pop("owner", None) or new_owner(),
            on_event=self.events.append,
            **options,
        )

    @contextlib.asynccontextmanager
    async def driving(self, uid: str, **options: Any) -> AsyncIterator[asyncio.Task[str]]:
        """Drive a run beside the body; a test that leaves early cancels it."""
        task = asyncio.ensure_future(self.supervisor(uid, **options).run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def live(self, uid: str) -> set[tuple[str, int]]:
        return set(self.runtime.live(uid))

    def reasons(self, uid: str) -> list[str]:
        return [each.event.reason for each in self.store.events(uid)]


@pytest.fixture
def store(tmp_path: Path, sqlite_template: Path) -> Iterator[Store]:
    shutil.copy(sqlite_template, tmp_path / "store.db")
    opened = Store(f"sqlite:///{tmp_path / 'store.db'}")
    yield opened
    opened.close()


@pytest.fixture
def stage(store: Store) -> Stage:
    return Stage(store=store, runtime=MemoryRuntime())
