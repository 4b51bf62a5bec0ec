"""Every script of the page on resumable scripts trains, saves, and has nothing left to do when run again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_training.checkpoints import reading
from tests.docs.pages import ROOT, blocks_of
from tests.ports import free_port
from tests.waiting import PATIENCE

pytestmark = pytest.mark.e2e

SCRIPTS = {block.file: block for block in blocks_of(ROOT / "docs" / "resumable.md") if block.file}
LAST_STEPS = {
    "train.py": 4,
    "meet.py": 4,
    "light.py": 4,
    "hugging.py": 8,
    "fit.py": 2,
    "boost.py": 4,
    "anything.py": 40,
    "own.py": 40,
}
SAMPLE = {"anything.py", "own.py"}
"""The others import a framework twice each; `make e2e` trains with it where it is there (tests/checkpoints)."""


def test_every_script_of_the_page_has_its_last_step_here() -> None:
    assert {name for name in SCRIPTS if name.endswith(".py")} == {*LAST_STEPS, "parts.py"}


@pytest.mark.parametrize(
    ("name", "last_step"),
    [
        pytest.param(*each, marks=() if each[0] in SAMPLE else pytest.mark.soak)
        for each in LAST_STEPS.items()
    ],
)
def test_a_script_trains_to_the_end_once(tmp_path: Path, name: str, last_step: int) -> None:
    for each in (name, "parts.py"):
        (tmp_path / each).write_text(SCRIPTS[each].text, encoding="utf-8")
    root = str(tmp_path / "root")
    told = {"root": root, "every": {"steps": 1}, "resume": {"kind": "latest"}}
    environment = {
        **os.environ,
        "TRAINING_CHECKPOINT": json.dumps(told),
        "KERAS_BACKEND": "torch",
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "RANK": "0",
        "WORLD_SIZE": "1",
    }
    saved = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, name],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        saved.append([entry.step for entry in reading.history(root)])
    assert max(saved[0]) == last_step
    assert saved[1] == saved[0]
