"""A process of a training loads no more of the hook than it needs, and never fails by it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_training.agent.library import library_path
from airflow_training.agent.package import portable_agent
from airflow_training.interception.module_changes import after_method
from airflow_training.interception.parameters import ParameterWatch
from airflow_training.interception.protocol import PARAMETERS, PARAMETERS_NAME
from airflow_training.interception.starting import PARAMETER_MODULES

OLDEST = sorted(Path.home().glob(".pyenv/versions/3.[89].*/bin/python"))
EVERY_PROCESS = {"module_changes", "protocol", "starting"}


def run(
    script: str, folder: Path, *options: str, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """Run a script as in a pod: the hook is in the agent's program, and tells parameters."""
    program = folder / "agent.pyz"
    program.write_bytes(portable_agent())
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    told = {PARAMETERS: "tell", "TRAINING_PROGRESS_FILE": str(folder / "progress.jsonl")}
    return subprocess.run(
        [python, *options, "-c", script],
        cwd=folder,
        env={**variables, **told, "PYTHONPATH": library_path(str(program), told)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_who_reads_parameters_is_loaded_for_all_modules_that_it_changes():
    assert {*PARAMETER_MODULES} == {*ParameterWatch("", after_method).changes()}


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("script", "more"),
    [("pass", set()), ("import argparse", {"parameters"}), ("import dataclasses", {"parameters"})],
)
def test_where_only_parameters_are_told_a_process_loads_what_reads_them_once_there_are_some(
    script, more, tmp_path
):
    done = run(script, tmp_path, "-X", "importtime")
    assert done.returncode == 0
    loaded = {*re.findall(r"\| +airflow_training\.interception\.(\w+)$", done.stderr, re.M)}
    assert loaded == EVERY_PROCESS, "and what is loaded later is imported under no name"
    beside = {*re.findall(r"\| +(contextlib|importlib\.util)$", done.stderr, re.M)}
    assert bool(beside) == bool(more), "as that import costs more than the hook itself"


@pytest.mark.e2e
@pytest.mark.parametrize("python", OLDEST, ids=lambda each: each.parents[1].name)
def test_in_a_pod_with_the_oldest_python_parameters_are_told(python, tmp_path):
    script = "import argparse; p = argparse.ArgumentParser(); p.add_argument('--lr', default=3); p.parse_args([])"
    done = run(script, tmp_path, python=str(python))
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    told = json.loads((tmp_path / PARAMETERS_NAME).read_text())
    assert told == {"from": "argparse", "values": {"lr": 3}}


@pytest.mark.e2e
def test_a_program_trains_on_where_the_hook_was_taken_away_meanwhile(tmp_path):
    script = "import os; os.unlink('agent.pyz'); import argparse, dataclasses; print(argparse.ArgumentParser().parse_args([]))"
    done = run(script, tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("Namespace()\n", "", 0)
