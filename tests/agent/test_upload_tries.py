"""An upload is tried again where the storage may only be away for a moment, and never for ever."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent import upload as uploads
from airflow_training.agent.upload import may_pass, upload_patiently


class ClientError(Exception):
    """As storage clients raise it: only its words say what it is."""


AWAY = ClientError("An error occurred (SlowDown) when calling the PutObject operation")
REFUSED = ClientError("An error occurred (AccessDenied) when calling the PutObject operation")


class Storage:
    """One that raises what it is given, one error a try, and then takes what it gets."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.said: list[str] = []
        self.slept: list[float] = []

    def take(self, folder: Path, uri: str, *, say: Any, beside: Any) -> dict[str, Any]:
        if self.errors:
            raise self.errors.pop(0)
        return {"uri": uri}

    def upload(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        monkeypatch.setattr(uploads, "upload", self.take)
        return upload_patiently(Path(), "s3://b", say=self.said.append, sleep=self.slept.append)


def test_what_passes_is_tried_again_ever_later(monkeypatch):
    storage = Storage(AWAY, TimeoutError(), AWAY)
    assert storage.upload(monkeypatch) == {"uri": "s3://b"}
    assert storage.slept == sorted(set(storage.slept))
    assert "SlowDown" in storage.said[0]
    assert "next try in 1 s" in storage.said[0]


def test_what_stays_away_is_told_with_how_often_it_was_tried(monkeypatch):
    storage = Storage(*[AWAY] * 20)
    answer = storage.upload(monkeypatch)
    assert answer["error"].startswith("s3://b: ClientError(")
    assert answer["error"].endswith(f" (tried {len(storage.slept) + 1} times)")
    assert sum(storage.slept) < 120


def test_what_is_refused_is_tried_once(monkeypatch):
    storage = Storage(REFUSED)
    assert storage.upload(monkeypatch) == {"error": f"s3://b: {REFUSED!r}"}
    assert (storage.said, storage.slept) == ([], [])


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (AWAY, True),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), True),
        (OSError(errno.ESTALE, "Stale file handle"), True),
        (ClientError("503 Service Unavailable"), True),
        (ClientError("Could not connect to the endpoint URL: Connection refused"), True),
        (REFUSED, False),
        (ClientError("403 Forbidden: connection is not allowed"), False),
        (PermissionError(errno.EACCES, "Permission denied"), False),
        (FileNotFoundError("The specified bucket does not exist"), False),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (ModuleNotFoundError("No module named 's3fs'"), False),
        (ValueError("Protocol not known: connection"), False),
        (KeyboardInterrupt(), False),
    ],
    ids=repr,
)
def test_which_errors_may_pass(error, expected):
    assert may_pass(error) is expected
