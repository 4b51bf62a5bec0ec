"""A command that leaves processes everywhere, and what tests ask of processes."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from airflow_training.control.observations import Observation
from tests.contracts.runtime import Harness, watching
from tests.runtimes.local_runs import alive, attempt_folder, python_script
from tests.waiting import wait_until

# A command that leaves behind whatever a program can leave: a child in a session of its own, an
# orphan of two forks, all of them deaf to TERM; it writes their pids to a file.
HYDRA = """
import os, signal, sys, time
def linger(name):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with open(os.path.join(os.environ["TRAINING_INSTANCE_DIR"], name + ".tmp"), "w") as f:
        f.write(str(os.getpid()))
    os.rename(f.name, f.name[:-4])
    time.sleep(3600)
if os.fork() == 0:
    os.setsid()
    linger("own-session.pid")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        linger("orphan.pid")
    os._exit(0)
linger("main.pid")
"""


def pids_of(folder: Path) -> list[int]:
    names = ("own-session.pid", "orphan.pid", "main.pid")
    wait_until(lambda: all((folder / name).exists() for name in names))
    return [int((folder / name).read_text()) for name in names]


def kill_and_wait(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid))


def start_sleeper(**environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "3600"], env={**os.environ, **environment})


async def run_hydra(harness: Harness, tmp_path: Path) -> list[int]:
    await harness.runtime.create([harness.spec("sleeper", command=python_script(HYDRA))])
    return pids_of(attempt_folder(tmp_path, harness, "sleeper").path)


async def observe(harness: Harness) -> Observation:
    async with watching(harness.runtime, harness.run) as seen:
        return seen.now["sleeper", 0]
