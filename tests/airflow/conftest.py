"""One Airflow for all end-to-end tests of a session, and what keeps Airflow's imports quiet."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from airflow_training.cli.airflow_stack import AirflowStack
from airflow_training.state.store import Store, open_store
from tests.airflow.stack import PASSWORD, Airflow
from tests.waiting import PATIENCE

GENERIC = '''"""The DAG that runs any job (airflow)."""
from airflow_training.compiler.generic import generic_dag
dag = generic_dag()
'''
BUNDLES = [
    {"name": name, "classpath": classpath, "kwargs": {"refresh_interval": 2}}
    for name, classpath in (
        ("dags-folder", "airflow.dag_processing.bundles.local.LocalDagBundle"),
        ("jobs", "airflow_training.compiler.bundle.JobBundle"),
    )
]
XCOM_BACKEND = "airflow.providers.common.io.xcom.backend.XComObjectStorageBackend"


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """Return a running Airflow whose jobs folder holds what `airflow-training init` writes."""
    with run_airflow(tmp_path_factory.mktemp("airflow")) as running:
        yield running


@pytest.fixture
def store(airflow_home: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Return the store of an Airflow that allows the local runtime."""
    monkeypatch.setenv("AIRFLOW__TRAINING__ALLOW_LOCAL", "True")
    return open_store()


@contextlib.contextmanager
def run_airflow(
    home: Path,
    *,
    path: str = "",
    environment: Mapping[str, str] | None = None,
    prepare: Callable[[AirflowStack], None] = lambda _: None,
) -> Iterator[Airflow]:
    """Run one below this path of its server, with users `admin` and `reader`; `prepare`: done when its database is there."""
    stack = AirflowStack(
        home=home,
        path=path,
        environment={
            # each job file is a DAG file of its own: a new one is parsed at once and alone
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(BUNDLES),
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "900",
            # other tests want the processor that an idle scheduler would use up
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3",
            # what is larger than a reference goes to files, as one would have it in production
            "AIRFLOW__CORE__XCOM_BACKEND": XCOM_BACKEND,
            "AIRFLOW__COMMON_IO__XCOM_OBJECTSTORAGE_PATH": f"file://{home}/xcom",
            "AIRFLOW__COMMON_IO__XCOM_OBJECTSTORAGE_THRESHOLD": "1000",
            # users with passwords, so that the tests see what a stranger sees
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,reader:viewer",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
            **(environment or {}),
        },
    )
    running = Airflow(stack=stack, room=home / "room")
    running.room.mkdir()
    # the form of `training_job` lists what is there when it is parsed
    command = Path(sys.executable).with_name("airflow-training")
    subprocess.run(
        [command, "init", home / "jobs"], check=True, capture_output=True, timeout=PATIENCE
    )
    (home / "xcom").mkdir()
    (home / "passwords.json").write_text(json.dumps({"admin": PASSWORD, "reader": PASSWORD}))
    (home / "dags" / "generic.py").write_text(GENERIC)
    try:
        stack.migrate()
        prepare(stack)
        stack.start()
        stack.wait_healthy()
        running.connect()
        yield running
    finally:
        stack.stop()
        running.kill_leftovers()
        running.close()
