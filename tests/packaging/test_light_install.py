"""The wheel alone, with what it declares: no Airflow, no Kubernetes, and the command line works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]

JOB = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: hello}
spec:
  framework: custom
  command: [sh, -c, "echo hello"]
  roles: [{name: worker, replicas: 2}]
"""


def _needed(names: list[str]) -> Iterator[Distribution]:
    """Yield the installed distributions that requirements ask for, at any depth."""
    seen: set[str] = set()
    while names:
        requirement = Requirement(names.pop())
        extras = requirement.extras or {""}
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = distribution(requirement.name)
        except PackageNotFoundError:  # for another platform
            continue
        if found.metadata["Name"] in seen:
            continue
        seen.add(found.metadata["Name"])
        yield found
        for each in map(Requirement, found.requires or ()):
            marker = each.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
                each.marker = None
                names.append(str(each))


def _link(found: Distribution, site: Path) -> None:
    for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(found.locate_file(top))))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment that holds the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("light")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    venv.create(folder / "venv", with_pip=False)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (info,) = site.glob("airflow_training-*.dist-info")
    required = Distribution.at(info).requires or []
    for found in _needed([each for each in required if "extra ==" not in each]):
        _link(found, site)
    return folder / "venv" / "bin" / "python"


@pytest.fixture
def light(python: Path, tmp_path: Path):
    """Return a function that types a command in an empty folder."""
    (tmp_path / "job.yaml").write_text(JOB, encoding="utf-8")
    environment = {
        "AIRFLOW_HOME": str(tmp_path / "home"),
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
    }

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(python), *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )

    return run


@pytest.mark.e2e
def test_a_job_is_checked_run_and_read_without_airflow(light):
    training = ("-m", "airflow_training.cli")
    for command in (
        ("validate", "job.yaml"),
        ("explain", "job.yaml"),
        ("schema",),
        ("frameworks", "list"),
        ("run", "job.yaml", "--run-id", "one"),
        ("status", "one"),
        ("events", "one"),
        ("logs", "diagnose", "one"),
        ("list",),
    ):
        done = light(*training, *command)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert "Traceback" not in done.stderr
    status = json.loads(light(*training, "status", "one", "--output", "json").stdout)
    assert status["state"] == "Succeeded"
    assert "worker-1 | hello" in light(*training, "logs", "show", "one", "--merge").stdout


def test_what_needs_airflow_says_so(light):
    done = light("-c", "from airflow_training import training")
    assert "ImportError: Airflow 3.3 or newer is needed here, and none is installed" in done.stderr
    assert "pip install 'airflow-training[airflow]'" in done.stderr


def test_what_needs_the_client_of_kubernetes_says_so(light):
    command = ("run", "job.yaml", "--runtime", "kubernetes", "--set", "spec.image=busybox")
    done = light("-m", "airflow_training.cli", *command)
    assert done.returncode == 2
    assert "pip install 'airflow-training[kubernetes]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_the_pages_need_is_named(light):
    done = light("-m", "airflow_training.cli", "ui", "--no-browser")
    assert done.returncode == 2
    assert "pip install 'airflow-training[ui]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_older_airflow_is_named(light, python: Path):
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    info = site / "apache_airflow_core-3.1.8.dist-info"
    info.mkdir()
    try:
        (info / "METADATA").write_text("Name: apache-airflow-core\nVersion: 3.1.8\n", "utf-8")
        done = light("-c", "import airflow_training.plugin")
    finally:
        (info / "METADATA").unlink(missing_ok=True)
        info.rmdir()
    assert "needs Airflow 3.3 or newer, and Airflow 3.1.8 is installed" in done.stderr
