"""Logs of running containers, read piece by piece from an API server that counts no bytes."""

from __future__ import annotations

import pytest

from airflow_training.runtimes.kubernetes import logs
from airflow_training.runtimes.port import Cursor


class Server:
    """Answers as a kubelet does: from a whole second on, cut off at `limitBytes`."""

    def __init__(self, lines: list[tuple[str, bytes]]) -> None:
        self.lines = lines
        self.largest = 0

    async def read(self, since: str, limit_bytes: int) -> bytes:
        since = since.rstrip("Z")
        text = b"".join(
            f"2026-01-01T00:00:{at}Z ".encode() + line
            for at, line in self.lines
            if f"2026-01-01T00:00:{at}".partition(".")[0] >= since
        )
        answer = text[:limit_bytes]
        self.largest = max(self.largest, len(answer))
        return answer


async def read_all(server: Server, *, limit: int) -> bytes:
    cursor, found = Cursor(), b""
    while True:
        chunk = await logs.read_live(server.read, cursor, limit=limit)
        if not chunk.data:
            return found
        assert len(chunk.data) <= limit
        found += chunk.data
        assert chunk.next.offset == len(found)
        cursor = chunk.next


@pytest.mark.parametrize("limit", [1, 7, 100, 100_000])
async def test_a_log_is_read_to_the_byte_whatever_the_pieces(limit, monkeypatch):
    monkeypatch.setattr(logs, "_WINDOW_BYTES", 64)
    lines = [
        ("00.100000000", b"one\n"),
        ("00.200000000", b" 10%|=\r 20%|==\r100%|====\n"),
        ("00.200000000", b"\n"),
        ("00.200000000", b"the same moment\n"),
        *[("01.000000000", b"many of one second\n")] * 40,
        ("02.500000000", "größer\n".encode()),
    ]
    assert await read_all(Server(lines), limit=limit) == b"".join(line for _, line in lines)


async def test_a_long_log_is_never_read_at_once(monkeypatch):
    monkeypatch.setattr(logs, "_WINDOW_BYTES", 4096)
    lines = [(f"{n // 60:02d}:{n % 60:02d}.5"[3:], b"x" * 99 + b"\n") for n in range(60)] * 20
    server = Server(sorted(lines))
    assert len(await read_all(server, limit=1000)) == 60 * 20 * 100
    assert server.largest < 20_000
