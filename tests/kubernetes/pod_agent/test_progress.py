"""Where the agent in a pod reports a command's progress, as a real process."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from airflow_training.agent.files import write_json
from airflow_training.agent.order import Order
from tests.kubernetes.pod_agent.programs import agent
from tests.waiting import PATIENCE, wait_until


class Callback(HTTPServer):
    """Keeps what was posted."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, str, dict[str, Any]]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/runs/x/progress"


class _Handler(BaseHTTPRequestHandler):
    server: Callback

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append((self.path, self.headers["Authorization"], json.loads(body)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def callback() -> Iterator[Callback]:
    server = Callback()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


SCRIPT = """
echo '{"step": 1}' >> "$FILE"; echo '{"step": 2}' >> "$FILE"; printf '{"step": 3' >> "$FILE"
test -z "$TRAINING_CALLBACK_TOKEN"
"""


def test_run_posts_the_newest_progress_with_its_token(tmp_path, program, python, callback):
    progress = tmp_path / "progress.jsonl"
    order = Order(progress_file=str(progress), progress_url=callback.url)
    env = {
        "TRAINING_CALLBACK_TOKEN": "secret",
        "TRAINING_ROLE": "worker",
        "TRAINING_INDEX": "3",
        "TRAINING_ATTEMPT": "1",
        "TRAINING_JOB_ATTEMPT": "0",
        "FILE": str(progress),
    }
    with agent(python, program, order, "run", "--", "sh", "-c", SCRIPT, **env) as process:
        assert process.wait(PATIENCE) == 0  # also: the command does not see the token
    path, authorization, body = callback.posted[-1]
    assert (path, authorization) == ("/runs/x/progress", "Bearer secret")
    record = json.loads(body.pop("environment"))
    assert (record["on"], record["exit"]) == ("exit", {"exit_code": 0, "signal": None})
    kept = (tmp_path / "environment.jsonl").read_text().splitlines()
    assert json.loads(kept[-1]) == record, "a checkpoint can name it"
    assert body == {
        "role": "worker",
        "index": "3",
        "attempt": "1",
        "job_attempt": "0",
        "progress": {"step": 2},
    }


def test_without_a_callback_progress_is_left_in_storage(tmp_path, program, python):
    progress, target = tmp_path / "progress.jsonl", tmp_path / "out.progress" / "worker-0.json"
    order = Order(progress_file=str(progress), progress_uri=f"file://{target}")
    env = {"FILE": str(progress), "TRAINING_INDEX": "0"}
    with agent(python, program, order, "run", "--", "sh", "-c", SCRIPT, **env) as process:
        assert process.wait(PATIENCE) == 0
    assert json.loads(target.read_text())["progress"] == {"step": 2}


def test_training_goes_on_when_nobody_takes_its_reports(tmp_path, program, python):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        progress = tmp_path / "p"
        order = Order(progress_file=str(progress), progress_url=url)
        env = {"FILE": str(progress)}
        with agent(python, program, order, "run", "--", "sh", "-c", SCRIPT, **env) as process:
            _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert err.count("cannot report progress") == 1


def test_what_is_stopped_before_it_began_waits_for_the_next_attempt(
    tmp_path, program, python, callback
):
    orders = tmp_path / "orders"
    order = Order(
        orders_file=str(orders),
        in_place_seconds=PATIENCE,
        progress_file=str(tmp_path / "progress.jsonl"),
        progress_url=callback.url,
    )
    write_json(orders, {"turn": 0, "do": "stop", "grace_seconds": 30, "dump_stacks": False})
    began = ["touch", str(tmp_path / "began")]
    with agent(python, program, order, "run", "--", *began, TRAINING_POD_UID="pod") as process:
        wait_until(lambda: callback.posted, alive=lambda: process.poll() is None)
        turn = json.loads(callback.posted[-1][2]["environment"])["turn"]
        told = {"number": 0, "pod": "pod", "waits": True, "reason": "Stopped", "exit_code": None}
        assert {name: turn[name] for name in told} == told
        follows = {"turn": 0, "do": "restart", "attempt": "0.0.1", "env": {}}
        write_json(orders, {**follows, "command": ["sh", "-c", "exit 3"]})
        wait_until(lambda: len(callback.posted) > 1, alive=lambda: process.poll() is None)
        turn = json.loads(callback.posted[-1][2]["environment"])["turn"]
        write_json(orders, {"turn": 1, "do": "leave"})
        assert process.wait(PATIENCE) == 3
    assert turn["number"] == 1
    assert not (tmp_path / "began").exists()
