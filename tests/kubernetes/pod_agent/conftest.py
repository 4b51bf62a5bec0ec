"""The agent's program, and the Pythons that it runs on."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_training.agent.package import portable_agent
from tests.kubernetes.pod_agent.programs import pythons


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / "agent.pyz"
    path.write_bytes(portable_agent())
    return path


@pytest.fixture(params=pythons())
def python(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found
