"""What all tests share: one event loop backend, and an Airflow home of their own."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

# Before anything imports airflow: tests never see the user's own Airflow home.
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-training-tests-")
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def airflow_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fresh Airflow home that settings and store resolve to."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    return tmp_path
