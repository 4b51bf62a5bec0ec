"""`airflow-training cloud run` against this machine: from the command to "submitted", and the line in a script."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.report import figure, heading, median, quantile

FILES = 1000
BYTES = 10 << 20
ROUNDS = 10
_IMPORT = """
import time
start = time.perf_counter()
from airflow_training import cloud
print(time.perf_counter() - start)
start = time.perf_counter()
cloud.run(mode="local")
print(time.perf_counter() - start)
"""


def make_project(folder: Path) -> None:
    """Write a script and modules that do not compress."""
    dice = random.Random(0)
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    for number in range(FILES - 1):
        path = folder / f"package{number % 20}" / f"module{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# {dice.randbytes(BYTES // FILES // 2).hex()}\n")


def submitted(project: Path, env: Mapping[str, str]) -> tuple[float, float]:
    """Return seconds until the run is submitted, and processor seconds of the client; waits for its end."""
    words = [sys.executable, "-m", "airflow_training.cli", "cloud"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    with subprocess.Popen(
        [*words, "run", "--detach", "train.py"],
        cwd=project,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        run = process.stdout.readline().strip() if process.stdout else ""
        seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    subprocess.run([*words, "logs", run], env=env, check=True, capture_output=True)
    return seconds, used


def main() -> None:
    heading("A script of 1,000 files (10 MB) sent to this machine")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_project(folder / "project")
        env = {**os.environ, "AIRFLOW_HOME": str(folder / "home")}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        subprocess.run(
            [sys.executable, "-m", "airflow_training.cli", "db", "upgrade"],
            env=env,
            check=True,
            capture_output=True,
        )
        cold, unchanged, used = [], [], []
        for number in range(ROUNDS):
            there = folder / "home" / "training-cloud"
            if there.exists():
                # moved away: where thousands of files have just been deleted, some file systems take ten times as long to make one
                there.rename(folder / f"gone{number}")
            cold.append(submitted(folder / "project", env)[0])
            seconds, processor = submitted(folder / "project", env)
            unchanged.append(seconds)
            used.append(processor)
    note = f"processor {median(used):.2f} s of the client"
    figure("nothing there: p95 to submitted", quantile(cold, 0.95), "s", target="2")
    figure("unchanged: p95 to submitted", quantile(unchanged, 0.95), "s", target="0.7", note=note)
    heading("The line in a script that is not sent")
    told = [
        subprocess.run(
            [sys.executable, "-c", _IMPORT], check=True, capture_output=True, text=True
        ).stdout.split()
        for _ in range(ROUNDS)
    ]
    figure("import", 1e3 * median([float(each[0]) for each in told]), "ms", target="20")
    figure("call", 1e3 * median([float(each[1]) for each in told]), "ms", target="1")


if __name__ == "__main__":
    main()
