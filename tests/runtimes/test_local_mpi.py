"""A real `mpirun` over two workers of the local runtime: no sshd, made-up host names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from airflow_training.control.observations import Observation
from airflow_training.runtimes.port import InstanceSpec
from tests.contracts.runtime import Harness, watching
from tests.runtimes.local_runs import attempt_folder
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        shutil.which("mpirun") is None, reason="Open MPI is not installed (openmpi-bin)"
    ),
]
# What the mpi framework gives its launcher on the local runtime.
LAUNCHER_ENV = {
    "MPI_HOSTFILE": "$(TRAINING_INSTANCE_DIR)/mpi/hostfile",
    "OMPI_MCA_orte_default_hostfile": "$(MPI_HOSTFILE)",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_plm_rsh_agent": "$(TRAINING_REMOTE_SHELL)",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_MCA_oob_tcp_if_include": "lo",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
WORKER_ENV = {
    # Two workers on one machine: their shared-memory files would have the same names.
    "OMPI_MCA_btl_sm_backing_directory": "$(TRAINING_INSTANCE_DIR)",
    "OMPI_MCA_btl_vader_backing_directory": "$(TRAINING_INSTANCE_DIR)",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_MCA_oob_tcp_if_include": "lo",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def launcher(harness: Harness, *command: str) -> InstanceSpec:
    hosts = [f"{harness.run.prefix}-sleeper-{i}" for i in range(2)]
    return harness.spec(
        "quick",
        command=command,
        env=LAUNCHER_ENV,
        files={"mpi/hostfile": "".join(f"{host} slots=2\n" for host in hosts)},
    )


def ended(now: dict[tuple[str, int], Observation]) -> bool:
    return ("quick", 0) in now and now["quick", 0].finished_at is not None


async def start_workers(harness: Harness) -> None:
    for i in range(2):
        spec = harness.spec("sleeper", i, env={**WORKER_ENV, "WORKER": str(i)})
        await harness.runtime.create([spec])


def printed_by_ranks(said: str) -> list[str]:
    """Lines of the ranks alone: on a busy machine Open MPI adds that its shared store was not
    there yet, and goes on."""
    return sorted(line for line in said.splitlines() if "PMIX ERROR" not in line)


async def test_mpirun_starts_its_ranks_inside_the_workers(harness: Harness, tmp_path: Path) -> None:
    await start_workers(harness)
    rank = "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on worker $WORKER"
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([launcher(harness, "mpirun", "-np", "4", "sh", "-c", rank)])
        await seen.until(ended)
        said = attempt_folder(tmp_path, harness, "quick").log.read_text()
        assert seen.now["quick", 0].state == "succeeded", said
    assert printed_by_ranks(said) == [
        "rank 0 of 4 on worker 0",
        "rank 1 of 4 on worker 0",
        "rank 2 of 4 on worker 1",
        "rank 3 of 4 on worker 1",
    ]


RING = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int rank, size, sum, token;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &token, 1, MPI_INT,
                 (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("rank %d sum %d from %d\\n", rank, sum, token);
    if (argc > 1) abort();
    MPI_Finalize();
    return 0;
}
"""


def compile_ring(folder: Path) -> Path:
    source, program = folder / "ring.c", folder / "ring"
    source.write_text(RING)
    subprocess.run(["mpicc", str(source), "-o", str(program)], check=True)
    return program


@pytest.mark.skipif(shutil.which("mpicc") is None, reason="no mpicc (libopenmpi-dev)")
async def test_ranks_in_different_workers_talk_to_each_other(
    harness: Harness, tmp_path: Path
) -> None:
    program = compile_ring(tmp_path)
    await start_workers(harness)
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([launcher(harness, "mpirun", "-np", "4", str(program))])
        await seen.until(ended)
        said = attempt_folder(tmp_path, harness, "quick").log.read_text()
        assert seen.now["quick", 0].state == "succeeded", said
    assert printed_by_ranks(said) == [
        f"rank {rank} sum 6 from {(rank - 1) % 4}" for rank in range(4)
    ]


@pytest.mark.skipif(shutil.which("mpicc") is None, reason="no mpicc (libopenmpi-dev)")
async def test_a_rank_that_dies_fails_the_launcher_and_leaves_nothing(
    harness: Harness, tmp_path: Path
) -> None:
    program = compile_ring(tmp_path)
    await start_workers(harness)
    async with watching(harness.runtime, harness.run) as seen:
        command = ("mpirun", "-np", "4", str(program), "die")
        await harness.runtime.create([launcher(harness, *command)])
        await seen.until(ended)
        assert seen.now["quick", 0].state == "failed"
        assert seen.now["sleeper", 0].state == "running"
    wait_until(lambda: not marked_by(program))


def marked_by(program: Path) -> list[str]:
    done = subprocess.run(
        ["pgrep", "-f", str(program)], capture_output=True, text=True, check=False
    )
    return done.stdout.split()
