"""Processes that are killed while they save leave nothing torn and lose nothing that was acknowledged."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkpoints.kills import INTERVAL
from tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.e2e


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder in memory where there is one: a kill does not lose what a file system holds."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.mark.parametrize("world", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_no_kill_tears_or_loses_a_checkpoint(folder, world):
    command = ["-m", "tests.checkpoints.kills", str(folder), "--world", str(world), "--kills", "40"]
    done = subprocess.run(
        [sys.executable, *command],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["torn"] == []
    assert result["lost"] == []
    assert result["most_repeated"] <= INTERVAL + 1
    assert result["kills"] == 40
    assert result["last_saved"] > 0
    assert result["restores"] > 0
