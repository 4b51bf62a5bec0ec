"""Real processes, one, two and four, that are killed in a step and start again with another seed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.checkpoints.training import course, processes, train

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

STEPS = 50


@pytest.mark.parametrize("world", [1, 2, 4])
def test_losses_and_full_state_are_those_of_a_training_never_killed(world, tmp_path):
    assert processes(train, world, tmp_path / "whole", STEPS, 5, -1) == [0] * world
    kills = sorted(random.Random(world).sample(range(STEPS), 2))
    for kill in kills:
        assert processes(train, world, tmp_path / "killed", STEPS, 5, kill)[-1] == -9
    assert processes(train, world, tmp_path / "killed", STEPS, 5, -1) == [0] * world
    for rank in range(world):
        losses, digest = course(tmp_path / "whole", rank)
        assert len(losses) == STEPS
        assert course(tmp_path / "killed", rank) == (losses, digest)


def test_a_training_of_one_seed_is_not_that_of_another(tmp_path):
    """Otherwise equal losses above would mean nothing."""

    def losses(name: str, kill: int) -> list[float]:
        folder: Path = tmp_path / name
        processes(train, 1, folder, 5, 100, kill)
        return course(folder, 0)[0]

    assert losses("one", -1) == losses("two", -1) != losses("three", 6)
