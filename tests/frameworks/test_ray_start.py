"""The program that starts a node of Ray: what it does beside Ray itself, which stands in here as a program that waits."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.frameworks.samples import a_resolved_job, rendering_of
from tests.waiting import PATIENCE

OPTION = '--labels=it\'s "é😀"\\'
RAY = """
import os, subprocess, sys
from pathlib import Path
here = Path(__file__).parent
(here / "options").write_text("\\n".join(sys.argv))
subprocess.run([str(here / "raylet"), str(os.getppid())])
"""
WORK = """
import os, subprocess, sys, time
orphan = subprocess.run(["sh", "-c", "sleep 0.1 >&- & echo $!"], capture_output=True, text=True).stdout.strip()
while os.path.exists("/proc/" + orphan):  # also while it is a zombie
    time.sleep(0.05)
sys.exit(int(sys.argv[1]))
"""


def files_of(role: str, **spec: Any) -> dict[str, str]:
    job = a_resolved_job("ray", {"head": 1, "worker": 1}, runtime="local", **spec)
    return dict(rendering_of(job, role).files().files)


@pytest.mark.parametrize("role", ["head", "worker"])
def test_a_raylet_that_is_left_out_of_one_look_has_not_ended(role):
    program: dict[str, Any] = {"__file__": "start.py"}
    text = files_of(role)["ray/start.py"]
    exec(text.partition("\nif importlib.util")[0], program)  # all but its start
    looks: list[set[str]] = [set(), {"raylet"}, {"gcs_server"}, set(), {"raylet"}, *[set()] * 3]
    program["names_below"] = lambda _: looks.pop(0)
    raylet = program["Raylet"](SimpleNamespace(poll=lambda: None, pid=1))
    assert [raylet.is_gone() for _ in range(8)] == [False] * 7 + [True]


@pytest.mark.e2e
def test_a_head_buries_what_has_lost_its_parent_and_ends_with_the_code_of_its_command(
    tmp_path: Path,
):
    files = files_of("head", parameters={"headOptions": [OPTION], "minWorkers": 0})
    package = tmp_path / "ray"
    (package / "scripts").mkdir(parents=True)
    for path, text in files.items():
        (tmp_path / path).write_text(text)
    init = "def init(**_): pass\ndef nodes(): return [{'Alive': True}]\n"
    (package / "__init__.py").write_text(init)
    (package / "scripts" / "__init__.py").touch()
    (package / "scripts" / "scripts.py").write_text(RAY)
    raylet = package / "scripts" / "raylet"
    raylet.write_text("#!/bin/sh\nwhile kill -0 $1; do sleep 1; done\n")
    raylet.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, str(package / "start.py"), sys.executable, "-c", WORK, "3"],
            env={**os.environ, "PYTHONPATH": str(tmp_path), "RAY_ADDRESS": address},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 3, done.stderr
    assert OPTION in (package / "scripts" / "options").read_text().splitlines()
