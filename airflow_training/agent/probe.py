"""One readiness probe of a pod template (`exec`, `tcpSocket`, `httpGet`), done in a forked child."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping, Sequence

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Probe", "run_probe"]


class Probe:
    """What Kubernetes' `readinessProbe` says, with its defaults."""

    def __init__(self, document: Mapping[str, Any], *, ports: Mapping[str, int]) -> None:
        self.delay_seconds = float(document.get("initialDelaySeconds") or 0)
        self.period_seconds = float(document.get("periodSeconds") or 10)
        self.timeout_seconds = float(document.get("timeoutSeconds") or 1)
        self.successes_needed = int(document.get("successThreshold") or 1)
        self.failures_allowed = int(document.get("failureThreshold") or 3)
        self.document = document
        self.ports = ports

    def port(self, value: object) -> int:
        """Return a port given by number or by name; raises KeyError."""
        text = str(value)
        return int(text) if text.isdigit() else self.ports[text]


def run_probe(
    probe: Probe, *, environment: Mapping[str, str], log: int, container: Sequence[str] = ()
) -> None:
    """Do the probe and leave this (forked) process: 0 is ready, 1 is not. `container`: words before a command."""
    signal.alarm(max(1, round(probe.timeout_seconds)))
    try:
        command = (probe.document.get("exec") or {}).get("command")
        if command:
            os.dup2(log, 1)
            os.dup2(log, 2)
            words = [*container, *command]
            os.execvpe(words[0], words, dict(environment))  # noqa: S606  # the user's probe
        good = _http(probe) if probe.document.get("httpGet") else _tcp(probe)
    except (OSError, ValueError, KeyError):
        good = False
    os._exit(0 if good else 1)


def _tcp(probe: Probe) -> bool:
    target = probe.document.get("tcpSocket") or {}
    address = (target.get("host") or "127.0.0.1", probe.port(target.get("port")))
    socket.create_connection(address, timeout=probe.timeout_seconds).close()
    return True


def _http(probe: Probe) -> bool:
    """Return whether the answer's status is 200 to 399, as the kubelet has it."""
    target = probe.document["httpGet"]
    host = target.get("host") or "127.0.0.1"
    headers = {h["name"]: h["value"] for h in target.get("httpHeaders") or ()}
    headers.setdefault("Host", host)
    lines = [f"GET {target.get('path') or '/'} HTTP/1.0"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    connection = socket.create_connection(
        (host, probe.port(target.get("port"))), timeout=probe.timeout_seconds
    )
    with connection:
        if str(target.get("scheme", "HTTP")).upper() == "HTTPS":
            import ssl

            unchecked = ssl._create_unverified_context()  # noqa: S323  # the kubelet does not verify
            connection = unchecked.wrap_socket(connection, server_hostname=host)
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        status = connection.makefile("rb").readline(1024).split()
    return len(status) > 1 and 200 <= int(status[1]) < 400
