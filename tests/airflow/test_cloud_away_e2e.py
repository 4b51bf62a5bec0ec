"""`cloud run` where Airflow is away, or goes while something is sent: it is named with the next command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.airflow.conftest import run_airflow
from tests.airflow.stack import Airflow
from tests.airflow.test_cloud_e2e import DAG, SCRIPT, begun, dag_runs, log_in, typed
from tests.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    with run_airflow(tmp_path_factory.mktemp("away"), path="/airflow") as running:
        running.stack.wait_dag(running.client, DAG)
        yield running


@pytest.fixture
def project(tmp_path: Path, airflow_home: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "pkg").mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "pkg" / "__init__.py").write_text("width = 3\n")
    return folder


@pytest.fixture
def api_server(airflow: Airflow) -> Iterator[None]:
    """It is there again at the end."""
    yield
    if "api-server" not in airflow.stack.processes:
        start_again(airflow)


def start_again(airflow: Airflow) -> None:
    def answers() -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{airflow.stack.url}/api/v2/version", timeout=PATIENCE).is_success
        return False

    airflow.stack.start("api-server")
    wait_until(answers, "the API server answers")
    airflow.connect()


def test_an_airflow_that_is_away_is_named_and_nothing_is_begun(airflow, project, api_server):
    log_in(airflow, project)
    before = dag_runs(airflow)
    airflow.crash("api-server", restart=False)
    code, _, said = typed("run", "train.py", cwd=project)
    assert code == 1, said
    assert f"{airflow.stack.url} does not answer" in said
    assert "airflow-training cloud targets" in said
    assert dag_runs(airflow) == before


def test_an_airflow_that_goes_while_something_is_sent_is_named_and_nothing_is_begun(
    airflow, project, api_server
):
    log_in(airflow, project)
    before = dag_runs(airflow)
    for number in range(30):
        path = project / "text" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{number} " * 500_000)
    sending = begun("run", "train.py", cwd=project)
    content = airflow.stack.home / "training-cloud" / "airflow" / "content"
    wait_until(
        lambda: content.exists() and sum(each.is_file() for each in content.rglob("*")) > 3,
        alive=lambda: sending.poll() is None,
    )
    airflow.crash("api-server", restart=False)
    _, said = sending.communicate(timeout=PATIENCE)
    assert sending.returncode == 1, said
    assert "next: " in said
    assert dag_runs(airflow) == before


def test_an_airflow_that_goes_during_a_run_is_waited_for(airflow, project, api_server, tmp_path):
    """What the run does meanwhile is shown once it is back; its exit code and its model come, too."""
    log_in(airflow, project)
    end = tmp_path / "end"
    running = begun("run", "train.py", "--until", str(end), cwd=project)
    assert running.stdout is not None
    assert running.stdout.readline().startswith("rank 0")
    airflow.crash("api-server", restart=False)
    end.touch()
    start_again(airflow)
    out, said = running.communicate(timeout=2 * PATIENCE)
    assert (running.returncode, out) == (0, ""), said
    assert (project / "out/model.pt").read_bytes() == b"weights"


def test_an_airflow_that_is_away_after_a_run_keeps_what_it_has_left(
    airflow, project, api_server, tmp_path
):
    """A run that ended while nobody could be asked: `cloud logs` names that, and later brings its model."""
    log_in(airflow, project)
    end = tmp_path / "end"
    code, out, said = typed("run", "--detach", "train.py", "--until", str(end), cwd=project)
    assert code == 0, said
    run = out.strip()
    wait_until(
        lambda: "Running" in [e.state for e in airflow.store.runs() if e.key.run_id == run],
        "the training runs",
        alive=lambda: not airflow.dead(),
    )
    airflow.crash("api-server", restart=False)
    end.touch()
    code, _, said = typed("logs", run, cwd=project)
    assert code == 1, said
    assert f"{airflow.stack.url} does not answer" in said
    assert "next: " in said
    start_again(airflow)
    code, out, said = typed("logs", run, cwd=project)
    assert (code, out.startswith("rank 0")) == (0, True), said
    assert (project / "out/model.pt").read_bytes() == b"weights"
