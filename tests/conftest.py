"""What all tests share: one event loop backend, and an Airflow home of their own."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

# Before anything imports airflow: tests never see the user's own Airflow home.
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-training-tests-")
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")


@pytest.hookimpl(tryfirst=True)  # before pytest looks at -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a running Airflow: it runs by itself, with as many Airflows as processes."""
    for item in items:
        path = item.path.as_posix()
        if item.get_closest_marker("e2e") is not None and (
            "/tests/airflow/" in path or path.endswith("/tests/cli/test_submit.py")
        ):
            item.add_marker(pytest.mark.airflow)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def airflow_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fresh Airflow home that settings and store resolve to."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    return tmp_path
