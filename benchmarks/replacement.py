"""From the death of a process to its replacement running, on the local runtime, without backoff."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import figure, heading, median, quantile

ROUNDS = 60

JOB = """
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {{name: replace}}
spec:
  framework: custom
  command: [{python}, -S, -c, {script}]
  roles:
    - {{name: worker, replicas: 2, restartPolicy: OnFailure, backoffLimit: 1000}}
  restart:
    maxRestarts: 1000
    backoff: {{initialSeconds: 0}}
"""

# Each attempt writes its pid and the time at which its first statement ran.
SCRIPT = (
    "import os,time;"
    "open(os.environ['MARKS'],'a').write('%s %d %.6f\\n' % (os.environ['TRAINING_INDEX'],"
    " os.getpid(), time.time()));"
    "time.sleep(3600)"
)


def marks(path: Path) -> list[tuple[int, int, float]]:
    """Return (index, pid, time) of every attempt that started so far."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(i), int(p), float(t)) for i, p, t in (line.split() for line in lines)]


def wait_for(path: Path, count: int) -> list[tuple[int, int, float]]:
    deadline = time.monotonic() + 30
    while len(found := marks(path)) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} of {count} instances started")
        time.sleep(0.002)
    return found


def main() -> None:
    heading("Replacement of a dead process")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        path = home / "marks"
        job = JOB.format(python=sys.executable, script=json.dumps(SCRIPT))
        job = job.replace("  roles:", f"  env: [{{name: MARKS, value: {path}}}]\n  roles:")
        (home / "job.yaml").write_text(job)
        run = subprocess.Popen(
            [sys.executable, "-m", "airflow_training.cli", "run", str(home / "job.yaml")],
            env={**os.environ, "AIRFLOW_HOME": str(home)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            started = wait_for(path, 2)
            times = []
            for _ in range(ROUNDS):
                time.sleep(0.05)
                _, pid, _ = started[-1]
                killed = time.time()
                os.kill(pid, signal.SIGKILL)
                started = wait_for(path, len(started) + 1)
                times.append((started[-1][2] - killed) * 1e3)
        finally:
            run.send_signal(signal.SIGINT)
            run.wait(60)
    figure("process killed to replacement's first statement, median", median(times), "ms")
    figure("the same, p95", quantile(times, 0.95), "ms", target="<= 250 ms")
