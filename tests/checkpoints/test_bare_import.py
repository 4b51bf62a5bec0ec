"""The library works in any image: it needs Python alone until it is given tensors or a remote address."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from airflow_training import checkpoints
from tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]

ADAPTERS = {
    "huggingface",
    "keras",
    "lightning",
    "torch_agreement",
    "torch_boundary",
    "torch_transfer",
    "torch_rendezvous",
    "torch_rejoining",
    "xgboost",
}
"""Of a framework each, which whoever imports them has."""

SCRIPT = """
import sys, tempfile
sys.path.insert(0, {root!r})
import importlib
for name in {names!r}:
    importlib.import_module("airflow_training.checkpoints." + name)
from airflow_training.checkpoints import restore, save
with tempfile.TemporaryDirectory() as folder:
    assert restore(root=folder) is None
    state = {{"step": 3, "weights": bytes(100), "order": (1, 2.5, None)}}
    assert save(state, step=3).step == 3
    assert restore(root=folder) == state
"""


def test_every_module_loads_and_saves_without_any_package():
    names = {path.stem for path in (ROOT / "airflow_training/checkpoints").glob("*.py")}
    script = SCRIPT.format(root=str(ROOT), names=sorted(names - ADAPTERS - {"__init__"}))
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_name_of_before_still_works_and_says_the_new_one():
    with pytest.warns(DeprecationWarning, match="is now called Rendezvous"):
        assert checkpoints.Meeting is checkpoints.Rendezvous
