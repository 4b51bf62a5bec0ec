"""A lab for each test; its instances run until they are stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_training.supervise.followers.replanning import Replanner
from tests.rounds import Rounds
from tests.supervise.conftest import Stage
from tests.supervise.replanning.lab import FOREVER, Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    lab.has(3)
    return lab


@pytest.fixture(autouse=True)
def forever(stage: Stage) -> None:
    stage.runtime.script = FOREVER


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Rounds:
    return Rounds(monkeypatch, Replanner, "poll")
