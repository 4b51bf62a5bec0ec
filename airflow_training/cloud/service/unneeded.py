"""What a service's folder keeps that no run needs any more: folders of runs, contents, chunks. Found, chosen and removed.

Needed is what a submission names that has not started yet, for a day, and whose run is not over. Everything else can be had
again from whoever sends it, but for what a run wrote into its folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflow_training.cloud.protocol import SubmissionRequest, TreeManifest
from airflow_training.cloud.service.content import ContentFolder
from airflow_training.cloud.service.stored_outputs import StoredOutputs
from airflow_training.cloud.service.unneeded_items import ItemKind, UnneededItem
from airflow_training.control.model import TERMINAL_JOB_STATES
from airflow_training.errors import InputError, TrainingError
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

_log = logging.getLogger(__name__)

_BEGUN_SECONDS = 86400.0
"""A submission that was not started within it is none any more."""
_RUNS = 1_000_000
_QUEUED_SECONDS = 7 * 86400.0
"""A run that was started and that the store does not know, and in whose folder nothing has changed for so long, was
deleted there; before, it may wait to begin, or be one of another store."""
_ENDED_SECONDS = 86400.0
"""So long the folder of a run that is over does not make room: what comes back of it may not have been fetched."""
_RUN = re.compile(r"[-a-z0-9]{1,60}")


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
        if each.since >= before and each.makes_room:
            chosen.append(each)
            left -= each.bytes
    return chosen


def find_unneeded(folder: Path, store: Store, *, now: float) -> Sequence[UnneededItem]:
    """All that may go of a service's folder. Reads the lists of what runs are made of, and changes nothing."""
    content = ContentFolder(folder / "content")
    found = _find_submissions(folder, store, now=now)
    last_needed: dict[str, float] = {}
    items: list[UnneededItem] = []
    for each in found:
        if each.is_needed:
            continue
        for sha256 in each.contents:
            last_needed[sha256] = max(each.since, last_needed.get(sha256, 0.0))
        there = [path for path in each.places if os.path.lexists(path)]
        size = sum(map(folder_bytes, there))
        items.append(
            UnneededItem(
                kind="run",
                name=each.run_id,
                bytes=size,
                since=each.since,
                paths=there,
                makes_room=each.makes_room,
            )
        )
    needed = _needed_contents(found)
    for path in content.all():
        with contextlib.suppress(FileNotFoundError):  # it was found damaged just now
            info = path.stat()
            if path.name not in needed:
                since = max(info.st_mtime, last_needed.get(path.name, 0.0))
                items.append(
                    UnneededItem(
                        kind="content",
                        name=path.name,
                        bytes=info.st_size,
                        since=since,
                        paths=[path, *content.proofs(path.name)],
                    )
                )
    return [*items, *_chunks(folder / "data")]


def collect_garbage(
    folder: Path,
    store: Store,
    *,
    before: float,
    most_bytes: int = 0,
    is_dry: bool = False,
    outputs: StoredOutputs | None = None,
) -> Sequence[UnneededItem]:
    """Remove what `choose_unneeded` chooses, where the folder may have `most_bytes` (0: any); returns what has gone.

    No submission is laid out while it is decided what goes, and that is moved away; it is deleted after that, which may
    take long. `is_dry`: nothing is removed. `outputs`: what runs have left in the storage of a target, which goes with
    them, and before.

    Raises InputError where that cannot be reached; what was removed by then is gone.
    """
    garbage = _Garbage(folder)
    left = garbage.items()
    items = find_unneeded(folder, store, now=time.time())
    kept_bytes = folder_bytes(folder) - sum(each.bytes for each in left) if most_bytes else 0
    chosen = choose_unneeded(items, before=before, too_many_bytes=max(0, kept_bytes - most_bytes))
    if outputs is not None:
        chosen = [each if each.kind != "run" else outputs.with_size(each) for each in chosen]
    if is_dry:
        return [*left, *chosen]
    going: Sequence[UnneededItem] = []
    taken: list[UnneededItem | None] = []
    started: Sequence[UnneededItem] = []
    guard = FolderGuard(folder)
    if chosen:
        with guard.alone():
            # what was sent or started while we looked
            found = _find_submissions(folder, store, now=time.time())
            runs = {each.run_id for each in found if each.is_needed}
            kept = {"run": runs, "content": _needed_contents(found), "chunk": frozenset[str]()}
            going = [each for each in chosen if each.name not in kept[each.kind]]
            begun = {each.run_id for each in found if each.is_started}
            started = [each for each in going if each.kind == "run" and each.name in begun]
            for each in going:
                if outputs is None or each not in started:
                    if outputs is not None and each.kind == "run":  # who has sent it may start it
                        outputs.remove(each)
                    taken.append(garbage.take(each))
    gone = [each for each in (*left, *taken) if each is not None and _remove_item(each)]
    if outputs is not None:
        for each in (
            started
        ):  # which may take long: by then another gc may have removed it, and it was sent again
            if _is_needed(folder, store, each):
                continue
            outputs.remove(each)
            with guard.alone():
                moved = None if _is_needed(folder, store, each) else garbage.take(each)
            if moved is not None and _remove_item(moved):
                gone.append(moved)
    return gone


