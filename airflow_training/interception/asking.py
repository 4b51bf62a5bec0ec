"""How a training process asks for a file that is not there yet, and waits. One connection a question.

So nothing is shared by threads or inherited by forked workers. Python 3.8 and newer, standard library only.
"""

from __future__ import annotations

import errno
import os
import time

__all__ = [
    "HEARTBEAT_SECONDS",
    "READS",
    "DataUnavailable",
    "expect_range",
    "is_filled",
    "make_range_ready",
    "make_ready",
    "tell_next",
    "tell_read",
    "tell_wait",
]

_PATIENCE_SECONDS = 900.0
"""How long nobody may answer at the socket: who makes files ready is started again meanwhile."""
_PAUSE_SECONDS = 0.2
READS = ".read"
"""After the socket's path: where it takes datagrams of what was read."""
_HEARD_SECONDS = 0.2
"""How long what is only told may take."""
HEARTBEAT_SECONDS = 2.0
_PROGRESS_FILE = "TRAINING_PROGRESS_FILE"


class DataUnavailable(OSError):
    """A file's content could not be had: `reason` is CamelCase, the message names the file."""

    def __init__(self, path: str, reason: str, message: str) -> None:
        """As who makes files ready says."""
        super().__init__(errno.EIO, f"{reason}: {message}", path)
        self.reason = reason


def tell_wait(progress: str, path: str, why: str) -> None:
    """Write a line to a progress file, so that who waits for data is not taken for one that hangs."""
    import json  # when it is needed: most processes of a training never ask

    line = json.dumps({"time": time.time(), "waiting_for_data": path, "why": why}) + "\n"
    try:
        descriptor = os.open(progress, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError:
        return
    try:
        os.write(descriptor, line.encode())
    except OSError:  # a full disk is told by what the training writes itself
        pass
    finally:
        os.close(descriptor)


class _Heartbeat:
    """One such line every two seconds."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._next = time.monotonic() + HEARTBEAT_SECONDS / 2

    def beat(self, why: str) -> None:
        file = os.environ.get(_PROGRESS_FILE)
        now = time.monotonic()
        if file and now >= self._next:
            self._next = now + HEARTBEAT_SECONDS
            tell_wait(file, self._path, why)


def make_ready(address: str, path: str, *, patience_seconds: float = _PATIENCE_SECONDS) -> None:
    """Return once all bytes of the file (or of every file in the folder) at `path` are there.

    Raises:
        DataUnavailable: they will not come.
    """
    _ask_until(address, path, {"ready": path}, patience_seconds)


def make_range_ready(
    address: str, path: str, first: int, last: int, *, patience_seconds: float = _PATIENCE_SECONDS
) -> str:
    """Return the path of a file that has these ranges of `path` at their places; empty once the file itself is there.

    Raises:
        DataUnavailable: they will not come.
    """
    told = {"range": path, "first": first, "last": last}
    return str(_ask_until(address, path, told, patience_seconds).get("file", ""))


def _ask_until(
    address: str, path: str, asked: dict[str, object], patience_seconds: float
) -> dict[str, object]:
    import json

    heartbeat = _Heartbeat(path)
    end = time.monotonic() + patience_seconds
    told = {**asked, "progress": os.environ.get(_PROGRESS_FILE, "")}
    question = json.dumps(told).encode() + b"\n"
    while True:
        try:
            answer = _ask(address, question, heartbeat)
        except OSError as error:
            answer, why = None, str(error)
        else:
            why = "the connection ended"
        if answer is not None:
            if answer.get("ready"):
                return answer
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
    import json
    import socket

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


def is_filled(path: str) -> bool:
    """Return whether a file of a data root has its content, as far as one can see without asking.

    A file without content has access time 0, and gets another once it is filled.
    """
    try:
        info = os.stat(path)  # noqa: PTH116
    except OSError:
        return False
    return info.st_mode & 0o170000 == 0o100000 and info.st_atime_ns != 0


def tell_read(address: str, path: str) -> None:
    """Say that a file is read which is there, so that those after it can come; nothing is waited for."""
    import json
    import socket

    told = json.dumps({"read": path}).encode() + b"\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(0.0)
        try:
            sender.sendto(
                told, address + READS
            )  # half the time of a connection, at each first read
        except OSError:  # more than wait there, or whoever listens takes none
            _tell_by_connection(address, told)


def _tell_by_connection(address: str, told: bytes) -> None:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(0.0)
        try:
            connection.connect(address)
            connection.send(told)
        except OSError:  # nobody has time to listen: it is fetched when it is asked for
            return


def tell_next(address: str, paths: list[str]) -> None:
    """Say which files will be read next, in this order; that it is heard is waited for a moment. Raises OSError where it is not."""
    import json
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_HEARD_SECONDS)
        connection.connect(address)
        connection.sendall(json.dumps({"next": paths}).encode() + b"\n")
        connection.recv(64)


def expect_range(address: str, path: str, first: int, last: int) -> None:
    """Say which ranges of a file will be read next; nothing is waited for but that it is heard."""
    import json
    import socket

    told = {"range": path, "first": first, "last": last, "next": True}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(address)
        connection.sendall(json.dumps(told).encode() + b"\n")
        connection.recv(64)
