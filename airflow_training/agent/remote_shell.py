"""`<rsh> [ssh options] HOST COMMAND...`: run a command inside another instance, without sshd.

HOST is an instance's name. The caller's streams are handed to that instance's agent, which runs
`/bin/sh -c COMMAND` below itself with the instance's environment and folder. Exit codes are ssh's:
the command's, or 255 when the instance cannot be reached.

An agent is reached on its own machine only. Where the runtime has several, `.agent/machine.json` of an
attempt says which one it is on (`name`), and before which words a command is run there (`enter`).

For Open MPI on one machine (tried with 4.1) the launcher needs `OMPI_MCA_plm_rsh_agent` set to
this program, `OMPI_MCA_btl_tcp_if_include` and `OMPI_MCA_oob_tcp_if_include` set to `lo`. Host
names need not resolve: what is not the local name is reached by the remote shell. Each worker
needs `OMPI_MCA_btl_vader_backing_directory` (`btl_sm` in 5) set to a folder of its own: two
workers that share one host name would else share the files of their shared memory and crash.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from pathlib import Path

from airflow_training.agent.control import connect, send_request
from airflow_training.agent.files import read_json

TYPE_CHECKING = False  # `typing` costs 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["parse", "remote_shell", "shell"]

_WITH_VALUE = frozenset("bcDEeFIiJLlmOopQRSWwB")
_UNREACHABLE = 255
_WAIT_SECONDS = 10.0


def parse(arguments: list[str]) -> tuple[str, str]:
    """Return (host, command) of an ssh-like command line; raises ValueError."""
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        # as getopt has it: letters may share a dash, a value may follow at once
        for place, letter in enumerate(option[1:], start=1):
            if letter in _WITH_VALUE:
                if place == len(option) - 1 and rest:
                    rest.pop(0)
                break
    if len(rest) < 2:
        raise ValueError("usage: remote-shell [OPTIONS] HOST COMMAND...")
    return rest[0].rpartition("@")[2], " ".join(rest[1:])


def _folder(run: Path, host: str) -> Path | None:
    """Return the folder of the instance called `host` (its first label may be enough)."""
    for name in (host, host.split(".")[0]):
        with contextlib.suppress(OSError):
            return run / (run / "names" / name).read_text().strip()
    return None


def _machine(attempt: Path) -> Mapping[str, Any]:
    """Return where an attempt runs; nothing where all run on one machine."""
    return read_json(attempt / ".agent" / "machine.json") or {}


def _enter(machine: Mapping[str, Any], attempt: Path, host: str, command: str) -> None:
    """Become the same program on the machine of an attempt."""
    words = [*machine["enter"], sys.executable, "-I", "-S", sys.argv[0], "remote-shell"]
    there = {**os.environ, "TRAINING_INSTANCE_DIR": str(attempt)}
    os.execvpe(words[0], [*words, host, command], there)  # noqa: S606  # ends as that one ends


def _call(own: Path, host: str, command: str) -> socket.socket | None:
    """Return a connection to the agent of an instance, waiting for one to come.

    `own`: the attempt that asks. Does not return where the other one is on another machine.
    """
    until = time.monotonic() + _WAIT_SECONDS
    while True:
        instance = _folder(own.parent.parent, host)
        if instance is not None:
            attempt = instance / "current"
            machine = _machine(attempt)
            if machine and machine["name"] != _machine(own).get("name"):
                _enter(machine, attempt, host, command)
            try:
                connection = connect(attempt / ".agent" / "control.sock")
            except OSError:
                pass
            else:
                return connection
        if time.monotonic() > until:
            return None
        time.sleep(0.05)


def remote_shell(arguments: list[str]) -> int:
    """Run the command there and return its exit code."""
    try:
        host, command = parse(arguments)
        own = Path(os.environ["TRAINING_INSTANCE_DIR"])
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyError:
        sys.stderr.write("remote-shell: works only inside an instance of a training job\n")
        return _UNREACHABLE
    connection = _call(own, host, command)
    if connection is None:
        run = own.parent.parent
        known = sorted(p.name for p in (run / "names").iterdir()) if run.is_dir() else []
        sys.stderr.write(f"remote-shell: cannot reach {host!r}; instances: {', '.join(known)}\n")
        return _UNREACHABLE
    return _execute(connection, command=command)


def shell(attempt: Path, command: str) -> int:
    """Run a command beside that of an attempt on this machine and return its exit code.

    On a terminal it becomes the one that the terminal's keys interrupt.
    """
    try:
        connection = connect(attempt / ".agent" / "control.sock")
    except OSError as error:
        sys.stderr.write(f"its agent does not answer: {error.strerror}\n")
        return _UNREACHABLE
    if not os.isatty(0):
        return _execute(connection, command=command)
    import fcntl
    import signal
    import termios

    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # that of the terminal we let go
    with contextlib.suppress(OSError):  # it was none of ours
        fcntl.ioctl(0, termios.TIOCNOTTY)
    env = {"TERM": os.environ.get("TERM", "xterm")}
    return _execute(connection, command=command, terminal=True, env=env)


def _execute(connection: socket.socket, **request: Any) -> int:
    """Have the agent run a command with our streams, and return its exit code."""
    with connection:
        try:
            send_request(connection, {"op": "exec", **request}, [0, 1, 2])
            answer = connection.recv(1 << 16)
        except OSError:
            answer = b""
    return int(json.loads(answer)["exit"]) if answer else _UNREACHABLE
