"""A person trains a ranking on data of their own without code, edits the network, and takes the training home."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.airflow.pages import OURS, launched, signed_in
from tests.airflow.stack import Airflow
from tests.airflow.without_code import train_without_code, write_lists
from tests.waiting import PATIENCE
from tests.web.site import CHROMIUM, check_page

pytest.importorskip("playwright.sync_api")
pytest.importorskip("torch")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


def test_from_files_of_ones_own_to_a_folder_that_trains_elsewhere(airflow: Airflow, tmp_path: Path):
    airflow.stack.wait_dag(airflow.client, "training_job")
    write_lists(tmp_path / "lists")
    with launched() as browser, signed_in(browser, airflow, "admin") as page:
        folder = train_without_code(
            page,
            airflow.stack.url,
            lists=tmp_path / "lists",
            to=tmp_path,
            look=lambda page, name: check_page(page, name, within=OURS),
        )
    python = _python_without_us(tmp_path / "elsewhere")
    environment = {"PATH": "/usr/bin:/bin"}
    absent = subprocess.run(
        [python, "-c", "import airflow_training"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'airflow_training'" in absent.stderr
    done = subprocess.run(
        [python, "train.py", "--epochs", "2"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ndcg" in done.stdout
    assert "dense3" in (folder / "model/net.py").read_text()
    assert "| ndcg |" in (folder / "model/README.md").read_text()


def _python_without_us(folder: Path) -> Path:
    """An interpreter that finds the installed packages, but not this one, which is installed by a link."""
    venv.create(folder)
    place = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(place, "installed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / Path(sys.executable).name
