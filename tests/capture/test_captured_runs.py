"""What was captured of each import fixture runs elsewhere, with nothing but Python's own library beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from airflow_training.capture.command import capture_command
from airflow_training.capture.layout import lay_out, tree_of
from airflow_training.capture.model import CapturedCommand, Tree
from airflow_training.capture.project import ProjectCapture, capture_project
from tests.capture.import_fixtures import FIXTURES, ImportFixture


def capture(fixture: ImportFixture, folder: Path) -> ProjectCapture:
    root = fixture.write(folder)
    if "libs.zip" in fixture.python_path:
        with zipfile.ZipFile(folder / "libs.zip", "w") as archive:
            for path in (folder / "zipped").iterdir():
                archive.write(path, f"zipped/{path.name}")
    working_dir = folder / fixture.working_dir
    return capture_project(
        root,
        capture_command(fixture.argv, root=root, working_dir=working_dir, environ={}),
        working_dir=working_dir,
        python_path=[folder / each for each in fixture.python_path],
        site_dirs=[folder / "site" / "site-packages"],
    )


def run(command: CapturedCommand, folder: Path) -> subprocess.CompletedProcess[str]:
    entry = (
        ["-m", command.entry]
        if command.kind == "module"
        else [str(folder / "project" / command.entry)]
    )
    return subprocess.run(
        [sys.executable, "-S", *entry, *command.args],
        cwd=folder / command.working_dir,
        env={"PYTHONPATH": os.pathsep.join(str(folder / each) for each in command.import_paths)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda each: each.name)
def test_it_runs_where_only_the_tree_is(fixture, tmp_path):
    captured = capture(fixture, tmp_path / "here")
    captured.check()
    there = tmp_path / "there"
    lay_out(captured.tree, there, captured.read)
    assert tree_of(there).digest == captured.tree.digest
    assert Tree.from_json(captured.tree.to_json()).digest == captured.tree.digest
    (tmp_path / "here").rename(tmp_path / "gone")
    done = run(captured.command, there)
    assert (done.returncode, done.stderr) == (0, "")
