"""Answers what a run reads of this machine: dials out, waits for requests and sends chunks, until the run is over."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from airflow_training.cloud.client import CloudClient
from airflow_training.cloud.locks import is_locked, take_lock
from airflow_training.cloud.targets import cloud_folder
from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.interception.protocol import RANGE_BYTES
from airflow_training.remote_data.chunks import CHUNK_BYTES
from airflow_training.remote_data.errors import DataError, DataNotShared
from airflow_training.remote_data.known_digests import KnownDigests
from airflow_training.remote_data.mailbox import asked_in
from airflow_training.remote_data.manifest import DataManifest
from airflow_training.remote_data.roots import SharedRoots

__all__ = [
    "DataSharer",
    "keep_manifest",
    "known_digests",
    "known_manifest",
    "share_run",
    "start_sharing",
]

_POLL_SECONDS = 10.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 2.0
_AWAY_SECONDS = 7 * 86400.0
"""How long a service that does not answer is tried again."""
_WORKERS = 6
_BATCH_FILES = 64
_BATCH_BYTES = 2 * CHUNK_BYTES
_ASKED_AT_ONCE = 64
"""Chunks: the service reads each that it has, to see whether it is whole."""
_MOST_TRIES = 20
"""Of a chunk that arrives damaged."""


class DataSharer:
    """One run's reads, answered from this machine's files."""

    def __init__(
        self,
        client: CloudClient,
        run_id: str,
        shared: SharedRoots,
        *,
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`shared`: what was shown before submission, with the run as its source."""
        self._told = told
        self._trouble = ""
        self._client = client
        self._run = run_id
        self._shared = shared
        self._files = shared.manifest.files_by_key
        self.sent_bytes = 0
        """Of chunks, without those that the service had."""
        self.read: set[str] = set()
        """Files that were asked for, by their keys."""

    def serve(self, *, away_seconds: float = _AWAY_SECONDS) -> None:
        """Answer until the run is over.

        Raises:
            RuntimeUnavailable: the service has not answered for `away_seconds`.
            InputError: it does not know the run, or the key any more.
        """
        away_since: float | None = None
        pause = _FIRST_PAUSE_SECONDS
        under_way: dict[str, Future[None]] = {}
        with ThreadPoolExecutor(_WORKERS) as pool:
            while True:
                try:
                    told = self._client.data_requests(self._run, wait_seconds=_POLL_SECONDS)
                except RuntimeUnavailable:
                    now = time.monotonic()
                    away_since = now if away_since is None else away_since
                    if now - away_since > away_seconds:
                        raise
                    time.sleep(pause)
                    pause = min(_LONGEST_PAUSE_SECONDS, pause * 1.5)
                    continue
                away_since, pause = None, _FIRST_PAUSE_SECONDS
                for done in [each for each in under_way.values() if each.done()]:
                    done.result()
                under_way = {name: each for name, each in under_way.items() if not each.done()}
                fresh = [str(each) for each in told["requests"] if each not in under_way]
                for batch in self._batches(fresh):
                    done = pool.submit(self._answer, batch)
                    under_way |= dict.fromkeys(batch, done)
                if told["over"]:
                    return
                if told["requests"] and not fresh:
                    time.sleep(_FIRST_PAUSE_SECONDS)

    def _batches(self, names: Sequence[str]) -> Iterator[Sequence[str]]:
        """Put small files together: each exchange costs the way there and back."""
        begun: list[str] = []
        size = 0
        for name in names:
            found = self._files.get(_key(name))
            bytes_ = 0 if found is None else found[1].size
            if _part(name) is not None:
                bytes_ = min(bytes_, RANGE_BYTES)
            if begun and (size + bytes_ > _BATCH_BYTES or len(begun) == _BATCH_FILES):
                yield begun
                begun, size = [], 0
            begun.append(name)
            size += bytes_
        if begun:
            yield begun

    def _answer(self, names: Sequence[str]) -> None:
        """Answer a few requests; what cannot be sent now is asked for again, after a pause."""
        try:
            self._send_answers(names)
        except RuntimeUnavailable as error:  # its disk may be full, and sending no help
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._told(f"{self._run}: {error}")
            time.sleep(_LONGEST_PAUSE_SECONDS)

    def _send_answers(self, names: Sequence[str]) -> None:
        answers = {name: self._digests(name) for name in names}
        wanted = {
            each: (*self._place(name), number, _part(name))
            for name, answer in answers.items()
            for number, each in enumerate(answer.get("chunks", ()))
        }
        changed = self._send(wanted)
        for name in names:
            lost = [each for each in answers[name].get("chunks", ()) if each in changed]
            if lost:
                answers[name] = _refused(changed[lost[0]])
        self._client.answer_data(self._run, answers)
        self.read |= set(map(_key, answers))

    def _digests(self, name: str) -> Mapping[str, Any]:
        try:
            return {"chunks": [*self._shared.digests(*self._place(name), _part(name))]}
        except DataError as error:
            return _refused(error)

    def _place(self, name: str) -> tuple[str, str]:
        found = self._files.get(_key(name))
        if found is None:
            raise DataNotShared("what is asked for was not shown before submission")
        return found[0].name, found[1].path

    def _send(
        self, wanted: Mapping[str, tuple[str, str, int, int | None]]
    ) -> Mapping[str, DataError]:
        """Send the chunks that the service has not; returns those that cannot be read any more, with why."""
        if not wanted:
            return {}
        changed: dict[str, DataError] = {}
        pack: dict[str, bytes] = {}
        for digest in self._missing([*wanted]):
            try:
                pack[digest] = self._shared.chunk(*wanted[digest])
            except DataError as error:
                changed[digest] = error
                continue
            if sum(map(len, pack.values())) >= _BATCH_BYTES:
                self._send_pack(pack)
                pack = {}
        if pack:
            self._send_pack(pack)
        return changed

    def _missing(self, digests: Sequence[str]) -> Iterator[str]:
        for start in range(0, len(digests), _ASKED_AT_ONCE):
            part = digests[start : start + _ASKED_AT_ONCE]
            yield from self._client.missing_chunks(self._run, part)

    def _send_pack(self, pack: Mapping[str, bytes]) -> None:
        for _ in range(_MOST_TRIES):
            damaged = self._client.send_chunks(self._run, pack)
            self.sent_bytes += sum(map(len, pack.values()))
            pack = {each: pack[each] for each in damaged}
            if not pack:
                return
        raise RuntimeUnavailable("what is sent arrives damaged, again and again")


