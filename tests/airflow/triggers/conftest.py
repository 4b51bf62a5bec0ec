"""Scenes for triggers: a real store, the memory runtime and an Airflow that only tells task states."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.execution_time import task_runner

from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.state.store import open_store
from airflow_training.triggers import hosting, live_log, log_tail, reconcile
from airflow_training.triggers.role import RoleTrigger
from tests.airflow.triggers.scenes import Airflow, Running, Scene, started


@pytest.fixture
def scene(airflow_home: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    runtime = MemoryRuntime()
    for module in (hosting, live_log, log_tail):
        monkeypatch.setattr(module, "runtime_of", lambda name: runtime)
    monkeypatch.setattr(reconcile, "_WATCH_SECONDS", 0.01)
    airflow = Airflow()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", airflow, raising=False)
    return Scene(store=open_store(), runtime=runtime, airflow=airflow)


@pytest.fixture
async def role_task(scene: Scene) -> AsyncIterator[Any]:
    """Give a function that starts the role's trigger beside `reconcile`."""
    running: list[Running] = []

    def start(name: str = "worker", **task_instance: Any) -> Running:
        running.append(Running(started(RoleTrigger(role=name), f"{name}.run", **task_instance)))
        return running[-1]

    yield start
    for each in running:
        await each.cancel(by_user=False)
