"""Only the end of a log is read, wherever that is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from airflow_training.runtimes.port import Cursor, InstanceRef, LogChunk, Runtime
from airflow_training.supervise.followers import log_ends
from airflow_training.supervise.followers.log_ends import behind, read_end


@dataclass
class Written:
    """A runtime with one log; `opaque`: its cursors are tokens."""

    data: bytes
    opaque: bool = False
    read: int = 0
    asked: list[int] = field(default_factory=list)

    async def read_log(self, ref: Any, cursor: Cursor, *, limit: int) -> LogChunk:
        offset = int(cursor.token or 0) if self.opaque else cursor.offset
        data = self.data[offset : offset + limit]
        self.read += len(data)
        end = offset + len(data)
        token = str(end) if self.opaque else ""
        return LogChunk(data=data, next=Cursor(offset=end, token=token), end=len(data) < limit)

    async def tail_log(self, ref: Any, *, limit: int) -> bytes:
        return self.data[-limit:]


@pytest.mark.parametrize("opaque", [False, True], ids=["offsets", "tokens"])
@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 250, 4096, 1_000_003])
async def test_the_last_bytes_and_where_they_are(size, opaque):
    data = bytes(number % 251 for number in range(size))
    log = Written(data, opaque=opaque)
    end = await read_end(cast("Runtime", log), cast("InstanceRef", None), limit=100)
    assert end.data == data[-100:]
    assert end.offset == max(0, size - 100)
    assert end.opaque == (opaque and size >= 100)
    if not opaque:
        assert log.read < 300


@pytest.mark.parametrize("endless", [False, True], ids=["too-slow", "too-long"])
async def test_the_last_lines_of_a_flood_are_there_though_the_rest_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, endless: bool
):
    class Flood(Written):
        async def read_log(self, ref: Any, cursor: Cursor, *, limit: int) -> LogChunk:
            if not endless and cursor.token:
                await asyncio.Event().wait()
            return await super().read_log(ref, cursor, limit=limit)

    monkeypatch.setattr(log_ends, "_MOST_CHUNKS", 3)
    monkeypatch.setattr(log_ends, "_CHUNK_BYTES", 1000)
    if not endless:
        monkeypatch.setattr(log_ends, "_THROUGH_SECONDS", 0.01)
    log = Flood(bytes(number % 251 for number in range(9000)), opaque=True)
    end = await read_end(cast("Runtime", log), cast("InstanceRef", None), limit=100)
    assert (end.data, end.offset) == (log.data[-100:], None)


KNOWN = b"step 1\nstep 2\nstep 3\n"


@pytest.mark.parametrize(
    ("known", "data", "rest"),
    [
        pytest.param(KNOWN, b"step 0\n" + KNOWN + b"step 4\n", b"step 4\n", id="all-of-it"),
        pytest.param(KNOWN, b"step 2\nstep 3\nstep 4\n", b"step 4\n", id="its-end"),
        pytest.param(KNOWN, KNOWN, b"", id="nothing-new"),
        pytest.param(KNOWN, b"step 4\nstep 5\n", None, id="further-on"),
        pytest.param(KNOWN, b"", None, id="empty"),
        pytest.param(b"", b"step 4\n", None, id="nothing-known"),
    ],
)
def test_what_is_known_already_is_found_in_an_end(known, data, rest):
    cut = behind(known, data)
    assert (None if cut is None else data[cut:]) == rest
