"""What a service's folder keeps that no run needs any more: folders of runs, contents, chunks. Found, chosen and removed.

Needed is what a submission names that has not started yet, for a day, and whose run is not over. Everything else can be had
again from whoever sends it, but for what a run wrote into its folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from airflow_training.cloud.protocol import SubmissionRequest, TreeManifest
from airflow_training.cloud.service.content import ContentFolder
from airflow_training.control.model import TERMINAL_JOB_STATES
from airflow_training.errors import InputError
from airflow_training.state.store import Store

__all__ = [
    "FolderGuard",
    "GarbageTimer",
    "UnneededItem",
    "choose_unneeded",
    "collect_garbage",
    "find_unneeded",
    "folder_bytes",
    "trim_chunks",
]

_BEGUN_SECONDS = 86400.0
"""A submission that was not started within it is none any more."""
_RUNS = 1_000_000
_QUEUED_SECONDS = 7 * 86400.0
"""A run that was started and that the store does not know after it was deleted there; before, it may wait to begin."""
ItemKind = Literal["run", "content", "chunk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnneededItem:
    """Something that may go."""

    kind: ItemKind
    name: str
    """A run's id, or a SHA-256."""
    bytes: int
    since: float
    """Nobody has needed it since then, in epoch seconds."""
    paths: Sequence[Path]


def choose_unneeded(
    items: Sequence[UnneededItem], *, before: float, too_many_bytes: int = 0
) -> Sequence[UnneededItem]:
    """Which go: those that nobody has needed since `before`, and as many more as hold `too_many_bytes`.

    Of the latter what can be had again goes first, then folders of runs, the oldest first. Pure.
    """
    ordered = sorted(items, key=lambda each: (each.kind == "run", each.since, each.name))
    chosen = [each for each in ordered if each.since < before]
    left = too_many_bytes - sum(each.bytes for each in chosen)
    for each in ordered:
        if left <= 0:
            break
        if each.since >= before:
            chosen.append(each)
            left -= each.bytes
    return chosen


def find_unneeded(folder: Path, store: Store, *, now: float) -> Sequence[UnneededItem]:
    """All that may go of a service's folder. Reads the lists of what runs are made of, and changes nothing."""
    content = ContentFolder(folder / "content")
    records = store.runs(limit=_RUNS)
    living = {each.key.run_id for each in records if each.state not in TERMINAL_JOB_STATES}
    ended = {each.key.run_id: each.finished_at or each.submitted_at for each in records}
    needed: set[str] = set()
    last_needed: dict[str, float] = {}
    items: list[UnneededItem] = []
    for state in (folder / "submissions").glob("*"):
        found = _submission(state)
        if found is None:
            continue
        request, run_id, is_started = found
        at = (state / "submission.json").stat().st_mtime
        patience = _QUEUED_SECONDS if is_started else _BEGUN_SECONDS
        is_begun = run_id not in ended and now - at < patience
        if run_id in living or is_begun:
            needed |= _contents(content, request)
            continue
        since = max(at, ended.get(run_id, 0.0))
        for sha256 in _contents(content, request):
            last_needed[sha256] = max(since, last_needed.get(sha256, 0.0))
        places = [
            folder / "runs" / run_id,
            folder / "runs" / f"{run_id}.json",
            state,
            content.parts(state.name),
        ]
        there = [each for each in places if each.exists()]
        size = sum(map(folder_bytes, there))
        items.append(UnneededItem(kind="run", name=run_id, bytes=size, since=since, paths=there))
    items += [
        UnneededItem(
            kind="content",
            name=path.name,
            bytes=path.stat().st_size,
            since=max(path.stat().st_mtime, last_needed.get(path.name, 0.0)),
            paths=[path, *content.proofs(path.name)],
        )
        for path in content.all()
        if path.name not in needed
    ]
    return [*items, *_chunks(folder / "data")]


