"""The mpi framework over several nodes of Slurm: its launcher reaches workers on other nodes, through Slurm alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.runtimes.slurm.command_runs import home, logs, start
from tests.runtimes.test_local_mpi import compile_ring
from tests.waiting import wait_until

__all__ = ["home"]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        shutil.which("mpirun") is None, reason="Open MPI is not installed (openmpi-bin)"
    ),
]
# two nodes of 8 CPUs: each worker has one of its own, the launcher is beside one of them
JOB = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: ring}
spec:
  framework: mpi
  parameters: {slotsPerWorker: 2}
  command: [mpirun, -n, "4", sh, -c, '%s']
  restart: {maxRestarts: 0}
  runtime: {name: slurm, options: {partition: main, time: "30"}}
  %s
  roles:
    - {name: launcher, resources: {limits: {cpu: "1"}}}
    - {name: worker, replicas: 2, resources: {limits: {cpu: "5"}}}
"""
GANG = "schedulingPolicy: {gang: slurm}"
TELLS = "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $SLURMD_NODENAME; echo made >> $TRAINING_OUTPUT_DIR/made"


@pytest.mark.parametrize(
    "gang",
    [
        pytest.param(GANG, id="components-of-one-allocation"),
        pytest.param("", id="allocations-of-their-own"),
    ],
)
def test_ranks_start_inside_workers_on_other_nodes(home, lab, gang):
    (home / "job.yaml").write_text(JOB % (TELLS, gang))
    run = start("run", "job.yaml", "--run-id", "one")
    said = run.communicate()[0]
    printed = logs(home)
    assert run.returncode == 0, (said, printed)
    lines = sorted(line for line in printed["launcher-0 attempt-0.0.0"].splitlines() if line)
    assert [line.rpartition(" ")[0] for line in lines] == [f"rank {i} of 4 on" for i in range(4)]
    nodes = [line.rpartition(" ")[2] for line in lines]
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3]
    wait_until(lambda: not lab.jobs())


@pytest.mark.skipif(shutil.which("mpicc") is None, reason="no mpicc (libopenmpi-dev)")
@pytest.mark.parametrize("cpus", [pytest.param(5, id="two-nodes"), pytest.param(1, id="one-node")])
def test_ranks_of_two_workers_talk_to_each_other(home, lab, cpus):
    text = JOB % (compile_ring(home), GANG)
    text = text.replace("sh, -c, ", "").replace('cpu: "5"', f'cpu: "{cpus}"')
    (home / "job.yaml").write_text(text)
    run = start("run", "job.yaml", "--run-id", "one")
    said = run.communicate()[0]
    printed = logs(home)
    assert run.returncode == 0, (said, printed)
    lines = sorted(printed["launcher-0 attempt-0.0.0"].splitlines())
    assert lines == [f"rank {rank} sum 6 from {(rank - 1) % 4}" for rank in range(4)]
    wait_until(lambda: not list(Path("/dev/shm").glob("airflow-training.*")))


def test_a_rank_that_fails_restarts_all_in_their_allocation(home, lab):
    tried = home / "tried"
    fails_once = (
        f"test $OMPI_COMM_WORLD_RANK != 3 || test -e {tried} || {{ touch {tried}; exit 7; }}"
    )
    text = JOB % (f"{fails_once}; echo rank $OMPI_COMM_WORLD_RANK", GANG)
    text = text.replace("{maxRestarts: 0}", "{maxRestarts: 1, backoff: {initialSeconds: 0}}")
    (home / "job.yaml").write_text(text)
    run = start("run", "job.yaml", "--run-id", "one")
    said = run.communicate()[0]
    printed = logs(home)
    assert run.returncode == 0, (said, printed)
    assert printed["launcher-0 attempt-0.1.1"].count("rank ") == 4, (said, printed)
    assert len(list(home.glob("training/slurm/*/allocations/*/submitted.json"))) == 1
    wait_until(lambda: not lab.jobs())
