"""A door to a server that lets so many bytes of each answer through, and then cuts the connection."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from urllib.parse import urlsplit

_PIECE = 1 << 16


class NarrowDoor(socketserver.ThreadingTCPServer):
    """Forwards TCP to the server at an address; `with NarrowDoor(...)`."""

    daemon_threads = True

    def __init__(self, target: str, *, after: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        parts = urlsplit(target)
        self.target = (parts.hostname or "", parts.port or 0)
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.after = after
        self.cut = 0
        """Connections that it has cut."""
        self.is_open = False
        """Whether all of an answer comes through."""
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)

    def __enter__(self) -> NarrowDoor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Connection(socketserver.BaseRequestHandler):
    server: NarrowDoor

    def handle(self) -> None:
        with socket.create_connection(self.server.target) as far, contextlib.suppress(OSError):
            threading.Thread(target=_copy, args=(self.request, far), daemon=True).start()
            passed = 0
            while data := far.recv(_PIECE):
                passed += len(data)
                if passed > self.server.after and not self.server.is_open:
                    self.server.cut += 1
                    self.request.shutdown(socket.SHUT_RDWR)
                    return
                self.request.sendall(data)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_PIECE):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
