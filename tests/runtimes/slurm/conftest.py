"""One cluster for all tests of this folder, and a login node of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.runtimes.slurm.lab import SEARCH, Lab, missing, running_lab
from tests.runtimes.slurm.ssh_server import SshServer, missing_ssh, running_ssh_server


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    why = missing()
    if why:
        pytest.skip(why)
    with running_lab(tmp_path_factory.mktemp("slurm")) as lab:
        yield lab


@pytest.fixture(scope="session")
def rest_url(lab: Lab) -> str:
    """Return where slurmrestd answers."""
    if shutil.which("slurmrestd", path=SEARCH) is None:
        pytest.skip("slurmrestd is not installed")
    path = lab.folder / "rest.sock"
    lab.start_rest(f"unix:{path}")
    return f"unix://{path}"


@pytest.fixture
def login_node(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    why = missing_ssh()
    if why:
        pytest.skip(why)
    env = {"SLURM_CONF": str(lab.conf), "PATH": SEARCH}
    with running_ssh_server(tmp_path_factory.mktemp("login"), env) as server:
        yield server
