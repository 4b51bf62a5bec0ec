"""Trainings of every framework under random kills: they end right, and every kill is counted once.

`KILLS` says how many in all, at least, `SEED` which; a failure names the seed of its training.
"""

from __future__ import annotations

import math
import os
import random

import pytest

from tests.trainings.jobs import TRAININGS, running
from tests.trainings.test_kills import ended_well, restarts, with_marks

pytestmark = [pytest.mark.e2e, pytest.mark.frameworks, pytest.mark.timeout(1200)]

KILLS_OF_A_RUN = 4
ROUNDS = math.ceil(int(os.environ.get("KILLS", "32")) / (KILLS_OF_A_RUN * len(TRAININGS)))
FIRST_SEED = int(os.environ.get("SEED", "1"))
WHAT = ["process", "agent", "tree", "controller"]


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + ROUNDS))
@pytest.mark.parametrize("name", [with_marks(name) for name in TRAININGS])
def test_every_kill_is_counted_once(name, seed, tmp_path):
    dice = random.Random(f"{name} {seed}")
    story = []
    with running(TRAININGS[name], tmp_path) as run:
        charged = 0
        for _ in range(KILLS_OF_A_RUN):
            run.until(run.is_whole)
            run.let_pass(dice.random() * dice.choice([0.0, 0.2, 2.0]))
            what, victim = dice.choice(WHAT), dice.choice(run.training.instances)
            story.append(f"{what} of {victim}")
            if what == "controller":
                run.kill_controller()
                run.let_pass(dice.random())
                run.start()
            else:
                charged += run.kill(victim, what)
        print(f"seed {seed}: {name}: {', '.join(story)}: {charged} to be counted")
        run.until(run.is_whole)
        (run.folder / "closed").unlink()
        assert run.wait() == 0, (story, run.said())
        ended_well(run)
        assert restarts(run) == charged, (story, run.said())
