"""How a training process asks for a file that is not there yet, and waits. One connection a question.

So nothing is shared by threads or inherited by forked workers. Python 3.8 and newer, standard library only.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time

__all__ = ["DataUnavailable", "make_ready", "tell_next"]

_PATIENCE_SECONDS = 900.0
"""How long nobody may answer at the socket: who makes files ready is started again meanwhile."""
_PAUSE_SECONDS = 0.2
_HEARTBEAT_SECONDS = 2.0
_PROGRESS_FILE = "TRAINING_PROGRESS_FILE"


class DataUnavailable(OSError):
    """A file's content could not be had: `reason` is CamelCase, the message names the file."""

    def __init__(self, path: str, reason: str, message: str) -> None:
        """As who makes files ready says."""
        super().__init__(errno.EIO, f"{reason}: {message}", path)
        self.reason = reason


class _Heartbeat:
    """Lines in the progress file, so that a script which waits for data is not taken for one that hangs."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._next = time.monotonic() + _HEARTBEAT_SECONDS / 2

    def beat(self, why: str) -> None:
        file = os.environ.get(_PROGRESS_FILE)
        now = time.monotonic()
        if not file or now < self._next:
            return
        self._next = now + _HEARTBEAT_SECONDS
        line = json.dumps({"time": time.time(), "waiting_for_data": self._path, "why": why}) + "\n"
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError:
            return
        try:
            os.write(descriptor, line.encode())
        except OSError:  # a full disk is told by what the training writes itself
            pass
        finally:
            os.close(descriptor)


def make_ready(address: str, path: str, *, patience_seconds: float = _PATIENCE_SECONDS) -> None:
    """Return once all bytes of the file (or of every file in the folder) at `path` are there.

    Raises:
        DataUnavailable: they will not come.
    """
    heartbeat = _Heartbeat(path)
    end = time.monotonic() + patience_seconds
    question = json.dumps({"ready": path}).encode() + b"\n"
    while True:
        try:
            answer = _ask(address, question, heartbeat)
        except OSError as error:
            answer, why = None, str(error)
        else:
            why = "the connection ended"
        if answer is not None:
            if answer.get("ready"):
                return
            raise DataUnavailable(
                path, str(answer.get("error", "Unknown")), str(answer.get("message"))
            )
        if time.monotonic() > end:
            raise DataUnavailable(
                path, "NobodyAnswers", f"{path}: nobody answers at {address} ({why})"
            )
        heartbeat.beat(why)
        time.sleep(_PAUSE_SECONDS)


def _ask(address: str, question: bytes, heartbeat: _Heartbeat) -> dict[str, object] | None:
    """Return the last line that comes, None where the connection ends before."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(address)
        connection.sendall(question)
        with connection.makefile("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    return None
                answer = json.loads(line)
                if "waiting" not in answer:
                    return dict(answer)
                heartbeat.beat(str(answer["waiting"]))
    return None


def tell_next(address: str, paths: list[str]) -> None:
    """Say which files will be read next, in this order; nothing is waited for."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(address)
        connection.sendall(json.dumps({"next": paths}).encode() + b"\n")
        connection.recv(64)
