"""Jobs of the command line on Slurm, as people run them."""

from __future__ import annotations

import os
import re
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


def test_a_job_longer_than_its_limit_goes_on_in_a_new_allocation_from_what_it_saved(home, lab):
    """It is told ahead of the end, saves, and the next allocation begins with what it has saved."""
    state = home / "state"
    saves = f'trap "echo 7 >{state}; exit 143" TERM'
    works = f"test -e {state} && echo goes on from $(cat {state}) && exit 0; while :; do sleep 0.1; done"
    text = (ECHO % f"{saves}; {works}").replace('time: "30"', 'time: "1", signalSeconds: 50')
    text = text.replace("    - {name: worker, replicas: 2}\n", "")
    text = text.replace("restart: {", "restart: {maxRestarts: 0, ")
    (home / "job.yaml").write_text(text)
    run = start("run", "job.yaml", "--run-id", "one")
    said = run.communicate()[0]
    assert run.returncode == 0, said
    assert "SlurmTimeLimit" in said
    printed = logs(home)
    assert set(printed) == {"master-0 attempt-0.0.0", "master-0 attempt-0.0.1"}
    assert "goes on from 7" in printed["master-0 attempt-0.0.1"]
    jobs = {re.findall(r"job (\d+)", each)[0] for each in printed.values()}
    assert len(jobs) == 2
    wait_until(lambda: not lab.jobs())
