"""How long ranks of the engine stand still when one of four is killed, and what they lose: plain replicas, and parts of a state."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.report import figure, heading, median, quantile
from tests.execution.regrouping import Ranks
from tests.ports import free_port

KILLS = int(os.environ.get("KILLS", "50"))
STEP_SECONDS = 0.1
EVERY = 10


def kill_again_and_again(folder: Path, *, zero: int) -> tuple[list[float], list[int]]:
    """Kill a rank at random, and again some steps later; seconds to the first new step, and steps lost."""
    ranks = Ranks(folder=folder, port=free_port(), steps=10**6, step_seconds=STEP_SECONDS)
    ranks.checkpoint = {"root": str(folder / "root"), "every": {"steps": EVERY}}
    names = [f"i{number}" for number in range(4)]
    draw = random.Random(zero)
    seconds: list[float] = []
    try:
        for rank, name in enumerate(names):
            ranks.plan(name, {"dp": 4, "zero": zero})
            ranks.start(name, rank=rank, world=4)
        ranks.wait_for("i0", lambda: ranks.step("i0") > EVERY)
        for number in range(KILLS):
            time.sleep(draw.uniform(0.5, 1.5))
            victim = draw.randrange(4)
            killed_at = time.time()
            ranks.kill(names[victim])
            ranks.start(names[victim], rank=victim, world=4)
            ranks.wait_for(names[victim], partial(has_told, ranks, number + 1))
            seconds.append(max(line["at"] for line in ranks.regrouped()) - killed_at)
        return seconds, [line["lost_steps"] for line in ranks.regrouped()]
    finally:
        ranks.stop()


def has_told(ranks: Ranks, times: int) -> bool:
    return len(ranks.regrouped()) >= times


def main() -> None:
    multiprocessing.set_forkserver_preload(["tests.execution.regrouping"])
    heading(f"four ranks, one killed with SIGKILL, {KILLS} times; started by fork, torch imported")
    for zero, what in ((0, "replicas"), (1, "parts, from the checkpoint")):
        with tempfile.TemporaryDirectory() as folder:
            seconds, lost = kill_again_and_again(Path(folder), zero=zero)
        figure(f"{what}: first new step, median", median(seconds), "s")
        figure(f"{what}: first new step, p95", quantile(seconds, 0.95), "s", target="at most 5")
        figure(
            f"{what}: steps lost, most",
            max(lost),
            "steps",
            target=f"at most {EVERY if zero else 0}",
        )
        print(json.dumps({"zero": zero, "seconds": [round(each, 2) for each in sorted(seconds)]}))


if __name__ == "__main__":
    main()
