"""The laptop's side of data on demand: what is asked for is sent, whole, and once; what was changed is refused."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_training.cloud.client import CloudClient
from airflow_training.cloud.data_sharing import DataSharer
from airflow_training.cloud.packing import PackHeader, header_line
from airflow_training.cloud.service.data_routes import keep_chunks
from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.remote_data.chunks import (
    CHUNK_BYTES,
    ChunkCache,
    digest_of_chunk,
    open_chunk_store,
)
from airflow_training.remote_data.known_digests import KnownDigests
from airflow_training.remote_data.roots import SharedRoots, share

pytestmark = pytest.mark.e2e


class ServiceInMemory(CloudClient):
    """A service on the other end of a wire that flips bytes, and that goes away now and then."""

    def __init__(
        self, folder: Path, wanted: Sequence[str], *, flips: int = 0, away: int = 0
    ) -> None:
        self.cache = ChunkCache(open_chunk_store(str(folder)))
        self.wanted = [*wanted]
        self.answers: dict[str, Mapping[str, Any]] = {}
        self.flips, self.away = flips, away
        self._random = random.Random(7)

    def data_requests(self, run_id: str, *, wait_seconds: float) -> Mapping[str, Any]:
        if self.away:
            self.away -= 1
            raise RuntimeUnavailable("away")
        return {"over": not self.wanted, "requests": self.wanted}

    def missing_chunks(self, run_id: str, digests: Sequence[str]) -> Sequence[str]:
        return [each for each in digests if self.cache.get(each) is None]

    def send_chunks(self, run_id: str, chunks: Mapping[str, bytes]) -> Sequence[str]:
        parts = []
        for digest, data in chunks.items():
            content = bytearray(data)
            if self.flips and content:
                self.flips -= 1
                content[self._random.randrange(len(content))] ^= 1 << self._random.randrange(8)
            parts += [header_line(PackHeader(sha256=digest, size=len(data))), bytes(content)]
        return keep_chunks(self.cache, b"".join(parts))[1]

    def answer_data(self, run_id: str, answers: Mapping[str, Mapping[str, Any]]) -> None:
        self.answers |= answers
        self.wanted = [each for each in self.wanted if each not in answers]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number:02d}.bin").write_bytes(bytes([number]) * 500)
    (folder / "large.bin").write_bytes(os.urandom(2 * CHUNK_BYTES + 5))
    return folder


def shared_of(data: Path, known: KnownDigests | None = None) -> SharedRoots:
    manifest = replace(share([data]).manifest, source="run")
    return SharedRoots(manifest, known=known)


def served(shared: SharedRoots, folder: Path, **options: int) -> tuple[ServiceInMemory, DataSharer]:
    names = [f"{key}.0.json" for key in shared.manifest.files_by_key]
    service = ServiceInMemory(folder, names, **options)
    sharer = DataSharer(service, "run", shared)
    sharer.serve()
    return service, sharer


def contents(service: ServiceInMemory, shared: SharedRoots) -> Mapping[str, bytes]:
    found = {}
    for key, (_, file) in shared.manifest.files_by_key.items():
        chunks = [service.cache.get(each) for each in service.answers[f"{key}.0.json"]["chunks"]]
        found[file.path] = b"".join(each or b"" for each in chunks)
    return found


def test_all_arrives_though_bytes_flip_on_the_way_and_the_service_goes_away(data, tmp_path):
    shared = shared_of(data)
    service, sharer = served(shared, tmp_path / "store", flips=60, away=3)
    assert contents(service, shared) == {each.name: each.read_bytes() for each in data.iterdir()}
    assert len(sharer.read) == 31
    assert service.flips == 0


def test_what_the_service_has_is_not_sent_again(data, tmp_path):
    shared = shared_of(data)
    _, first = served(shared, tmp_path / "store")
    assert first.sent_bytes == shared.manifest.size
    service, second = served(shared_of(data), tmp_path / "store")
    assert second.sent_bytes == 0
    assert len(contents(service, shared)) == 31


def test_a_file_that_was_changed_is_refused_by_its_name_and_the_others_are_sent(data, tmp_path):
    shared = shared_of(data)
    (data / "07.bin").write_bytes(b"other")
    (data / "08.bin").unlink()
    service, _ = served(shared, tmp_path / "store")
    refused = {
        file.path: answer
        for key, (_, file) in shared.manifest.files_by_key.items()
        if "error" in (answer := service.answers[f"{key}.0.json"])
    }
    assert {each["error"] for each in refused.values()} == {"DataSourceChanged"}
    assert sorted(refused) == ["07.bin", "08.bin"]
    assert f"{data}/07.bin" in refused["07.bin"]["message"]


def test_a_digest_of_an_earlier_run_is_compared_with_what_is_sent(data, tmp_path):
    """A file system whose times lie: what is sent is digested all the same."""
    shared = shared_of(data, KnownDigests(tmp_path / "known.jsonl"))
    [key] = [
        key for key, (_, file) in shared.manifest.files_by_key.items() if file.path == "03.bin"
    ]
    root = shared.manifest.roots[0].name
    shared.digests(root, "03.bin")
    before = (data / "03.bin").stat()
    (data / "03.bin").write_bytes(b"x" * 500)
    os.utime(data / "03.bin", ns=(before.st_atime_ns, before.st_mtime_ns))
    service, _ = served(shared, tmp_path / "store")
    assert service.answers[f"{key}.0.json"]["error"] == "DataSourceChanged"


def test_what_was_not_shown_is_refused(data, tmp_path):
    service = ServiceInMemory(tmp_path / "store", [f"{'0' * 64}.0.json"])
    DataSharer(service, "run", shared_of(data)).serve()
    [answer] = service.answers.values()
    assert answer["error"] == "DataNotShared"


class FullDisk:
    """A store without room, as often as it is told."""

    def __init__(self, times: int) -> None:
        self.times = times

    def create(self, key: str, data: bytes) -> None:
        if self.times:
            self.times -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_service_whose_disk_is_full_says_so():
    pack = header_line(PackHeader(sha256=digest_of_chunk(b"a"), size=1)) + b"a"
    with pytest.raises(RuntimeUnavailable, match="cannot be kept: No space left on device"):
        keep_chunks(ChunkCache(cast(Any, FullDisk(1))), pack)


def test_what_is_refused_for_want_of_room_is_told_once_and_sent_after_a_pause(
    data, tmp_path, monkeypatch
):
    paused: list[float] = []
    monkeypatch.setattr("airflow_training.cloud.data_sharing.time.sleep", paused.append)
    shared = shared_of(data)
    service = ServiceInMemory(
        tmp_path / "store", [f"{key}.0.json" for key in shared.manifest.files_by_key]
    )
    create, disk = service.cache.put, FullDisk(6)

    def put(digest: str, content: bytes) -> None:
        disk.create(digest, content)
        create(digest, content)

    monkeypatch.setattr(service.cache, "put", put)
    told: list[str] = []
    DataSharer(service, "run", shared, told=told.append).serve()
    assert contents(service, shared) == {each.name: each.read_bytes() for each in data.iterdir()}
    assert told == ["run: data that comes cannot be kept: No space left on device"]
    assert paused.count(2.0) == 6


def test_a_service_that_stays_away_is_given_up(data, tmp_path):
    service = ServiceInMemory(tmp_path / "store", [], away=1000)
    with pytest.raises(RuntimeUnavailable, match="away"):
        DataSharer(service, "run", shared_of(data)).serve(away_seconds=0.0)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (header_line(PackHeader(sha256="../x", size=1)) + b"a", "something else than whole chunks"),
        (
            header_line(PackHeader(sha256="0" * 64, size=CHUNK_BYTES + 1)),
            "something else than whole",
        ),
        (header_line(PackHeader(sha256="0" * 64, size=9)) + b"a", "ends in the middle"),
    ],
)
def test_a_pack_that_no_client_sends_is_refused(tmp_path, body, why):
    with pytest.raises(InputError, match=why):
        keep_chunks(ChunkCache(open_chunk_store(str(tmp_path))), body)
