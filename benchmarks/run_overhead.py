"""`airflow-training run` of a job that does nothing, against plain processes and against torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.report import figure, heading, median

ROUNDS = 9
PROCESSES = 4

JOB = f"""
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {{name: nothing}}
spec:
  framework: custom
  command: [{sys.executable}, nothing.py]
  roles:
    - {{name: worker, replicas: {PROCESSES}}}
"""


def seconds(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    heading("Overhead of one run on one machine")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "nothing.py").write_text("pass\n")
        (home / "job.yaml").write_text(JOB)
        env = {**os.environ, "AIRFLOW_HOME": folder}
        # an installed package has its byte code; a checkout must be let write it
        env.pop("PYTHONDONTWRITEBYTECODE", None)

        def quiet(*command: str) -> None:
            subprocess.run(
                command,
                cwd=home,
                env=env,
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

        def plain() -> None:
            started = [
                subprocess.Popen([sys.executable, "nothing.py"], cwd=home, env=env)
                for _ in range(PROCESSES)
            ]
            for each in started:
                each.wait()

        def ours() -> None:
            quiet(sys.executable, "-m", "airflow_training.cli", "run", "job.yaml")

        def torchrun() -> None:
            quiet(
                sys.executable,
                *("-m", "torch.distributed.run", "--standalone"),
                *(f"--nproc-per-node={PROCESSES}", "nothing.py"),
            )

        ours()  # warm: the store exists, byte code is compiled
        torchrun()
        rows = [(seconds(plain), seconds(ours), seconds(torchrun)) for _ in range(ROUNDS)]
    figure(f"{PROCESSES} plain processes", median([r[0] for r in rows]), "s")
    figure("airflow-training run", median([r[1] for r in rows]), "s")
    figure("torchrun --standalone", median([r[2] for r in rows]), "s")
    over = median([r[1] - r[0] for r in rows])
    figure("airflow-training run over plain processes", over, "s", target="<= 0.7 s")
    figure("airflow-training run / torchrun", median([r[1] / r[2] for r in rows]), "x")
