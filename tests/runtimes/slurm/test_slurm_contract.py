"""Slurm keeps the contract of the port, on a real cluster of one machine, also where it is logged in to."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airflow_training.documents.resolved import RunRef
from airflow_training.runtimes.slurm.login.ssh_login import SshLogin
from airflow_training.runtimes.slurm.rest import RestCluster
from airflow_training.runtimes.slurm.runtime import SlurmRuntime
from airflow_training.settings import user_name
from tests.contracts.runtime import JOB, Harness, RuntimeContract
from tests.runtimes.local_runs import COMMANDS
from tests.runtimes.slurm.lab import Lab
from tests.runtimes.slurm.ssh_server import SshServer
from tests.runtimes.slurm.test_slurm_login import login_harness
from tests.waiting import until

pytestmark = pytest.mark.soak


@contextlib.asynccontextmanager
async def slurm_harness(lab: Lab, runtime: SlurmRuntime) -> AsyncIterator[Harness]:
    run = RunRef(uid=secrets.token_hex(10), job="contract", namespace="default", controller="tests")
    await runtime.prepare(run, JOB)
    try:
        yield Harness(runtime=runtime, run=run, commands=COMMANDS)
    finally:
        await runtime.remove(run)
        # the last process of a job says so before it leaves
        await until(lambda: not lab.jobs())


class TestSlurm(RuntimeContract):
    @pytest.fixture
    async def harness(self, lab: Lab, tmp_path: Path) -> AsyncIterator[Harness]:
        async with slurm_harness(lab, SlurmRuntime(root=tmp_path)) as harness:
            yield harness


class TestSlurmByLogin(RuntimeContract):
    @pytest.fixture
    async def harness(
        self, lab: Lab, login_node: SshServer, tmp_path: Path
    ) -> AsyncIterator[Harness]:
        login = SshLogin.parse(login_node.address(tmp_path))
        async with login_harness(lab, login) as harness:
            yield harness


class TestSlurmByRest(RuntimeContract):
    @pytest.fixture
    async def harness(self, lab: Lab, rest_url: str, tmp_path: Path) -> AsyncIterator[Harness]:
        cluster = RestCluster(url=rest_url, user=user_name())
        async with slurm_harness(lab, SlurmRuntime(root=tmp_path, cluster=cluster)) as harness:
            yield harness
