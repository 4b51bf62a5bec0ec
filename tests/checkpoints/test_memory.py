"""What saving costs in memory: one copy of the state, however often and however slowly it is saved."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from airflow_training.checkpoints.checkpointer import Checkpointer
from airflow_training.checkpoints.group import Group
from tests.checkpoints.training import Rank, noted, processes

MEGABYTE = 1 << 20
STATE = 96 * MEGABYTE


def save_often(me: Rank) -> None:
    """Save a state of `STATE` bytes over and over while uploads are slow; note the most memory held beside it."""
    me.join()
    write = Group.write

    def slow(self: Group, *args: Any, **more: Any) -> Any:
        time.sleep(0.05)
        return write(self, *args, **more)

    Group.write = slow  # type: ignore[method-assign]  # in a process of its own
    model = torch.nn.ParameterList(
        torch.zeros(4 * MEGABYTE) for _ in range(STATE // 16 // MEGABYTE)
    )
    checkpointer = Checkpointer(model=model, root=me.folder / "root", every={"seconds": 1e-6})
    checkpointer.restore()
    Path("/proc/self/clear_refs").write_text("5")  # begin to measure the peak anew
    before = peak()
    for step in range(400):
        with torch.no_grad():
            model[step % len(model)] += 1
        checkpointer.step(step)
        time.sleep(0.005)
    checkpointer.close()
    me.note(bytes=peak() - before)


def peak() -> int:
    """Return the most memory that this process has held, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


@pytest.mark.e2e
def test_memory_is_bounded_to_one_copy(tmp_path):
    assert processes(save_often, 1, tmp_path) == [0]
    (note,) = noted(tmp_path, 0)
    assert STATE <= note["bytes"] <= 1.2 * STATE