def collect_garbage(
    folder: Path,
    store: Store,
    *,
    before: float,
    most_bytes: int = 0,
    is_dry: bool = False,
) -> Sequence[UnneededItem]:
    """Remove what `choose_unneeded` chooses, where the folder may have `most_bytes` (0: any); returns it.

    No submission is laid out meanwhile. `is_dry`: nothing is removed.
    """
    with FolderGuard(folder).alone():
        items = find_unneeded(folder, store, now=time.time())
        too_many = folder_bytes(folder) - most_bytes if most_bytes else 0
        chosen = choose_unneeded(items, before=before, too_many_bytes=max(0, too_many))
        for each in chosen if not is_dry else ():
            for path in each.paths:
                _remove(path)
    return chosen


def trim_chunks(storage: Path, *, most_bytes: int) -> int:
    """Remove chunks of a storage until they have `most_bytes`, the longest unread first; returns the bytes removed.

    Whoever misses one has it sent again.
    """
    items = [*_chunks_of(storage)]
    too_many = sum(each.bytes for each in items) - most_bytes
    chosen = choose_unneeded(items, before=0.0, too_many_bytes=max(0, too_many))
    for each in chosen:
        for path in each.paths:
            _remove(path)
    return sum(each.bytes for each in chosen)


class FolderGuard:
    """Either submissions are laid out from a folder, or something of it is removed. Among processes and threads."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "garbage.lock"

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Nothing is removed meanwhile."""
        yield from self._locked(fcntl.LOCK_SH)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nothing is laid out meanwhile."""
        yield from self._locked(fcntl.LOCK_EX)

    def _locked(self, kind: int) -> Iterator[None]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            fcntl.flock(file, kind)
            yield


class GarbageTimer:
    """Keeps a folder below its most bytes, now and then, in a thread."""

    def __init__(self, folder: Path, *, most_bytes: int, every_seconds: float = 600.0) -> None:
        self._folder = folder
        self._most = most_bytes
        self._every = every_seconds
        self._looked = -every_seconds
        self._lock = threading.Lock()

    def look(self, store: Store) -> None:
        """Have it looked after, unless that was done a moment ago, or there is no limit."""
        with self._lock:
            now = time.monotonic()
            if not self._most or now - self._looked < self._every:
                return
            self._looked = now
        threading.Thread(target=self._collect, args=(store,), daemon=True).start()

    def _collect(self, store: Store) -> None:
        collect_garbage(self._folder, store, before=0.0, most_bytes=self._most)


def folder_bytes(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; links are not followed, and none that goes meanwhile counts."""
    if not path.is_dir() or path.is_symlink():
        with contextlib.suppress(OSError):
            return path.lstat().st_size
        return 0
    total = 0
    for here, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                info = Path(here, name).lstat()
                total += min(info.st_size, info.st_blocks * 512)  # of a skeleton only what has come
    return total


def _submission(state: Path) -> tuple[SubmissionRequest, str, bool] | None:
    try:
        document: Mapping[str, Any] = json.loads((state / "submission.json").read_text())
        request = SubmissionRequest.from_json(document["request"])
    except (OSError, ValueError, KeyError, InputError):
        return None
    return request, str(document["run_id"]), bool(document["started"])


def _contents(content: ContentFolder, request: SubmissionRequest) -> set[str]:
    """What a submission is made of, as far as its list is here."""
    found = {each for each in (request.environment, request.manifest, request.data) if each}
    with contextlib.suppress(OSError, InputError):
        manifest = TreeManifest.from_bytes(content.path(request.manifest).read_bytes())
        found |= manifest.tree.blobs.keys()
    return found


def _chunks(data: Path) -> Iterator[UnneededItem]:
    for storage in data.glob("*"):
        yield from _chunks_of(storage)


def _chunks_of(storage: Path) -> Iterator[UnneededItem]:
    for path in (storage / "chunks").glob("*/*"):
        with contextlib.suppress(OSError):
            info = path.stat()
            yield UnneededItem(
                kind="chunk",
                name=path.name,
                bytes=info.st_size,
                since=max(info.st_mtime, info.st_atime),
                paths=[path],
            )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
