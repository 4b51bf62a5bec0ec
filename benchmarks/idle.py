"""200 running jobs of 5 instances in one process: CPU while nothing happens, memory per job."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from airflow_training.control.first_ledger import new_ledger
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole, RunKey
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.state.store import Store
from airflow_training.supervise.loop import Supervisor
from benchmarks.report import figure, heading

JOBS = 200
IDLE_SECONDS = 20


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def job(number: int) -> ResolvedJob:
    return ResolvedJob(
        name=f"idle{number}",
        runtime="memory",
        roles=(
            ResolvedRole(name="master", replicas=1, chief=True, template=TEMPLATE),
            ResolvedRole(name="worker", replicas=4, rank_offset=1, template=TEMPLATE),
        ),
    )


TEMPLATE = {"spec": {"containers": [{"name": "main", "command": ["sleep", "inf"]}]}}


async def measure(folder: str, jobs: int) -> tuple[float, int]:
    """Return the share of a core used while idle, and resident bytes with all jobs running."""
    store = Store(f"sqlite:///{folder}/store-{jobs}.db")
    runtime = MemoryRuntime()
    loops = []
    for number in range(jobs):
        resolved = job(number)
        ledger = new_ledger(resolved, now=store.now(), activate_all=True)
        key = RunKey(source="bench", run_id=f"{number}")
        record = store.create_run(key, resolved, ledger, controller="bench", queue=False)
        supervisor = Supervisor(
            store=store, runtime=runtime, run_uid=record.uid, owner=f"bench/{number}"
        )
        loops.append(asyncio.ensure_future(supervisor.run()))
    deadline = time.monotonic() + 120
    while any(run.state != "Running" for run in await asyncio.to_thread(store.runs, limit=jobs)):
        if time.monotonic() > deadline:
            raise TimeoutError("not all jobs run")
        await asyncio.sleep(0.5)
    await asyncio.sleep(5)
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.sleep(IDLE_SECONDS)
    share = (time.process_time() - cpu) / (time.perf_counter() - wall)
    for loop in loops:
        loop.cancel()
    await asyncio.gather(*loops, return_exceptions=True)
    return share, resident_bytes()


def main() -> None:
    """Measure one job and all jobs in processes of their own: the difference is what a job costs."""
    heading(f"{JOBS} jobs of 5 instances in one process")
    with tempfile.TemporaryDirectory() as folder:
        few, many = (
            subprocess.run(
                [sys.executable, "-m", "benchmarks.idle", folder, str(count)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout.split()
            for count in (1, JOBS)
        )
    share = float(many[0])
    per_job = (int(many[1]) - int(few[1])) / (JOBS - 1)
    figure("CPU while idle", share * 100, "% of a core", target="<= 2 %")
    figure("memory per job", per_job / 1000, "KB", target="<= 100 KB")


if __name__ == "__main__":
    print(*asyncio.run(measure(sys.argv[1], int(sys.argv[2]))))
