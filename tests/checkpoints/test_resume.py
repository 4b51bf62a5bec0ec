"""Real processes, one, two and four, that are killed in a step and start again with another seed."""

from __future__ import annotations

import pytest

from tests.checkpoints.training import broken_off, course

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

STEPS = 60


@pytest.mark.parametrize(
    ("world", "kills"),
    [
        pytest.param(1, [7, 25, 44], id="1"),
        pytest.param(2, [27], id="2"),
        pytest.param(4, [33], id="4"),
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
