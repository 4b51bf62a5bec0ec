"""Measures the way to other instances while they do the same; each answers those that ask it. In a child.

A round: a byte there and back, some times, then as much as goes through in a second, which the other end
confirms. Python 3.8 and newer: it runs inside pods too.
"""

from __future__ import annotations

import contextlib
import socket
import time

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["measure_network"]

_HELLO = b"airflow-training preflight 1\n"
_WELCOME = b"airflow-training welcome 1!!!\n"
"""Whoever says something else at this port is none of ours, as is who hears himself."""
_ROUNDS = 20
_SEND_SECONDS, _MOST_BYTES, _PIECE_BYTES = 1.0, 2 << 30, 1 << 20
_ANSWER_SECONDS = 10.0
"""Of one that is there."""
_PAUSE_SECONDS = 0.2


def measure_network(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return for each of the `peers` its name with `latency` (seconds) and `bandwidth` (bytes a second), where it answered.

    `wanted`: as `control.hardware.NetworkPeers` writes it. Stays until those that ask here have done so, or
    `wait_seconds` are over. Raises OSError where the port cannot be had.
    """
    until = time.monotonic() + wanted["wait_seconds"]
    with _listener(wanted["port"]) as server:
        asked = _in_a_thread(_Answers(server, wanted["asked_by"], until).run)
        peers = [{"name": name, **_ask(host, port, until)} for name, host, port in wanted["peers"]]
        asked.join(max(0.0, until - time.monotonic()) + _ANSWER_SECONDS)
    return {"peers": peers}


def _listener(port: int) -> socket.socket:
    try:
        server = socket.socket(socket.AF_INET6)
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        address: Any = ("::", port)
    except OSError:  # a machine without IPv6
        server, address = socket.socket(socket.AF_INET), ("", port)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(address)
    server.listen(16)
    return server


def _in_a_thread(work: Callable[..., None], *given: Any) -> Any:
    import threading  # an agent that measures nothing does without

    thread = threading.Thread(target=work, args=given, daemon=True)
    thread.start()
    return thread


class _Answers:
    """Answers so many others, each in a thread of its own."""

    def __init__(self, server: socket.socket, count: int, until: float) -> None:
        self._server, self._count, self._until = server, count, until
        self._answered: list[int] = []
        """Bytes that were received of each: appending is safe from every thread."""

    def run(self) -> None:
        begun = []
        self._server.settimeout(_PAUSE_SECONDS)
        while len(self._answered) < self._count and time.monotonic() < self._until:
            try:
                peer, _ = self._server.accept()
            except OSError:  # nobody yet
                continue
            begun.append(_in_a_thread(self._answer, peer))
        for thread in begun:
            thread.join(_ANSWER_SECONDS)

    def _answer(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError, EOFError):
            peer.settimeout(_ANSWER_SECONDS)
            if _read(peer, len(_HELLO)) != _HELLO:
                return
            peer.sendall(_WELCOME)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(_ROUNDS):
                peer.sendall(_read(peer, 1))
            received, room = 0, memoryview(bytearray(_PIECE_BYTES))
            while count := peer.recv_into(room):
                received += count
            peer.sendall(received.to_bytes(8, "big"))
            self._answered.append(received)


def _ask(host: str, port: int, until: float) -> dict[str, float]:
    """Return the figures of one way; empty where nobody of ours answers in time."""
    while True:
        try:
            with socket.create_connection((host, port), timeout=2.0) as peer:
                peer.settimeout(_ANSWER_SECONDS)
                peer.sendall(_HELLO)
                if _read(peer, len(_WELCOME)) == _WELCOME:
                    return _measure(peer)
        except (OSError, EOFError):
            pass
        if time.monotonic() >= until:
            return {}
        time.sleep(_PAUSE_SECONDS)


def _measure(peer: socket.socket) -> dict[str, float]:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    rounds = []
    for _ in range(_ROUNDS):
        begun = time.monotonic()
        peer.sendall(b"x")
        _read(peer, 1)
        rounds.append(time.monotonic() - begun)
    piece, sent, begun = bytes(_PIECE_BYTES), 0, time.monotonic()
    while sent < _MOST_BYTES and time.monotonic() - begun < _SEND_SECONDS:
        peer.sendall(piece)
        sent += len(piece)
    peer.shutdown(socket.SHUT_WR)
    received = int.from_bytes(_read(peer, 8), "big")
    seconds = max(time.monotonic() - begun, 1e-6)
    return {"latency": sorted(rounds)[len(rounds) // 2], "bandwidth": received / seconds}


def _read(peer: socket.socket, count: int) -> bytes:
    """Return so many bytes; raises EOFError where the other end has gone."""
    found = b""
    while len(found) < count:
        more = peer.recv(count - len(found))
        if not more:
            raise EOFError
        found += more
    return found
