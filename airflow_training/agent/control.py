"""The agent's Unix socket (Python 3.8 and newer): `look` at new orders, and `exec` a command inside the process tree.

One packet is one request; `exec` comes with the caller's standard input, output and error (where it says
`terminal`, they are a terminal of its own), and is answered with `{"exit": code}`. A caller that goes away takes its command with it.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from airflow_training.agent import proc

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from typing import Any

    from airflow_training.agent.loop import Loop

__all__ = ["ControlSocket", "connect", "send_request"]

_PACKET = 1 << 17
_STREAMS = 3
_MOST_LOOKS = 50
"""For processes that are started while others are told to end."""


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


def send_request(
    connection: socket.socket, request: Mapping[str, Any], streams: Sequence[int]
) -> None:
    """Hand over a request, with the descriptors that its command shall have as its streams."""
    given = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
    connection.sendmsg([json.dumps(request).encode()], given)


def _receive_request(connection: socket.socket) -> tuple[bytes, list[int]]:
    descriptors = array.array("i")
    room = socket.CMSG_LEN(_STREAMS * descriptors.itemsize)
    packet, ancillary, _, _ = connection.recvmsg(_PACKET, room)
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return packet, list(descriptors)


class ControlSocket:
    """Serves one agent, inside its loop."""

    def __init__(
        self,
        path: Path,
        *,
        loop: Loop,
        look: Callable[[], None],
        environment: Mapping[str, str],
        working_dir: str,
        container: Sequence[str] = (),
    ) -> None:
        """Bind `path`, relative to the current folder as its length is limited. `container`: words before a command."""
        self._loop = loop
        self._poll = look
        self._environment = environment
        self._working_dir = working_dir
        self._container = container
        self._in_terminals: set[int] = set()
        """Pids of commands that have a terminal."""
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self._listener.bind(path.name)
        self._listener.listen(64)
        loop.when_readable(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            self._loop.when_readable(connection.fileno(), lambda: self._request(connection))

    def hang_up(self) -> None:
        """Close the terminals of commands: a shell that somebody types in ends by that, and ignores SIGTERM."""
        while self._in_terminals:  # once each: a stop may be asked for again and again
            _hang_up(self._in_terminals.pop())

    def close(self, path: Path) -> None:
        """Stop serving."""
        self._listener.close()
        with contextlib.suppress(OSError):
            path.unlink()

    def _request(self, connection: socket.socket) -> None:
        self._loop.forget(connection.fileno())
        try:
            packet, descriptors = _receive_request(connection)
            request: dict[str, Any] = json.loads(packet or b"{}")
        except (OSError, ValueError):
            connection.close()
            return
        if request.get("op") == "exec" and len(descriptors) == _STREAMS:
            self._execute(request, descriptors, connection)
        else:
            if request.get("op") == "look":
                self._poll()
            with contextlib.suppress(OSError):
                connection.send(b"{}")
            connection.close()
        for descriptor in descriptors:
            os.close(descriptor)

    def _spawn(self, request: Mapping[str, Any], streams: list[int]) -> int:
        agent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            proc.die_with_parent()
            if os.getppid() != agent:
                os._exit(255)
            self._loop.leave()
            for target, stream in enumerate(streams):
                os.dup2(stream, target)
            os.chdir(self._working_dir)
            if request.get("terminal"):
                import fcntl
                import termios

                fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # job control, and keys that interrupt
            environment = {**self._environment, **request.get("env", {})}
            shell = [*self._container, "/bin/sh", "-c", str(request.get("command", ""))]
            os.execvpe(shell[0], shell, environment)  # noqa: S606  # what we are for
        except OSError as error:
            os.write(2, f"cannot run a command here: {error}\n".encode())
        finally:
            os._exit(255)

    def _execute(
        self, request: Mapping[str, Any], streams: list[int], caller: socket.socket
    ) -> None:
        """Run a command for a caller; whoever of the two ends first ends the other."""
        pid = self._spawn(request, streams)
        if request.get("terminal"):
            self._in_terminals.add(pid)

        def ended(wait_status: int) -> None:
            self._in_terminals.discard(pid)
            if caller.fileno() < 0:  # it has left
                return
            self._loop.forget(caller.fileno())
            answer = json.dumps({"exit": proc.exit_code(wait_status)}).encode()
            with contextlib.suppress(OSError):
                caller.send(answer)
            caller.close()

        def left() -> None:
            self._loop.forget(caller.fileno())
            caller.close()
            _hang_up(pid)

        self._loop.when_ended(pid, ended)
        self._loop.when_readable(caller.fileno(), left)


def _hang_up(session: int) -> None:
    """Tell all that a command has started what a terminal tells that is closed."""
    numbers = (signal.SIGHUP, signal.SIGTERM, signal.SIGCONT)
    with contextlib.suppress(OSError):
        if os.getsid(session) != session:  # just forked: nothing is below it yet
            os.kill(session, signal.SIGKILL)
    for number in numbers:
        with contextlib.suppress(OSError):
            os.killpg(session, number)  # at once: those of the group have no time to fork
    known: Mapping[int, int] = {}
    for _ in range(_MOST_LOOKS):
        members = proc.session_members(session)
        if members.items() <= known.items():
            return
        proc.signal_processes(dict(members.items() - known.items()), *numbers)
        known = members
