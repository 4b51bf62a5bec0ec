"""An instance that ran out of memory gets more of it, and the run says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import job_file

pytestmark = pytest.mark.e2e

SCRIPT = """\
grep -h . /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/memory.max 2>/dev/null; ulimit -d
if [ $TRAINING_ATTEMPT = 0 ]; then
  echo 'Memory cgroup out of memory: Killed process 31415 (python3) total-vm:74012344kB'
  exit 1
fi
"""


def test_the_next_attempt_gets_more_and_status_tells_what_to_write(command, home):
    path = job_file(
        Path("job.yaml"),
        ("worker", 1),
        command=["sh", "-c", SCRIPT],
        resources={"limits": {"memory": "256Mi"}},
        restart={"backoff": {"initialSeconds": 0.05}, "onOutOfMemory": {"upTo": "1Gi"}},
    )
    done = command("run", str(path), "--run-id", "hungry")
    assert done.code == 0, done.stderr
    assert "ran out of 256Mi of memory: the next attempt asks for 384Mi (upTo 1Gi)" in done.stderr
    logs = [
        command("logs", "show", "hungry", "--role", "worker", "--attempt", str(n)).stdout.split()
        for n in range(2)
    ]
    for words, mib in zip(logs, (256, 384), strict=True):  # bytes of a group, KiB of a process
        assert {str(mib << 20), str(mib << 10)} & set(words)
    status = command("status", "hungry", "-o", "json").json
    assert status["instances"][0]["memory_bytes"] == 384 << 20
    (advice,) = status["advice"]
    assert advice.endswith("set resources.limits.memory of worker to 384Mi")
    shown = command("status", "hungry").stdout
    assert f"next time: {advice}" in " ".join(shown.split())
