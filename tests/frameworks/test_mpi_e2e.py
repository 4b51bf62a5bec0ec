"""The mpi framework on this machine: hostfile, remote shell and folders fit together for real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.frameworks.samples import a_document
from tests.waiting import PATIENCE

pytestmark = pytest.mark.e2e


def run(tmp_path: Path, home: Path, command: list[str], **parameters: Any) -> dict[str, Any]:
    """Run an MPI job of two workers to its end and return its status."""
    document = a_document("mpi", {"launcher": 1, "worker": 2}, parameters=parameters)
    document["spec"] |= {"command": command, "runtime": {"name": "local"}}
    document["spec"]["restart"] = {"maxRestarts": 0}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [
            sys.executable, "-c", "from airflow_training.cli.main import main; main()",
            "run", "job.yaml", "--run-id", "first", "--output", "json",
        ],
        cwd=tmp_path,
        env={**os.environ, "AIRFLOW_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    status: dict[str, Any] = json.loads(done.stdout)
    return status


def log_of_launcher(home: Path) -> str:
    (log,) = home.glob("training/*/launcher-0/attempt-*/log")
    return log.read_text()


# What mpirun does first: start something on every host of the hostfile through the agent.
EVERY_HOST = """
while read -r host slots; do
  "$OMPI_MCA_plm_rsh_agent" -x "$host" 'echo "$TRAINING_ROLE $TRAINING_INDEX '"$slots"'"'
done < "$OMPI_MCA_orte_default_hostfile"
"""


def test_the_agent_reaches_every_host_of_the_hostfile(tmp_path, airflow_home):
    status = run(tmp_path, airflow_home, ["sh", "-c", EVERY_HOST], slotsPerWorker=3)
    assert status["state"] == "Succeeded"
    assert log_of_launcher(airflow_home).splitlines() == ["worker 0 slots=3", "worker 1 slots=3"]


# A program that needs no MPI library, only what mpirun tells each rank.
RANK = """
rank="${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"
echo "rank $rank of ${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}"
echo "by rank $rank" >> "$TRAINING_OUTPUT_DIR/model"
"""


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun")
def test_mpirun_works_without_sshd(tmp_path, airflow_home):
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True)
    status = run(
        tmp_path,
        airflow_home,
        ["mpirun", "-n", "4", "sh", "-c", RANK],
        implementation="OpenMPI" if "Open MPI" in version.stdout else "MPICH",
        slotsPerWorker=2,
    )
    assert status["state"] == "Succeeded"
    said = log_of_launcher(airflow_home).splitlines()
    assert sorted(line for line in said if line.startswith("rank")) == [
        f"rank {rank} of 4" for rank in range(4)
    ]
    # ranks live in the workers, and still write where the launcher's output is taken from
    (model,) = airflow_home.glob("training/*/launcher-0/attempt-*/output/model")
    assert sorted(model.read_text().splitlines()) == [f"by rank {rank}" for rank in range(4)]
