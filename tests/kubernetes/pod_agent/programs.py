"""The agent of a pod as a real process, on each Python that it has to run on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent.order import ORDER_VARIABLE, Order


def pythons() -> list[Any]:
    """Return this Python, and the oldest that the agent has to run on, where there is one."""
    found = [pytest.param(sys.executable, id="this-python")]
    old = [*Path.home().glob(".pyenv/versions/3.8.*/bin/python3.8")]
    with contextlib.suppress(TypeError):
        old.append(Path(shutil.which("python3.8")))  # type: ignore[arg-type]
    for each in old:
        probe = subprocess.run([each, "-c", "pass"], check=False, capture_output=True)
        if probe.returncode == 0:
            return [*found, pytest.param(str(each), id="python-3.8")]
    return found


@contextlib.contextmanager
def agent(
    python: str, program: Path, order: Order, *arguments: object, **env: str
) -> Iterator[subprocess.Popen[str]]:
    """Start the agent; it is gone at the end, whatever happened."""
    ordered = {ORDER_VARIABLE: order.text()}
    process = subprocess.Popen(
        [python, "-I", "-S", str(program), *map(str, arguments)],
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **ordered, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def last_words(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "log").read_text())["airflow-training"]
    return found
