"""The same text as every kind of source."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
import zstandard

from airflow_training.logs.reading.instance import FetchResult, InstanceLog
from airflow_training.logs.reading.opening import open_log
from airflow_training.logs.reading.source import Source

Make = Callable[[bytes], Source]


def two_members(text: bytes) -> bytes:
    half = len(text) // 2
    return gzip.compress(text[:half], 1) + gzip.compress(text[half:], 1)


def frames(text: bytes) -> bytes:
    """Return zstd as `pzstd` writes it: a frame for each megabyte."""
    pieces = [text[at : at + 1_000_000] for at in range(0, len(text), 1_000_000)] or [b""]
    return b"".join(zstandard.compress(piece) for piece in pieces)


def served(text: bytes, *, opaque: bool = False, piece: int = 300_000) -> InstanceLog:
    """Return a runtime's log, in pieces; `opaque`: its cursors are counted, not offsets."""
    cursors = {"": 0}

    def fetch(offset: int, token: str, limit: int) -> FetchResult:
        start = cursors[token] if opaque else offset
        data = text[start : start + min(limit, piece)]
        after = start + len(data)
        name = f"line {len(cursors)}" if opaque and data else token
        cursors[name] = after
        return FetchResult(data, offset + len(data), name if opaque else "", not data)

    return InstanceLog("worker-0", fetch)


@pytest.fixture
def makers(tmp_path: Path) -> dict[str, Make]:
    def file(name: str, pack: Callable[[bytes], bytes]) -> Make:
        def make(text: bytes) -> Source:
            (tmp_path / name).write_bytes(pack(text))
            return open_log(str(tmp_path / name))

        return make

    def remote(text: bytes) -> Source:
        with fsspec.open("memory://bucket/run/worker-0.log", "wb") as target:
            target.write(text)
        return open_log("memory://bucket/run/worker-0.log")

    return {
        "file": file("a.log", bytes),
        "gzip": file("a.log.gz", gzip.compress),
        "members": file("b.log.gz", two_members),
        "zstd": file("a.log.zst", zstandard.compress),
        "frames": file("b.log.zst", frames),
        "utf-16": file("c.log", lambda text: text.decode().encode("utf-16")),
        "remote": remote,
        "instance": lambda text: served(text, opaque=False),
        "opaque": lambda text: served(text, opaque=True),
    }


KINDS = ("file", "gzip", "members", "zstd", "frames", "utf-16", "remote", "instance", "opaque")


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, makers: dict[str, Make]) -> Make:
    """Return what turns bytes into a log of each kind."""
    return makers[request.param]
