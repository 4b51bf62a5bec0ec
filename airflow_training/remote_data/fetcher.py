"""Fetches files of a skeleton: each once, however many ask, those that will be asked for next beforehand."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import TypeVar

from airflow_training.interception.protocol import RANGE_BYTES
from airflow_training.remote_data.chunks import (
    CHUNK_BYTES,
    ChunkCache,
    count_chunks,
    count_ranges,
    digest_of_chunk,
)
from airflow_training.remote_data.errors import (
    DamagedChunk,
    DataError,
    DataNotShared,
    SourceAway,
    SourceGone,
)
from airflow_training.remote_data.leases import FileLeases
from airflow_training.remote_data.order import ReadOrder
from airflow_training.remote_data.range_files import RangeFiles
from airflow_training.remote_data.skeleton import Skeleton, SkeletonFile
from airflow_training.remote_data.source_address import ChunkSource

__all__ = ["FetchCounts", "Fetcher", "RangesUnknown"]

T = TypeVar("T")

_WORKERS = 8
_BEFOREHAND = 16
"""Small files are a matter of the way there and back, not of the bytes."""
_CHUNKS_AT_ONCE = 8
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 2.0
_MOST_TRIES = 20
"""Of a chunk whose bytes are not its own."""


class RangesUnknown(Exception):
    """The sharing machine is of a version that sends whole files only."""


@dataclass(slots=True)
class FetchCounts:
    """What was done so far."""

    files: int = 0
    bytes: int = 0
    """Of files that were filled."""
    ranges: int = 0
    """Of files that did not come whole."""
    source_chunks: int = 0
    source_bytes: int = 0
    """That came from the sharing machine."""
    cache_chunks: int = 0
    damaged: int = 0
    """Chunks that were not what their digest says, and were fetched again."""
    waited_seconds: float = 0.0
    """For a sharing machine that did not answer."""


class Fetcher:
    """Makes files ready. Called from any thread."""

    def __init__(
        self,
        skeleton: Skeleton,
        *,
        source: ChunkSource,
        cache: ChunkCache,
        leases: FileLeases | None = None,
        ranges: RangeFiles | None = None,
        patience_seconds: float = 3600.0,
        failed: Callable[[DataError, str], None],
        away: Callable[[], None] = lambda: None,
    ) -> None:
        """Fetch nothing yet.

        Args:
            skeleton: the files, laid out.
            source: the sharing machine.
            cache: asked before it; what came from it is kept there.
            leases: on files that are not ready, where the guard has them.
            ranges: where ranges are kept; without it a file comes whole.
            patience_seconds: how long the sharing machine may not answer before that is for good.
            failed: is told once for each file whose content will not come.
            away: is told whenever the sharing machine begins not to answer.
        """
        self.skeleton = skeleton
        self._source = source
        self._cache = cache
        self._is_first = cache.is_new()
        """No earlier run has left anything: what a file is, and its bytes, can be had by one question."""
        self._leases = leases
        self._ranges = ranges
        self._parts: dict[tuple[str, int], Future[None]] = {}
        self._patience = patience_seconds
        self._failed = failed
        self._away = away
        self._lock = threading.Lock()
        self._files: dict[str, Future[None]] = {}
        self._ahead: set[str] = set()
        self._order = ReadOrder(sorted(skeleton.files))
        self._asked = ThreadPoolExecutor(_WORKERS, thread_name_prefix="asked")
        self._beforehand = ThreadPoolExecutor(_BEFOREHAND, thread_name_prefix="beforehand")
        self._chunks = ThreadPoolExecutor(_CHUNKS_AT_ONCE, thread_name_prefix="chunks")
        self._is_closed = threading.Event()
        self.counts = FetchCounts()
        self.waiting = ""
        """Why nothing comes at the moment; empty while something does."""

    def request(self, path: str) -> list[Future[None]]:
        """Ask for all files at or below a path, what a reader waits for before what is fetched beforehand."""
        found = self.skeleton.below(path)
        futures = [self._submit(each, self._asked) for each in found]
        if len(found) == 1:
            for place in self._order.after(path):
                self._submit(self.skeleton.files[place], self._beforehand)
        return futures

    def expect(self, paths: Sequence[str]) -> None:
        """Fetch files beforehand, in the order in which they will be read."""
        for path in paths:
            for each in self.skeleton.below(path):
                self._submit(each, self._beforehand)

    def request_ranges(
        self, path: str, first: int, last: int
    ) -> tuple[str, Sequence[Future[None]]]:
        """Ask for ranges of a file; returns where they will lie, or nowhere where the file itself will be there.

        Raises DataNotShared where there is no such file or range.
        """
        each = self.skeleton.files.get(path)
        if each is None or not 0 <= first <= last < count_ranges(each.file.size):
            raise DataNotShared(f"{path}: it has no ranges {first} to {last}")
        if self._ranges is None or self.skeleton.is_ready(each):
            return "", self.request(path)
        with self._lock:
            for part in range(first, last + 1):
                if (path, part) not in self._parts:
                    self._parts[path, part] = self._chunks.submit(self._fetch_range, each, part)
            futures = [self._parts[path, part] for part in range(first, last + 1)]
        return self._ranges.path(each), futures

    def give_up_ranges(self) -> None:
        """Let files come whole from now on: the sharing machine knows no ranges."""
        self._ranges = None

    def _fetch_range(self, each: SkeletonFile, part: int) -> None:
        ranges = self._ranges
        if ranges is None:
            raise RangesUnknown(each.place)
        with self._telling(each):
            digests = self._retry(lambda: self._source.digests(each.root, each.file, part))
            if len(digests) != 1:
                raise RangesUnknown(each.place)
            if not ranges.found(each, part, digests[0]):
                ranges.put(each, part, self._chunk(each, 0, digests[0], part))
        with self._lock:
            self.counts.ranges += 1

    def _submit(self, each: SkeletonFile, pool: ThreadPoolExecutor) -> Future[None]:
        with self._lock:
            future = self._files.get(each.place)
            is_new = future is None or (
                pool is self._asked and each.place in self._ahead and future.cancel()
            )
            if not is_new and future is not None:
                return future
            if self.skeleton.is_ready(each):
                future = Future()
                future.set_result(None)
            else:
                future = pool.submit(self._fetch, each)
            if pool is self._beforehand:
                self._ahead.add(each.place)
            else:
                self._ahead.discard(each.place)
            self._files[each.place] = future
            return future

    def _fetch(self, each: SkeletonFile) -> None:
        with self._telling(each):
            self._fill(each)

    @contextlib.contextmanager
    def _telling(self, each: SkeletonFile) -> Iterator[None]:
        try:
            yield
        except RangesUnknown:
            raise
        except Exception as error:
            # whatever it is: nobody waits for ever, and nobody gets what is not there
            told = error if isinstance(error, DataError) else DataError(f"{each.place}: {error!r}")
            if not self._is_closed.is_set():
                if self._leases is not None:
                    self._leases.cut(each.place)
                self._failed(told, each.place)
            raise told from error

    def _fill(self, each: SkeletonFile) -> None:
        come = b""
        digests = each.file.chunks
        if not digests and self._is_first and count_chunks(each.file.size) == 1:
            digests, come = self._retry(lambda: self._source.only_chunk(each.root, each.file))
        elif not digests:
            digests = self._retry(lambda: self._source.digests(each.root, each.file))
        if len(digests) != count_chunks(each.file.size):
            raise DamagedChunk(
                f"{each.place}: {len(digests)} chunks do not make {each.file.size} bytes"
            )
        with self._writer(each) as writable:

            def put(item: tuple[int, str]) -> None:
                is_here = bool(come) and self._take(come, item[1], size=each.file.size)
                data = come if is_here else self._chunk(each, *item)
                with writable() as descriptor:
                    _write_at(descriptor, data, item[0] * CHUNK_BYTES)

            if len(digests) == 1:
                put((0, digests[0]))
            else:
                _run_all([self._chunks.submit(put, item) for item in enumerate(digests)])
            with writable() as descriptor:
                self.skeleton.finish(each, descriptor)
        if self._leases is not None:
            self._leases.let_go(each.place)
        with self._lock:
            self.counts.files += 1
            self.counts.bytes += each.file.size

    @contextlib.contextmanager
    def _writer(self, each: SkeletonFile) -> Iterator[Callable[[], AbstractContextManager[int]]]:
        """Give what lends a descriptor of the file: of its lease, or an own one."""
        leases = self._leases
        if leases is not None:
            yield lambda: leases.borrow(each.place)
            return
        descriptor = self.skeleton.open(each)
        try:
            yield lambda: contextlib.nullcontext(descriptor)
        finally:
            os.close(descriptor)

    def _chunk(self, each: SkeletonFile, index: int, digest: str, part: int | None = None) -> bytes:
        """Return bytes that are those of their digest, from ranges that have come, the cache, or else their source."""
        if part is None:
            size = min(CHUNK_BYTES, each.file.size - index * CHUNK_BYTES)
            ranges = self._ranges  # may be given up meanwhile
            come = None if ranges is None else ranges.chunk(each, index)
            if come is not None and digest_of_chunk(come) == digest:
                return come
        else:
            size = min(RANGE_BYTES, each.file.size - part * RANGE_BYTES)
        data = self._retry(lambda: self._cache.get(digest))
        if data is not None and len(data) == size:
            with self._lock:
                self.counts.cache_chunks += 1
            return data
        for _ in range(_MOST_TRIES):
            data = self._retry(lambda: self._source.chunk(each.root, each.file, index, part))
            if self._take(data, digest, size=size):
                return data
        raise DamagedChunk(
            f"{each.place}: chunk {index} came {_MOST_TRIES} times with bytes that are not its own"
        )

    def _take(self, data: bytes, digest: str, *, size: int) -> bool:
        """Keep what has come, for others too; False where it is not what was asked for."""
        is_whole = len(data) == size and digest_of_chunk(data) == digest
        with self._lock:
            self.counts.source_chunks += 1
            self.counts.source_bytes += len(data)
            self.counts.damaged += not is_whole
        if is_whole:
            with contextlib.suppress(OSError):  # a full cache costs time, not the training
                self._cache.put(digest, data)
        return is_whole

    def _retry(self, ask: Callable[[], T]) -> T:
        """Ask until there is an answer, more and more seldom but at least every two seconds."""
        since: float | None = None
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                answer = ask()
            except (SourceAway, OSError) as error:
                now = time.monotonic()
                since = now if since is None else since
                if now - since > self._patience:
                    raise SourceGone(
                        f"the data's machine has not answered for {now - since:.0f} s: {error}"
                    ) from error
                with self._lock:
                    was_waiting, self.waiting = self.waiting, "waiting for data"
                if not was_waiting:
                    self._away()
                self.waiting = f"waiting for data for {now - since:.0f} s: {error}"
                if self._is_closed.wait(pause):
                    raise SourceGone("the run has ended") from error
                pause = min(_LONGEST_PAUSE_SECONDS, pause * 1.5)
                continue
            if since is not None:
                with self._lock:
                    self.counts.waited_seconds += time.monotonic() - since
                    self.waiting = ""
            return answer

    def to_json(self) -> dict[str, object]:
        """Return the counts, with what the cache had to mend."""
        found = asdict(self.counts)
        found["damaged"] = self.counts.damaged + self._cache.damaged
        return found

    def close(self) -> None:
        """Fetch nothing more; what is under way ends or stays unready."""
        self._is_closed.set()
        for pool in (self._asked, self._beforehand, self._chunks):
            pool.shutdown(wait=True, cancel_futures=True)


def _run_all(futures: Sequence[Future[None]]) -> None:
    """Raise what one of them raises, but not before all have ended: their file is closed then."""
    try:
        for future in futures:
            future.result()
    finally:
        for future in futures:
            future.cancel()
        wait(futures)


def _write_at(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
