"""The image of the examples, built from its Dockerfile where there is an engine that can."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NAME = "airflow-training/digits:e2e"


def engine() -> str:
    """Return a program that builds and runs images; skips the test where none does."""
    for program in ("docker", "podman"):
        if shutil.which(program) is None:
            continue
        if subprocess.run([program, "info"], capture_output=True, check=False).returncode == 0:
            return program
    pytest.skip("neither docker nor podman works here")


def test_the_image_of_the_examples_is_built_and_trains():
    program = engine()
    built = [program, "build", "-f", "docker/digits.Dockerfile", "-t", NAME, "."]
    subprocess.run(built, cwd=ROOT, check=True)
    values = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500}
    given = [f"--env={key}={value}" for key, value in values.items()]
    command = [program, "run", "--rm", *given, "--env=TRAINING_OUTPUT_DIR=/tmp", NAME]
    done = subprocess.run(
        [*command, "python", "train.py", "--epochs", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "trained by 1 ranks" in done.stdout, done.stderr
