"""A look inside a pod whose job has failed: its agent stays as the main process, the training is gone."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
import yaml

from airflow_training.runtimes import terminal
from airflow_training.runtimes.kubernetes.shell import _talk, exit_code_of
from airflow_training.runtimes.port import Streams
from tests.cli.conftest import COMMAND
from tests.kubernetes.emulator import Cluster
from tests.kubernetes.test_command_line import Shell
from tests.waiting import PATIENCE, wait_until

TRAIN = """
import os, pathlib, sys, time
rank = int(os.environ["TRAINING_INDEX"])
pathlib.Path("/training/left").write_text("state of %d" % rank)
time.sleep(1 if rank == 1 else 600)
print("ValueError: this sample is empty", file=sys.stderr, flush=True)
sys.exit(7)
"""


@pytest.mark.parametrize(
    ("status", "code"),
    [
        pytest.param({"status": "Success"}, 0, id="success"),
        pytest.param(
            {
                "status": "Failure",
                "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
            },
            3,
            id="its-own",
        ),
        pytest.param({"status": "Failure", "message": "no such container"}, None, id="never-ran"),
    ],
)
def test_the_last_word_of_a_command_says_how_it_ended(status: dict[str, Any], code: int | None):
    assert exit_code_of(status) == code


class Socket:
    """Takes what is sent at its leisure; the command ends with its input."""

    protocol = "v5.channel.k8s.io"

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.ended = asyncio.Event()

    async def send_bytes(self, data: bytes) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        self.log.append("sent")
        if data[0] == 255:
            self.ended.set()

    async def __aiter__(self) -> AsyncIterator[Any]:
        await self.ended.wait()
        yield SimpleNamespace(data=b'\x03{"status": "Success"}')


async def test_of_a_long_input_no_more_is_read_than_is_sent(monkeypatch: pytest.MonkeyPatch):
    log: list[str] = []
    pieces = [b"x" * 1000] * 5

    def read(descriptor: int, most: int) -> bytes:
        log.append("read")
        return pieces.pop() if pieces else b""

    monkeypatch.setattr(terminal, "os", SimpleNamespace(read=read))
    streams = Streams()
    with anyio.fail_after(PATIENCE):
        assert await _talk(cast("Any", Socket(log)), streams) == 0
    assert log == ["read", "sent"] * 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(kubelet="processes") as cluster:
        yield cluster


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Shell:
    return Shell(tmp_path, cluster.write_kubeconfig(tmp_path / "kubeconfig"))


def failed(shell: Shell, name: str, *, seconds: float = 600, **spec: Any) -> dict[str, Any]:
    """Run a job of which worker 1 fails; return its status."""
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "framework": "custom",
            "image": "trainer:1",
            "command": ["python3", "-c", TRAIN],
            "restart": {"maxRestarts": 0, "keepFailedSeconds": seconds},
            "roles": [{"name": "worker", "replicas": 2}],
            **spec,
        },
    }
    (shell.home / "job.yaml").write_text(yaml.safe_dump(document))
    done = shell("run", "job.yaml", "--runtime", "kubernetes", "--run-id", name, "-o", "json")
    assert done.returncode == 1, done.stderr
    status: dict[str, Any] = json.loads(done.stdout)
    assert status["state"] == "Failed"
    return status


def pods_of(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    return [
        pod
        for pod in cluster.control.list("pods", namespace="default")
        if pod["metadata"]["labels"].get("app.kubernetes.io/name") == name
    ]


def phases(cluster: Cluster, name: str) -> dict[str, str]:
    """Return index -> phase of the pods that a job has left."""
    return {
        pod["metadata"]["labels"]["airflow-training/index"]: pod["status"]["phase"]
        for pod in pods_of(cluster, name)
    }


@pytest.mark.e2e
@pytest.mark.usefixtures("route")
def test_the_pod_of_the_instance_that_failed_first_can_be_looked_into(
    shell: Shell, cluster: Cluster
):
    status = failed(shell, "looked", cleanPodPolicy="All")
    assert (status["kept"]["state"], status["kept"]["index"]) == ("stays", 1)
    assert phases(cluster, "looked") == {"1": "Running"}
    told = shell("shell", "looked", "--", "sh", "-c", "cat /training/left; echo bad >&2; exit 3")
    assert (told.stdout, told.stderr, told.returncode) == ("state of 1", "bad\n", 3)
    processes = shell(
        "shell", "looked", "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
    )
    assert "pathlib" not in processes.stdout.replace(TRAIN, "") or "agent" in processes.stdout

    cleaned = shell("sweep", "--dry-run", "-o", "json")
    assert [each["why"] for each in json.loads(cleaned.stdout)["swept"]] == [
        "its failed instance stays for a look inside"
    ]
    killed = shell("kill", "looked")
    assert killed.returncode == 0, killed.stderr
    assert phases(cluster, "looked") == {}
    assert json.loads(shell("status", "looked", "-o", "json").stdout)["kept"]["state"] == "ended"
    gone = shell("shell", "looked", "--", "true")
    assert gone.returncode == 2
    assert "nothing of worker-1 lives any more" in gone.stderr


@pytest.mark.e2e
@pytest.mark.usefixtures("route")
def test_its_own_timer_ends_it_and_a_sweep_takes_away_what_is_left(shell: Shell, cluster: Cluster):
    failed(shell, "timed", seconds=3, cleanPodPolicy="All")
    wait_until(lambda: phases(cluster, "timed") == {"1": "Failed"}, "its time is over")
    (pod,) = pods_of(cluster, "timed")
    terminated = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert terminated["exitCode"] == 7, "it ends as its command did"


@pytest.mark.e2e
@pytest.mark.usefixtures("route")
def test_a_terminal_is_a_terminal_in_the_pod(shell: Shell, cluster: Cluster):
    failed(shell, "typed")
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 41, 97, 0, 0))
    before = termios.tcgetattr(theirs)
    mine = {"AIRFLOW_HOME": str(shell.home), "KUBECONFIG": str(shell.kubeconfig)}
    process = subprocess.Popen(
        [*COMMAND, "shell", "typed"], stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True, env={**os.environ, **mine},
    )  # fmt: skip
    said = bytearray()

    def hear(*texts: bytes) -> bool:
        while select.select([ours], [], [], 0)[0]:
            said.extend(os.read(ours, 1 << 16))
        return all(text in said for text in texts)

    try:
        os.write(ours, b"stty size; cat /training/left\n")
        wait_until(lambda: hear(b"41 97", b"state of 1"), seen=lambda: bytes(said))
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
        os.kill(process.pid, 28)  # as a terminal that is made smaller tells it
        os.write(ours, b"while [ \"$(stty size)\" != '20 60' ]; do sleep 0.1; done; exit 5\n")
        assert process.wait(PATIENCE) == 5
    finally:
        process.kill()
        process.wait()
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    os.close(ours)


@pytest.mark.e2e
def test_where_no_agent_can_tell_that_it_waits_that_is_said_before_and_after(
    shell: Shell, cluster: Cluster
):
    status = failed(shell, "mute")
    assert status["kept"]["state"] == "impossible"
    shown = shell("status", "mute").stdout
    assert "worker-1 does not stay: its agent has ended with it" in " ".join(shown.split())


@pytest.mark.e2e
@pytest.mark.usefixtures("route")
def test_who_may_not_is_told_the_rule_to_add(shell: Shell, cluster: Cluster):
    failed(shell, "secret")
    cluster.control.add_user("looker", token="looker")
    cluster.control.bind(
        [
            {
                "kind": "Role",
                "metadata": {"name": "looker", "namespace": "default"},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}],
            },
            {
                "kind": "RoleBinding",
                "metadata": {"name": "looker", "namespace": "default"},
                "roleRef": {"kind": "Role", "name": "looker"},
                "subjects": [{"kind": "User", "name": "looker"}],
            },
        ]
    )
    cluster.write_kubeconfig(shell.kubeconfig, token="looker")
    refused = shell("shell", "secret", "--", "true")
    assert refused.returncode == 2
    assert "resources: [pods/exec], verbs: [create, get]" in refused.stderr