def _refused(error: DataError) -> Mapping[str, Any]:
    return {"error": error.reason, "message": str(error)}


def _key(letter: str) -> str:
    found = asked_in(letter)
    return "" if found is None else found[0]


def _part(letter: str) -> int | None:
    found = asked_in(letter)
    return None if found is None else found[1]


# the process that shares ------------------------------------------------------------------------------


def known_digests() -> KnownDigests:
    """Digests of what earlier runs have read of this machine."""
    return KnownDigests(cloud_folder() / "client" / "digests.jsonl")


def keep_manifest(run_id: str, manifest: DataManifest) -> None:
    """Remember what a run may read of this machine, before it can ask."""
    path = _path(run_id, "json")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(manifest.to_bytes(with_digests=True))
    draft.replace(path)


def known_manifest(run_id: str) -> DataManifest | None:
    """What a run may read of this machine; None where that is nothing."""
    if "/" in run_id:
        return None
    try:
        document = _path(run_id, "json").read_bytes()
    except FileNotFoundError:
        return None
    return DataManifest.from_bytes(document, source=run_id, with_digests=True)


def share_run(client: CloudClient, run_id: str, *, told: Callable[[str], None]) -> bool:
    """Serve a run's data until it is over; False where another process of this machine does that already.

    Raises InputError where nothing was shown to the run.
    """
    manifest = known_manifest(run_id)
    if manifest is None:
        raise InputError.of(
            code="not_found",
            field="RUN",
            value=run_id,
            message="reads nothing of this machine, or was not sent from here",
            hint="airflow-training cloud list",
        )
    with _path(run_id, "lock").open("a") as lock:
        if not take_lock(lock):
            return False
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        shared = SharedRoots(manifest, known=known_digests())
        sharer = DataSharer(client, run_id, shared, told=told)
        told(
            f"{run_id} may read {sum(len(root.files) for root in manifest.roots):,} files of this machine"
        )
        try:
            sharer.serve()
        finally:
            told(f"{run_id}: {len(sharer.read)} files were read, {sharer.sent_bytes} bytes sent")
    return True


def start_sharing(run_id: str, *, target: str) -> None:
    """Let a process of its own serve a run's data until the run is over, unless one does."""
    if known_manifest(run_id) is None or is_locked(_path(run_id, "lock")):
        return
    home = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
    words = ["cloud", "share", run_id, "--target", target]
    with _path(run_id, "log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "airflow_training.cli", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C ends who follows, not who shares
            cwd=cloud_folder(),  # no module of the project is imported by its name
            env={**os.environ, "PYTHONPATH": path},
        )


def _path(run_id: str, kind: str) -> Path:
    return cloud_folder() / "client" / "data" / f"{run_id}.{kind}"
