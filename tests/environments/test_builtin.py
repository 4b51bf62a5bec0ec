"""The built-in environment has files of its own: what is written to them is not written to what is installed."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from airflow_training.environments.builtin import builtin_environment, have_builtin
from airflow_training.environments.command import main
from airflow_training.environments.orders import BuiltinSource, EnvironmentOrder
from tests.environments.wheels import write_wheel

pytestmark = pytest.mark.e2e


@pytest.fixture
def source(tmp_path: Path) -> BuiltinSource:
    """A folder in which a small package of our name is installed, with another one that it needs."""
    site = tmp_path / "site-packages"
    write_wheel(tmp_path / "wheels", "airflow_training", "1.0", requires=["tinyone"])
    write_wheel(tmp_path / "wheels", "tinyone", "1.0", {"more.py": "X = 1\n"})
    for wheel in (tmp_path / "wheels").iterdir():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    os.utime(site / "tinyone" / "more.py", (1e9, 1e9))
    package = str(site / "airflow_training")
    return BuiltinSource(package=package, paths=[str(site)], python=sys.executable)


def test_a_training_that_writes_into_its_packages_changes_nothing_installed(source, tmp_path):
    digest = builtin_environment(source).digest
    found = have_builtin(source, digest, tmp_path / "cache")
    assert list(found.installed) == ["airflow-training==1.0", "tinyone==1.0"]
    installed = Path(source.paths[0]) / "tinyone" / "more.py"
    (own,) = (tmp_path / "cache").glob("*/lib/python*/site-packages/tinyone/more.py")
    assert own.stat().st_ino != installed.stat().st_ino
    assert own.stat().st_mtime == installed.stat().st_mtime
    own.write_text("X = 2\n")
    assert installed.read_text() == "X = 1\n"
    assert builtin_environment(source).digest == digest
    assert not have_builtin(source, digest, tmp_path / "cache").cached  # it is made anew
    assert own.read_text() == "X = 1\n"


def test_the_start_of_an_instance_sees_what_was_written_to(source, tmp_path, capsys):
    digest = builtin_environment(source).digest
    order = EnvironmentOrder(name="builtin", version="1.0", digest=digest, source=source)
    document = json.dumps({"environment": order.to_json(), "cache": str(tmp_path / "cache")})

    def start() -> Any:
        assert main(document, lambda _: pytest.fail("no storage is asked")) == 0
        return json.loads(capsys.readouterr().out)

    assert not start()["cached"]
    made = start()
    assert made["cached"]
    (own,) = (tmp_path / "cache").glob("*/lib/python*/site-packages/tinyone/more.py")
    assert Path(made["python"]).parent.parent.name == made["digest"] == own.parents[4].name
    own.write_text("X = 2\n")
    assert not start()["cached"]
    assert own.read_text() == "X = 1\n"
    own.unlink()
    assert not start()["cached"]
    (tmp_path / "cache" / made["digest"] / "environment.json").write_text("{}")
    assert not start()["cached"]