class _Garbage:
    """What goes, out of everybody's way: moved here in a moment, and deleted while nobody waits.

    What cannot be deleted, or is left by a kill, goes next time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "garbage"

    def items(self) -> Sequence[UnneededItem]:
        """What an earlier look has left."""
        kinds: tuple[ItemKind, ...] = ("run", "content")
        return [
            UnneededItem(
                kind=kind, name=place.name, bytes=folder_bytes(place), since=0.0, paths=[place]
            )
            for kind in kinds
            for place in (self._folder / kind).glob("*")
        ]

    def take(self, item: UnneededItem) -> UnneededItem | None:
        """The item where it lies from now on; None where not all of it could be moved, or deleted, and is found again."""
        if item.kind == "chunk":  # whoever misses one has it sent again
            return item
        place = self._folder / item.kind / item.name
        place.mkdir(parents=True, exist_ok=True)
        all_gone = all(_moves(path, place) or _remove(path) for path in item.paths)
        return replace(item, paths=[place]) if all_gone else None


def _moves(path: Path, folder: Path) -> bool:
    """Whether a path lies in a folder now; not one of another file system, or of another user."""
    with contextlib.suppress(OSError):
        path.rename(folder / secrets.token_hex(8))
        return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeptSubmission:
    """What a service's folder keeps of a submission."""

    run_id: str
    contents: frozenset[str]
    places: Sequence[Path]
    since: float
    """When it was needed last."""
    is_needed: bool
    is_started: bool
    makes_room: bool


def _is_needed(folder: Path, store: Store, run: UnneededItem) -> bool:
    """Whether a run is needed by now."""
    states = [path for path in run.paths if path.parent == folder / "submissions"]
    found = _find_submissions(folder, store, now=time.time(), states=states)
    return any(each.is_needed for each in found)


def _find_submissions(
    folder: Path, store: Store, *, now: float, states: Sequence[Path] | None = None
) -> Sequence[_KeptSubmission]:
    content = ContentFolder(folder / "content")
    records = store.runs(limit=_RUNS)
    living = {each.key.run_id for each in records if each.state not in TERMINAL_JOB_STATES}
    ended = {each.key.run_id: each.finished_at or each.submitted_at for each in records}
    found: list[_KeptSubmission] = []
    for state in (folder / "submissions").glob("*") if states is None else states:
        known = _submission(state)
        if known is None:
            continue
        request, run_id, is_started, since = known
        places = [
            folder / "runs" / run_id,
            folder / "runs" / f"{run_id}.json",
            content.parts(state.name),
            state,
        ]
        is_needed = run_id in living
        if not is_started:  # whatever became of the run when it was sent before
            is_needed |= now - since < _BEGUN_SECONDS
        elif run_id not in ended:
            since = max(since, *map(_changed_at, places))
            is_needed |= now - since < _QUEUED_SECONDS
        since = max(since, ended.get(run_id, 0.0))
        found.append(
            _KeptSubmission(
                run_id=run_id,
                contents=frozenset(_contents(content, request)),
                places=places,
                since=since,
                is_needed=is_needed,
                is_started=is_started,
                makes_room=(run_id in ended or not is_started) and now - since > _ENDED_SECONDS,
            )
        )
    return found


def _needed_contents(found: Sequence[_KeptSubmission]) -> frozenset[str]:
    return frozenset().union(*(each.contents for each in found if each.is_needed))


def trim_chunks(storage: Path, *, most_bytes: int) -> int:
    """Remove chunks of a storage until they have `most_bytes`, the longest unread first; returns the bytes removed.

    Whoever misses one has it sent again.
    """
    items = [*_chunks_of(storage)]
    too_many = sum(each.bytes for each in items) - most_bytes
    chosen = choose_unneeded(items, before=0.0, too_many_bytes=max(0, too_many))
    return sum(each.bytes for each in chosen if _remove_item(each))


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
        try:
            collect_garbage(self._folder, store, before=0.0, most_bytes=self._most)
        except (OSError, TrainingError):  # nobody waits for the thread: it is tried again
            _log.exception("cannot make room in %s", self._folder)


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


def _submission(state: Path) -> tuple[SubmissionRequest, str, bool, float] | None:
    """Request, run, whether it was started, and when that was written."""
    path = state / "submission.json"
    try:
        document: Mapping[str, Any] = json.loads(path.read_text())
        request = SubmissionRequest.from_json(document["request"])
        run_id = str(document["run_id"])
        at = path.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError, InputError):
        return None
    if not _RUN.fullmatch(run_id):  # a folder that somebody else writes to: it is a name of files
        return None
    return request, run_id, bool(document["started"]), at


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


def _changed_at(path: Path) -> float:
    """When something at or below a path was written last; 0 where nothing is there."""
    found = 0.0
    with contextlib.suppress(OSError):
        found = path.lstat().st_mtime
    if path.is_dir() and not path.is_symlink():
        for here, folders, names in os.walk(path):
            for name in (*folders, *names):
                with contextlib.suppress(OSError):
                    found = max(found, Path(here, name).lstat().st_mtime)
    return found


def _remove_item(item: UnneededItem) -> bool:
    """Whether all of it has gone; what cannot be removed keeps what it is found by."""
    return all(_remove(path) for path in item.paths)


def _remove(path: Path) -> bool:
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return not os.path.lexists(path)
