"""Jobs of the command line on Slurm, as people run them."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from tests.runtimes.slurm.command_runs import ECHO, home, logs, start
from tests.waiting import wait_until

__all__ = ["home"]

pytestmark = pytest.mark.soak


def test_a_driver_that_is_killed_again_and_again_doubles_nothing(home, lab):
    (home / "job.yaml").write_text(ECHO % "sleep 15")
    began = time.monotonic()
    for number in range(8):
        run = start("run", "job.yaml", "--run-id", "one")
        time.sleep(0.6 + 0.35 * number)  # at another point each time: that is what is tried out
        run.send_signal(signal.SIGKILL)
        run.communicate()
    run = start("run", "job.yaml", "--run-id", "one")
    said = run.communicate()[0]
    assert run.returncode == 0, said
    assert set(logs(home)) == {
        f"{name} attempt-0.0.0" for name in ("master-0", "worker-0", "worker-1")
    }
    submitted = list(home.glob("training/slurm/*/allocations/*/submitted.json"))
    assert len(submitted) == 1, (said, time.monotonic() - began)
    wait_until(lambda: not lab.jobs())


def test_who_stops_a_run_leaves_nothing(home, lab):
    (home / "job.yaml").write_text(ECHO % "sleep 600")
    run = start("run", "job.yaml", "--run-id", "one")
    wait_until(lambda: sum("rank" in text for text in logs(home).values()) == 3)
    run.send_signal(signal.SIGINT)
    said = run.communicate()[0]
    assert "Stopped" in said
    wait_until(lambda: not lab.jobs())
    left = subprocess.run(
        ["pgrep", "-f", f"{home}.*/attempt-"], capture_output=True, text=True, check=False
    )
    assert left.stdout.split() == [], os.environ["AIRFLOW_HOME"]
