"""A controller of many jobs in one process, which goes on where one that was killed has stopped.

    python -m tests.runtimes.slurm.many_jobs FOLDER COUNT

Every job is a gang of four tasks, each of which leaves one line. Ends with 0 once all have succeeded.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import yaml

from airflow_training.admission.check import check_text
from airflow_training.admission.launch import launch
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.runtimes.slurm.runtime import SlurmRuntime
from airflow_training.state.store import Store
from airflow_training.supervise.loop import Supervisor
from airflow_training.supervise.owners import new_owner

TASKS = 4


def job_of(folder: Path) -> ResolvedJob:
    """Return the job whose tasks say who they are, in one write."""
    line = "echo $TRAINING_RUN_ID.$TRAINING_INDEX.$TRAINING_ATTEMPT"
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "many"},
        "spec": {
            "framework": "custom",
            "command": ["sh", "-c", f"{line} >>{folder}/ran"],
            "roles": [{"name": "worker", "replicas": TASKS}],
            "schedulingPolicy": {"gang": "slurm"},
            "runtime": {"options": {"time": "600"}},
        },
    }
    (checked,) = check_text(yaml.safe_dump(document), runtime="slurm", run_uid="x" * 20)
    assert checked.resolved is not None, checked.problems
    return checked.resolved


def key_of(number: int) -> RunKey:
    return RunKey(source="cli", run_id=f"many-{number}")


async def drive_all(folder: Path, count: int) -> bool:
    """Return whether all succeeded."""
    store = Store(f"sqlite:///{folder}/store.db")
    runtime = SlurmRuntime(root=folder / "runs")
    job = job_of(folder)

    async def drive(number: int) -> str:
        key = key_of(number)
        record = await asyncio.to_thread(
            lambda: launch(job, key=key, store=store, controller="tests", activate_all=True)
        )
        return await Supervisor(
            store=store, runtime=runtime, run_uid=record.uid, owner=new_owner()
        ).run()

    states = await asyncio.gather(*map(drive, range(count)))
    print(sorted(set(states)))
    return set(states) == {"Succeeded"}


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(drive_all(Path(sys.argv[1]), int(sys.argv[2]))) else 1)
