"""Every framework, trained for real: one kill costs one restart, and the model is there at the end."""

from __future__ import annotations

import shutil
from importlib.util import find_spec

import pytest

from tests.trainings.jobs import ENVIRONMENTS, TRAININGS, Running, running

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

MODULES = {"custom": "json", "pytorch": "torch", "torchrun": "torch", "huggingface": "transformers"}


def with_marks(name: str, *sample: str, soak: tuple[str, ...] = ()) -> object:
    """`sample` and `soak`: those that `make e2e` and `make soak` run, not only `make frameworks`."""
    marks = [] if name in sample else [pytest.mark.soak if name in soak else pytest.mark.frameworks]
    if name == "mpi":
        no_mpi = shutil.which("mpicc") is None
        marks.append(pytest.mark.skipif(no_mpi, reason="no mpicc (libopenmpi-dev)"))
    elif not (ENVIRONMENTS / (TRAININGS[name].environment or name)).exists():
        missing = find_spec(MODULES.get(name, name)) is None
        marks.append(pytest.mark.skipif(missing, reason="`make frameworks` brings it"))
    return pytest.param(name, marks=marks, id=name)


EVERY = [with_marks(n, "mpi", "xgboost", "lightgbm") for n in TRAININGS]


def restarts(run: Running) -> int:
    return sum(run.status["restarts"].values())


@pytest.mark.parametrize("name", EVERY)
def test_a_killed_process_costs_one_restart(name, tmp_path):
    with running(TRAININGS[name], tmp_path) as run:
        run.until(run.trains)
        run.kill(run.training.victim, "process")
        (run.folder / "closed").unlink()
        assert run.wait() == 0, run.said()
        ended_well(run)
        assert restarts(run) == 1, run.said()


# MPI is the sample: it starts at once
@pytest.mark.parametrize("name", [with_marks(n, "mpi", soak=("xgboost",)) for n in TRAININGS])
def test_a_killed_agent_costs_one_restart(name, tmp_path):
    with running(TRAININGS[name], tmp_path) as run:
        run.until(run.trains)
        run.kill(run.training.victim, "agent")
        (run.folder / "closed").unlink()
        assert run.wait() == 0, run.said()
        ended_well(run)
        assert restarts(run) == 1, run.said()


def ended_well(run: Running) -> None:
    """Assert what holds of every training that has succeeded, whatever happened before."""
    assert run.status["state"] == "Succeeded", run.said()
    assert (run.folder / "out" / "model").stat().st_size > 0
    assert (run.folder / "checkpoint").read_text().split("\n")[0] == "12", run.said()
    assert not (run.folder / "doubled").exists(), "two processes of one rank lived at once"
    assert run.alive() == []
