"""A door between us and the API server that a test can shut."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml


class Proxy:
    """Forwards TCP from a port of this machine to the API server of a kubeconfig; `with Proxy(...)`."""

    def __init__(self, kubeconfig: Path) -> None:
        self._config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
        current = self._config["current-context"]
        context = next(c["context"] for c in self._config["contexts"] if c["name"] == current)
        self._cluster = next(
            c["cluster"] for c in self._config["clusters"] if c["name"] == context["cluster"]
        )
        self._folder = kubeconfig.parent
        self._target = urlsplit(self._cluster["server"])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._port = 0

    def __enter__(self) -> Proxy:
        self._thread.start()
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self) -> None:
        """Let connections through, on the same port as before."""
        self._wait(self._open())

    def shut(self) -> None:
        """Cut every connection and refuse new ones."""
        self._wait(self._shut())

    def write_kubeconfig(self, path: Path) -> Path:
        """Write the kubeconfig that leads through this door."""
        target = self._target
        self._cluster["server"] = f"{target.scheme}://127.0.0.1:{self._port}{target.path}"
        if target.scheme == "https":
            # the certificate is made out to the server's own name
            self._cluster.setdefault("tls-server-name", target.hostname)
        for each in (*self._config["clusters"], *self._config["users"]):
            for inner in each.values():
                if isinstance(inner, dict):
                    self._make_absolute(inner)
        path.write_text(yaml.safe_dump(self._config))
        return path

    def _make_absolute(self, entry: dict[str, Any]) -> None:
        for key in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
            if entry.get(key):
                entry[key] = str(self._folder / entry[key])

    def _wait(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0.1)  # their tasks end

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = self._target.port or (443 if self._target.scheme == "https" else 80)
        try:
            there, back = await asyncio.open_connection(self._target.hostname, port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        try:
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        finally:
            self._writers -= {writer, back}
            writer.transport.abort()
            back.transport.abort()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    with contextlib.suppress(OSError, RuntimeError):
        target.write_eof()
