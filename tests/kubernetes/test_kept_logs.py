"""What the archive has of a log: replaced by more of it only, and never waited for."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes.api_errors import ApiError, NotFound
from airflow_training.runtimes.kubernetes.collected import CollectedLog
from airflow_training.runtimes.kubernetes.collecting import PodLog
from airflow_training.runtimes.kubernetes.logs import KeyedThrottle, LogArchive
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.port import Cursor, LogChunk
from tests.kubernetes import samples
from tests.kubernetes.test_record import FIRST, instance_of

REF = instance_of(FIRST).ref
WHOLE = b"step 0\n" * 100
TAILS = pytest.mark.parametrize("tail_bytes", [0, 1 << 20, 50])
AWAY = RuntimeUnavailable("the server is away")
GONE = NotFound(404, "NotFound", "its pod is gone")


class Breaking:
    """A log that breaks off after so many bytes."""

    dropped, cut = 0, ""

    def __init__(self, *, after: int, error: Exception | None = AWAY) -> None:
        self._after = after
        self._error = error

    async def blocks(self) -> AsyncIterator[bytes]:
        yield b""
        if self._after:
            yield WHOLE[: self._after]
        if self._error is not None:
            raise self._error


def files(folder: Path, name: str = "*.*") -> list[Path]:
    return list(folder.rglob(name))


async def read(archive: LogArchive, *, offset: int = 0) -> LogChunk:
    chunk = await archive.read(REF, Cursor(offset=offset), limit=1 << 20)
    assert chunk is not None
    return chunk


@TAILS
@pytest.mark.parametrize("error", [AWAY, GONE, ApiError(500, "InternalError", "no")])
@pytest.mark.parametrize("after", [0, 20])
async def test_a_try_that_reads_less_leaves_what_is_kept(tmp_path: Path, tail_bytes, error, after):
    archive = LogArchive(str(tmp_path), tail_bytes=tail_bytes)
    await archive.keep(REF, Breaking(after=500))
    before = await read(archive)
    await archive.keep(REF, Breaking(after=after, error=error))
    assert await read(archive) == before
    assert before.data == WHOLE[:500][-tail_bytes:]
    assert before.end
    assert "is away" in before.missing
    assert len(files(tmp_path)) == 2, "nothing half is left"


@TAILS
async def test_a_try_that_reads_more_replaces_what_is_kept(tmp_path: Path, tail_bytes):
    archive = LogArchive(str(tmp_path), tail_bytes=tail_bytes)
    for after in (0, 300, 500):
        await archive.keep(REF, Breaking(after=after))
        assert (await read(archive)).data == WHOLE[:after][-tail_bytes:]
    await archive.keep(REF, Breaking(after=400, error=None))
    chunk = await read(archive)
    assert (chunk.data, chunk.missing, chunk.end) == (WHOLE[:400][-tail_bytes:], "", True)


async def test_a_disk_that_is_full_leaves_what_is_kept(tmp_path: Path):
    archive = LogArchive(str(tmp_path), tail_bytes=0)
    await archive.keep(REF, Breaking(after=500))
    await archive.keep(REF, Breaking(after=600, error=OSError(28, "No space left on device")))
    assert (await read(archive)).data == WHOLE[:500]
    assert len(files(tmp_path)) == 2


async def test_whoever_is_stopped_while_it_archives_leaves_what_is_kept(tmp_path: Path):
    archive = LogArchive(str(tmp_path), tail_bytes=0)
    await archive.keep(REF, Breaking(after=500))
    stopped = Breaking(after=20, error=asyncio.CancelledError())  # type: ignore[arg-type]  # is none of ours
    with pytest.raises(asyncio.CancelledError):
        await archive.keep(REF, stopped)
    assert (await read(archive)).data == WHOLE[:500]
    assert len(files(tmp_path)) == 2


async def test_a_reader_waits_for_no_bytes_that_are_not_there(tmp_path: Path):
    archive = LogArchive(str(tmp_path), tail_bytes=0)
    await archive.keep(REF, Breaking(after=500, error=None))
    (file,) = files(tmp_path, "*.log")
    for size in (200, 0):
        file.write_bytes(WHOLE[:size])
        chunk = await read(archive)
        assert (chunk.data, chunk.end) == (WHOLE[:size], True)
        assert chunk.missing
        assert (await read(archive, offset=size)).end


async def test_a_log_that_was_collected_to_its_end_stays_known_as_such(tmp_path: Path):
    collected = CollectedLog(tmp_path / "pod.log", most_bytes=0)
    collected.append(b"2026-01-01T00:00:00Z words\n")
    collected.note({"ended": True})
    log = PodLog(
        api=None,  # type: ignore[arg-type]  # nobody asks for what is known
        pod=PodView.of(samples.a_pod()),
        collected=collected,
        stream=None,
        slots=asyncio.Semaphore(1),
        follow=True,
    )
    assert b"".join([block async for block in log.blocks()]) == b"words\n"
    assert collected.has_ended()


def test_what_was_tried_is_tried_again_after_a_while():
    spaced = KeyedThrottle(seconds=10.0)
    tried = [spaced.is_due("a", now=now) for now in (100.0, 100.0, 109.0, 111.0, 112.0)]
    assert tried == [True, False, False, True, False]
    assert spaced.is_due("b", now=112.0)


async def test_the_logs_of_one_run_are_deleted_and_no_others(tmp_path: Path):
    archive = LogArchive(str(tmp_path), tail_bytes=0)
    other = dataclasses.replace(REF, run=dataclasses.replace(REF.run, uid="another"))
    for each in (REF, other):
        await archive.keep(each, Breaking(after=10))
    for _ in range(2):
        await archive.delete(REF.run.uid)
    assert await archive.read(REF, Cursor(), limit=9) is None
    assert {each.parent.parent.name for each in files(tmp_path)} == {"another"}
