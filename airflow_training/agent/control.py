"""The agent's Unix socket: `look` at new orders, and `exec` a command inside the process tree.

One packet is one request; `exec` comes with the caller's standard input, output and error, and is
answered with `{"exit": code}`. A caller that goes away takes its command with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from airflow_training.agent.proc import die_with_parent

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from typing import Any

__all__ = ["ControlSocket", "connect", "shell_status"]

_PACKET = 1 << 17


def shell_status(wait_status: int) -> int:
    """Return the exit code a shell would give: 128 plus the signal for a killed process."""
    code = os.waitstatus_to_exitcode(wait_status)
    return 128 - code if code < 0 else code


def connect(path: Path) -> socket.socket:
    """Return a connection to the agent whose socket is `path`; raises OSError."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        # through the descriptor: socket paths have room for 107 bytes only
        connection.connect(f"/proc/self/fd/{folder}/{path.name}")
    except OSError:
        connection.close()
        raise
    finally:
        os.close(folder)
    return connection


class _Session:
    """One command run for a caller."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.connection = connection
        self.pid = pid


class ControlSocket:
    """Serves one agent; the agent polls `descriptors` and calls back."""

    def __init__(
        self,
        path: Path,
        *,
        look: Callable[[], None],
        environment: Mapping[str, str],
        working_dir: str,
    ) -> None:
        """Bind `path`, relative to the current folder as its length is limited."""
        self._look = look
        self._environment = environment
        self._working_dir = working_dir
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self._listener.bind(path.name)
        self._listener.listen(64)
        self._waiting: dict[int, socket.socket] = {}
        self._sessions: dict[int, _Session] = {}

    @property
    def descriptors(self) -> list[int]:
        """Return what to poll for reading."""
        return [self._listener.fileno(), *self._waiting, *self._sessions]

    def readable(self, descriptor: int) -> None:
        """Handle a descriptor of `descriptors` that can be read."""
        if descriptor == self._listener.fileno():
            with contextlib.suppress(OSError):
                connection, _ = self._listener.accept()
                self._waiting[connection.fileno()] = connection
        elif descriptor in self._waiting:
            self._request(self._waiting.pop(descriptor))
        elif descriptor in self._sessions:
            self._caller_left(descriptor)

    def exited(self, pid: int, wait_status: int) -> bool:
        """Answer the caller of a command that ended; False when it was none of ours."""
        for descriptor, session in list(self._sessions.items()):
            if session.pid == pid:
                answer = json.dumps({"exit": shell_status(wait_status)}).encode()
                with contextlib.suppress(OSError):
                    session.connection.send(answer)
                session.connection.close()
                del self._sessions[descriptor]
                return True
        return False

    def close(self, path: Path) -> None:
        """Stop serving."""
        self._listener.close()
        with contextlib.suppress(OSError):
            path.unlink()

    def _request(self, connection: socket.socket) -> None:
        try:
            packet, descriptors, _, _ = socket.recv_fds(connection, _PACKET, 3)
            request: dict[str, Any] = json.loads(packet or b"{}")
        except (OSError, ValueError):
            connection.close()
            return
        if request.get("op") == "exec" and len(descriptors) == 3:
            pid = self._spawn(str(request.get("command", "")), descriptors)
            self._sessions[connection.fileno()] = _Session(connection, pid)
        else:
            if request.get("op") == "look":
                self._look()
            with contextlib.suppress(OSError):
                connection.send(b"{}")
            connection.close()
        for descriptor in descriptors:
            os.close(descriptor)

    def _spawn(self, command: str, streams: list[int]) -> int:
        agent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            die_with_parent()
            if os.getppid() != agent:
                os._exit(255)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            for target, stream in enumerate(streams):
                os.dup2(stream, target)
            os.chdir(self._working_dir)
            shell = ["/bin/sh", "-c", command]
            os.execve(shell[0], shell, dict(self._environment))  # noqa: S606  # what we are for
        except OSError as error:
            os.write(2, f"cannot run a command here: {error}\n".encode())
        finally:
            os._exit(255)

    def _caller_left(self, descriptor: int) -> None:
        """End the command of a caller that went away, as a closed terminal would."""
        session = self._sessions.pop(descriptor)
        session.connection.close()
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(session.pid, number)
