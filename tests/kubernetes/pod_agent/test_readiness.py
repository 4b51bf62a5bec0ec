"""What the agent in a pod waits for before it starts the command, as a real process."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from airflow_training.agent.devices import COMMAND
from airflow_training.agent.order import Order
from airflow_training.control.readiness import required_hardware
from airflow_training.documents.resolved_blocks import ResolvedCheckpoint
from tests.kubernetes.pod_agent.programs import agent, last_words
from tests.kubernetes.samples import a_job
from tests.waiting import PATIENCE, wait_until


def test_the_command_starts_once_its_port_can_be_bound(program, python):
    """Of a pod that stays: what is left of the connections of the attempt before keeps the port."""
    binds = "import os, socket; socket.socket().bind(('', int(os.environ['PORT'])))"
    with socket.create_server(("", 0)) as before:
        port = str(before.getsockname()[1])
        order = Order(ports={"first": int(port)})
        with agent(python, program, order, "run", "--", python, "-c", binds, PORT=port) as process:
            assert process.stderr is not None
            said = process.stderr.readline()
            assert f"waits until port {port} is free" in said
            before.close()
            assert process.wait(PATIENCE) == 0


NPU = '[{"id": "0", "name": "NPU"}]'


def readiness(tmp_path: Path, *, progress_uri: str = "", **more: Any) -> Order:
    asked = required_hardware(
        a_job(checkpoint=ResolvedCheckpoint(uri="s3://b/c")), {"nvidia.com/gpu": "1"}
    )
    assert asked is not None
    return Order(
        progress_file=str(tmp_path / "progress"),
        progress_uri=progress_uri,
        termination_log=str(tmp_path / "log"),
        readiness={**asked.to_document(), "timeout_seconds": 30.0, **more},
    )


def test_run_starts_the_command_once_all_is_there(tmp_path, program, python):
    there = tmp_path / "there"
    env = {COMMAND: f"if [ -e {there} ]; then echo '{NPU}'; else echo '[]'; fi"}
    command = ["sh", "-c", f"test -e {there} && echo started"]
    with agent(python, program, readiness(tmp_path), "run", "--", *command, **env) as process:
        assert process.stderr is not None
        assert "devices: 0 of 1 are there" in process.stderr.readline()
        there.touch()
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "started\n"), err
    assert "checked: node, devices, memory, disk" in err


def test_run_does_not_start_the_command_where_something_stays_away(tmp_path, program, python):
    order = readiness(tmp_path, timeout_seconds=0.5)
    env = {COMMAND: "echo '[]'"}
    with agent(
        python, program, order, "run", "--", "touch", tmp_path / "started", **env
    ) as process:
        assert process.wait(PATIENCE) == 1
    assert last_words(tmp_path)["reason"] == "EnvironmentNotReady"
    assert "devices: 0 of 1 are there" in last_words(tmp_path)["message"]
    assert not (tmp_path / "started").exists()


def test_run_ends_when_it_is_told_to_while_it_looks(tmp_path, program, python):
    pid = tmp_path / "pid"
    env = {COMMAND: f"echo $$ > {pid}; exec sleep 600"}
    with agent(python, program, readiness(tmp_path), "run", "--", "true", **env) as process:
        wait_until(lambda: pid.exists() and pid.read_text().strip())
        process.terminate()
        assert process.wait(PATIENCE) == 143
    hung = Path("/proc", pid.read_text().strip())
    wait_until(lambda: not hung.exists() or "\nState:\tZ" in (hung / "status").read_text())


def test_the_first_record_has_the_devices_that_were_found(tmp_path, program, python):
    """What an attempt had is what the next one has to find."""
    uri = f"file://{tmp_path / 'told'}"
    order = readiness(tmp_path, progress_uri=uri)
    env = {COMMAND: f"echo '{NPU}'"}
    with agent(python, program, order, "run", "--", "sleep", "600", **env) as process:
        record = tmp_path / "environment.jsonl"
        try:
            wait_until(lambda: record.exists() and "\n" in record.read_text())
            first = json.loads(record.read_text().splitlines()[0])
        finally:
            process.terminate()  # with its command
            process.wait(PATIENCE)
    assert first["on"] == "start"
    assert [each["name"] for each in first["devices"]] == ["NPU"]


def test_run_ends_when_it_is_told_to_while_its_port_is_taken(tmp_path, program, python):
    with socket.create_server(("", 0)) as before:
        order = Order(ports={"first": before.getsockname()[1]})
        with agent(python, program, order, "run", "--", "touch", tmp_path / "started") as process:
            assert process.stderr is not None
            assert "is free" in process.stderr.readline()
            process.terminate()
            assert process.wait(PATIENCE) == 143
    assert not (tmp_path / "started").exists()
