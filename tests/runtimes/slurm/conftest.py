"""One cluster for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runtimes.slurm.lab import Lab, missing, running_lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    why = missing()
    if why:
        pytest.skip(why)
    with running_lab(tmp_path_factory.mktemp("slurm")) as lab:
        yield lab
