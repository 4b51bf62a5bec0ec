"""What the trainings of these tests share: a checkpoint that survives kills, a step that waits, and a witness.

Standard library only: it lies beside each script and runs in the framework's own environment.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

STEPS = 12
WAITS_AT = 4
"""From this step on a training waits while the file `closed` is there."""

# Locked as long as this process lives: a witness of two of one rank at once.
_rank = f"rank-{os.environ['TRAINING_RANK']}"
try:
    fcntl.flock(os.open(_rank, os.O_WRONLY | os.O_CREAT), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    Path("doubled").write_text(_rank)


def restored() -> tuple[int, str]:
    """Return the step that the newest checkpoint is of, and its content; (0, "") without one."""
    try:
        step, _, content = Path("checkpoint").read_text().partition("\n")
    except FileNotFoundError:
        return 0, ""
    return int(step), content


def save(step: int, content: str) -> None:
    """Replace the checkpoint in one move."""
    new = Path(f"checkpoint.{os.getpid()}")
    new.write_text(f"{step}\n{content}")
    new.replace("checkpoint")


def passed(step: int, rank: int | str) -> None:
    """Say that a step was done, and stay at the gate while it is closed."""
    print(f"rank {rank} step {step} loss {1 / step:.4f}", flush=True)
    time.sleep(0.03)
    while step >= WAITS_AT and Path("closed").exists():
        time.sleep(0.02)


def finish(rank: int, model: str) -> None:
    """Write the model where rank 0's output is taken from."""
    if rank == 0:
        Path(os.environ["TRAINING_OUTPUT_DIR"], "model").write_text(model)
    print(f"rank {rank} is done", flush=True)
