"""The sample of Slurm in `make test`: one gang, with a member that fails once."""

from __future__ import annotations

import re

import pytest

from tests.runtimes.slurm.command_runs import ECHO, FAILS_ONCE, home, logs, start
from tests.waiting import wait_until

__all__ = ["home"]

pytestmark = pytest.mark.e2e


def test_a_gang_trains_and_restarts_a_member_in_its_allocation(home, lab):
    (home / "job.yaml").write_text(ECHO % FAILS_ONCE)
    run = start("run", "job.yaml", "--run-id", "one")
    said = run.communicate()[0]
    assert run.returncode == 0, said
    assert "InstanceRestarted" in said
    printed = logs(home)
    assert set(printed) == {
        "master-0 attempt-0.0.0",
        "worker-0 attempt-0.0.0",
        "worker-0 attempt-0.0.1",
        "worker-1 attempt-0.0.0",
    }
    assert "rank 1 of 3, master at 127.0.0.1" in printed["worker-0 attempt-0.0.1"]
    jobs = {re.findall(r"job (\d+)", text)[0] for text in printed.values()}
    assert len(jobs) <= 2  # components have numbers of their own
    wait_until(lambda: not lab.jobs())
