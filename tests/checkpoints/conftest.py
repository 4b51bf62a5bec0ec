"""An S3 emulator for the whole session, and SIGTERM as it was before each test."""

from __future__ import annotations

import logging
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_training.checkpoints import agreement, verifying
from tests.checkpoints.stores import Overwriting


@pytest.fixture(autouse=True)
def _look_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "_PAUSES", (0.01, 0.01))
    monkeypatch.setattr(agreement, "_LONGEST_PAUSE_SECONDS", 0.05)


@pytest.fixture(autouse=True)
def _sigterm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Return the address of an S3 emulator in this process; it has what other tests left in it."""
    pytest.importorskip("moto.server", reason="of the extra `dev`")
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_root(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of an empty folder of a bucket on the emulator."""
    import fsspec

    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3_endpoint,
    }.items():
        monkeypatch.setenv(name, value)
    # an earlier test of this process may have opened s3:// with other credentials, or with none
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    bucket = f"bucket-{uuid.uuid4().hex}"
    fsspec.filesystem("s3", skip_instance_cache=True).mkdir(bucket)
    return f"s3://{bucket}/runs"


@pytest.fixture(params=["local", "overwriting", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return what a group may lie on, also a store that does not refuse a second create."""
    if request.param == "overwriting":
        return Overwriting()
    return request.getfixturevalue("s3_root") if request.param == "s3" else str(tmp_path)
