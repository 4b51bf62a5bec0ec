"""One Airflow for all end-to-end tests of a session, and what keeps Airflow's imports quiet."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_training.cli.airflow_stack import AirflowStack
from tests.airflow.stack import Airflow

LOADER = Path(__file__).parents[2] / "dags" / "loader.py"


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """Return a running Airflow whose jobs folder is empty."""
    home = tmp_path_factory.mktemp("airflow")
    database = f"sqlite:///{home / 'airflow.db'}?timeout=60"
    stack = AirflowStack(
        home=home,
        environment={
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
            # with everybody an admin, the log server alone would tell who asks
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3",
        },
    )
    running = Airflow(stack=stack, room=home / "room")
    running.room.mkdir()
    (home / "jobs").mkdir()
    shutil.copy(LOADER, home / "dags" / "loader.py")
    try:
        stack.migrate()
        # readers and the writer no longer wait for each other on a slow machine
        sqlite3.connect(home / "airflow.db").execute("pragma journal_mode=wal")
        stack.start()
        stack.wait_healthy()
        running.connect()
        yield running
    finally:
        stack.stop()
        running.kill_leftovers()
