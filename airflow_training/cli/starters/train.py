"""A stand-in for training: fits a line by gradient descent and reports its progress."""

import argparse
import json
import os
import pathlib
import random
import time


def report(**line: object) -> None:
    """Append a line to the progress file, from where it reaches the terminal and `status`."""
    path = os.environ.get("TRAINING_PROGRESS_FILE")
    if path:
        with pathlib.Path(path).open("a") as file:
            file.write(json.dumps({**line, "time": time.time()}) + "\n")


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
steps = parser.parse_args().steps

role, rank = os.environ["TRAINING_ROLE"], int(os.environ["TRAINING_RANK"])
print(f"{role}: rank {rank} of {os.environ['TRAINING_WORLD_SIZE']}")
numbers = random.Random(rank)  # noqa: S311 - made-up data, no secret
points = [(x, 3 * x + 1 + numbers.gauss(0, 0.1)) for x in (numbers.random() for _ in range(200))]
slope = offset = 0.0
for step in range(1, steps + 1):
    errors = [(slope * x + offset - y, x) for x, y in points]
    slope -= 1.5 * sum(error * x for error, x in errors) / len(points)
    offset -= 1.5 * sum(error for error, _ in errors) / len(points)
    loss = sum(error * error for error, _ in errors) / len(points)
    report(step=step, total_steps=steps, metrics={"loss": loss})
    print(f"step {step}: loss {loss:.4f}")
    time.sleep(0.1)

if rank == 0:
    folder = pathlib.Path(os.environ.get("TRAINING_OUTPUT_DIR", "."))
    (folder / "model.json").write_text(json.dumps({"slope": slope, "offset": offset}))
    print(f"y = {slope:.2f} x + {offset:.2f}, written to {folder / 'model.json'}")
