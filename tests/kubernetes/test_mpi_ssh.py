"""The ssh of an MPI job for real: the framework's scripts, the run's keys, no privileges."""

from __future__ import annotations

import base64
import contextlib
import os
import pwd
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from airflow_training.runtimes.kubernetes.objects import ssh_secret_document
from tests.frameworks.samples import a_resolved_job
from tests.kubernetes.samples import RUN, an_instance
from tests.ports import free_port
from tests.waiting import PATIENCE, wait_until

SSHD = shutil.which("sshd") or next((p for p in ("/usr/sbin/sshd",) if Path(p).exists()), None)


def _has_sshd() -> bool:
    if SSHD is None or not shutil.which("ssh"):
        return False
    return os.getuid() != 0 or any(user.pw_name == "sshd" for user in pwd.getpwall())


needs_sshd = pytest.mark.skipif(not _has_sshd(), reason="needs an installed ssh and sshd")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with /etc/mpi and /training as the pods of a run have them."""
    port = free_port()
    job = a_resolved_job("mpi", {"launcher": 1, "worker": 1}, runtime="kubernetes")
    (tmp_path / "training").mkdir()
    keys = tmp_path / "etc" / "mpi" / "ssh"
    keys.mkdir(parents=True)
    for name, content in ssh_secret_document(RUN, record_uid="u")["data"].items():
        (keys / name).write_bytes(base64.b64decode(content))
        (keys / name).chmod(0o444)  # as the Secret is mounted: too open for ssh as it is
    for role in ("launcher", "worker"):
        for path, text in an_instance(job, role).files.items():
            moved = text.replace("/training/", f"{tmp_path}/training/").replace("2222", str(port))
            target = tmp_path / path.lstrip("/")
            target.write_text(moved.replace("/etc/mpi/", f"{tmp_path}/etc/mpi/"))
            target.chmod(0o755)
    (tmp_path / "port").write_text(str(port))
    return tmp_path


@pytest.mark.e2e
@needs_sshd
def test_a_command_runs_in_the_workers_own_environment(place):
    script = place / "etc/mpi/ssh.sh"
    environment = {
        **os.environ,
        "PATH": f"{Path(str(SSHD)).parent}:/usr/bin:/bin",
        "ODD": 'a\'b "c"\n$x',
    }
    server = subprocess.Popen(
        ["/bin/sh", place / "etc/mpi/sshd.sh"], env=environment, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(
            lambda: listens(place / "port"), "sshd listens", alive=lambda: server.poll() is None
        )
        done = subprocess.run(
            [
                "/bin/sh",
                script,
                "-x",
                "-o",
                "ConnectionAttempts=9",
                "localhost",
                'printf %s "$ODD"; exit 7',
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    finally:
        server.kill()
        server.wait()
    assert (done.returncode, done.stdout, done.stderr) == (7, environment["ODD"], "")


@pytest.mark.e2e
@pytest.mark.parametrize(
    "written",
    [
        pytest.param({"model.pt": "m", "a b/c": "c", ".hidden": "h"}, id="files"),
        pytest.param({}, id="nothing"),
    ],
)
def test_the_launcher_fetches_what_rank_0_has_written_into_its_pod(place, tmp_path, written):
    """The remote shell of the job runs what it is given in the worker's environment."""
    theirs, ours = tmp_path / "worker", tmp_path / "launcher"
    for folder in (theirs, ours):
        folder.mkdir()
    for name, text in written.items():
        (theirs / name).parent.mkdir(exist_ok=True)
        (theirs / name).write_text(text)
    (ours / "own").write_text("o")
    remote = (
        f'#!/bin/sh\necho "$1" > {tmp_path}/host\nTRAINING_OUTPUT_DIR={theirs} exec sh -c "$2"\n'
    )
    (place / "etc/mpi/ssh.sh").write_text(remote)
    environment = {**os.environ, "TRAINING_OUTPUT_DIR": str(ours)}
    subprocess.run(
        ["/bin/sh", place / "etc/mpi/output.sh"], env=environment, check=True, timeout=PATIENCE
    )
    found = {p.relative_to(ours).as_posix(): p.read_text() for p in ours.rglob("*") if p.is_file()}
    assert found == {**written, "own": "o"}
    assert "worker-0" in (tmp_path / "host").read_text()


@pytest.mark.e2e
@pytest.mark.parametrize("script", ["exit 3", "echo half; exit 0"])
def test_an_output_that_does_not_arrive_whole_is_a_failure(place, tmp_path, script):
    (place / "etc/mpi/ssh.sh").write_text(f"#!/bin/sh\n{script}\n")
    done = subprocess.run(
        ["/bin/sh", place / "etc/mpi/output.sh"],
        env={**os.environ, "TRAINING_OUTPUT_DIR": str(tmp_path)},
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode


def test_a_name_that_is_not_known_yet_is_waited_for(place, tmp_path):
    """`getent` fails twice, then the name is known; then ssh is started with the run's keys."""
    tools = tmp_path / "tools"
    tools.mkdir()
    fakes = {
        "getent": f'echo "$2" >> {tmp_path}/asked; [ $(wc -l < {tmp_path}/asked) -gt 2 ]',
        "sleep": ":",
        "ssh": f'printf "%s\\n" "$@" > {tmp_path}/called',
    }
    for name, script in fakes.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    subprocess.run(
        ["/bin/sh", place / "etc/mpi/ssh.sh", "-x", "-o", "A=b", "me@host-1", "orted", "-x", "y"],
        env={"PATH": f"{tools}:/usr/bin:/bin"},
        check=True,
        timeout=PATIENCE,
    )
    assert (tmp_path / "asked").read_text().split() == ["host-1"] * 3
    called = (tmp_path / "called").read_text().split("\n")
    assert called[-8:-1] == ["-x", "-o", "A=b", "me@host-1", "orted", "-x", "y"]
    key = Path(called[called.index("-i") + 1])
    assert key.stat().st_mode & 0o077 == 0


def listens(port: Path) -> bool:
    """Return whether somebody listens on the port that a file tells."""
    with contextlib.suppress(OSError, ValueError):
        socket.create_connection(("127.0.0.1", int(port.read_text()))).close()
        return True
    return False
