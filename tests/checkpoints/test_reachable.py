"""Whether a store would take and give checkpoints now, asked before a start: on disk and on an S3 emulator."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_training.agent.preflight import PreflightCheck
from airflow_training.checkpoints.errors import StoreRefused
from airflow_training.checkpoints.keys import SaveId, manifest_key
from airflow_training.checkpoints.reachable import find_problem
from airflow_training.control.readiness import required_hardware
from tests.builders import job, role
from tests.checkpoints.stores import DictStore, Full
from tests.waiting import wait_until

if TYPE_CHECKING:
    from werkzeug.serving import BaseWSGIServer


class Unreadable(DictStore):
    """A store that takes everything and gives back no manifest."""

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        if key.startswith("manifests/"):
            raise OSError(5, "Input/output error")
        return super().read(key, start, size)


class Lossy(DictStore):
    """A store that gives back something else than was written."""

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        return b""


class Closed(DictStore):
    """A store that takes nothing."""

    def create(self, key: str, data: object) -> None:
        raise PermissionError(13, "Permission denied")


NEWEST = manifest_key(SaveId(9, 1))


def test_a_store_that_takes_and_gives_is_left_as_it_was():
    store = DictStore({NEWEST: b"{}"})
    assert find_problem(store) == ""
    assert store.objects == {NEWEST: b"{}"}


@pytest.mark.parametrize(
    ("store", "text"),
    [
        pytest.param(Closed(), "Permission denied", id="takes-nothing"),
        pytest.param(Lossy(), "does not show what was just written", id="forgets"),
        pytest.param(Unreadable({NEWEST: b"{}"}), "Input/output error", id="gives-nothing"),
    ],
)
def test_what_is_wrong_with_a_store_is_told(store, text):
    assert text in find_problem(store)
    assert [key for key in store.objects if key.startswith("probes/")] == []


def test_room_for_shards_is_not_tried():
    """It would cost what a checkpoint costs; the save itself says so."""
    assert find_problem(Full()) == ""


def test_a_bucket_is_asked_by_a_process_of_its_own(s3_root):
    command = [sys.executable, "-m", "airflow_training.checkpoints.reachable"]
    done = subprocess.run([*command, f"{s3_root}/0"], capture_output=True, check=True)
    assert json.loads(done.stdout) == {"error": ""}
    missing = f"{s3_root.rpartition('/')[0]}-no-such/0"
    done = subprocess.run([*command, missing], capture_output=True, check=True)
    assert "NoSuchBucket" in json.loads(done.stdout)["error"] or "does not exist" in str(
        done.stdout
    )


def test_an_address_without_a_driver_is_an_error_of_its_own():
    with pytest.raises(StoreRefused, match="no driver"):
        find_problem("nowhere://bucket")


@pytest.mark.timeout(120)
def test_a_bucket_that_comes_up_late_is_waited_for(tmp_path: Path, monkeypatch):
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    place = socket.socket()  # nobody listens on it yet, and nobody else gets its port
    place.bind(("127.0.0.1", 0))
    host, port = place.getsockname()
    told = {"root": "s3://late/runs/0", "incarnation": "0.0.1", "initial": None}
    env = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_MAX_ATTEMPTS": "1",
    }
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    said: list[str] = []
    servers: list[BaseWSGIServer] = []

    def come_up(text: str) -> None:
        if not said:
            place.listen()
            app = DomainDispatcherApplication(create_backend_app)
            servers.append(make_server(host, port, app, threaded=True, fd=place.fileno()))
            threading.Thread(target=servers[0].serve_forever, daemon=True).start()
            threading.Thread(target=_make_bucket, daemon=True).start()
        said.append(text)

    asked = required_hardware(job(role("worker", 1), checkpoint={"uri": "c"}), {})
    assert asked is not None
    preflight = PreflightCheck(
        {**asked.to_document(), "timeout_seconds": 60.0},
        folder=tmp_path,
        cgroup=None,
        environment={**os.environ, "TRAINING_CHECKPOINT": json.dumps(told)},
        say=come_up,
    )
    try:
        verdict = wait_until(preflight.poll)
    finally:
        preflight.give_up()
        for server in servers:
            server.shutdown()
            server.server_close()
        place.close()
    assert verdict.ready, verdict.message
    assert "store" in verdict.checks
    assert said[0].startswith("not ready, checked again for up to 60 s: store: s3://late/runs/0")


def _make_bucket() -> None:
    import fsspec

    fsspec.filesystem("s3", skip_instance_cache=True).mkdir("late")
