"""Real processes, one, two and four, that are killed in a step and start again with another seed."""

from __future__ import annotations

import os
import signal

import pytest

from airflow_training.checkpoints import reading
from airflow_training.checkpoints.checkpointer import Checkpointer
from tests.checkpoints.training import Rank, Training, broken_off, course, noted, processes

pytestmark = pytest.mark.e2e

STEPS = 60


@pytest.mark.parametrize(
    ("world", "kills"),
    [
        pytest.param(1, [7, 25, 44], id="1"),
        pytest.param(2, [27], id="2"),
        pytest.param(4, [33], id="4", marks=pytest.mark.soak),
    ],
)
def test_losses_and_full_state_are_those_of_a_training_never_killed(world, kills, tmp_path):
    """`python -m benchmarks recovery` kills in each of 50 steps."""
    broken_off(tmp_path / "whole", world, total=STEPS, every=10, kills=[])
    broken_off(tmp_path / "killed", world, total=STEPS, every=10, kills=kills)
    for rank in range(world):
        losses, digest = course(tmp_path / "whole", rank)
        assert len(losses) == STEPS
        assert course(tmp_path / "killed", rank) == (losses, digest)


def train_until_asked_to_end(me: Rank) -> None:
    """Train with saves by the clock; after the first, one rank alone is asked to end, in the middle of a step."""
    me.join()
    training = Training(distributed=True)
    checkpointer = Checkpointer(**training.given(), root=me.folder / "root", every={"seconds": 0.1})
    asked = False
    for step in range(checkpointer.restore(), 100_000):
        training.step()
        if me.rank == 1 and not asked and step % 20 == 0 and reading.newest(f"{me.folder}/root"):
            asked = True
            os.kill(os.getpid(), signal.SIGTERM)
        me.note(step=step + 1)
        checkpointer.step(step)


def test_ranks_that_save_by_the_clock_do_so_together_and_end_together(tmp_path):
    """No rank knows the clock or the signal of another; they ask each other."""
    assert processes(train_until_asked_to_end, 2, tmp_path) == [143, 143]
    last = noted(tmp_path, 0)[-1]["step"]
    assert noted(tmp_path, 1)[-1]["step"] == last
    saves = reading.history(str(tmp_path / "root"))
    assert saves[0].step == last
    assert {save.state for save in saves} == {"committed"}
    assert reading.find(str(tmp_path / "root"), step=last).number > 1
