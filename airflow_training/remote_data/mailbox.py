"""The sharing machine answers through a storage, for laptops that nobody can reach and that may sleep.

    requests/<key>.<try>.json     a node asks for a file of the manifest; for its range N: <key>.r<N>.<try>.json
    answers/<key>.<try>.json      its digests, all chunks being in the cache by then; or an error
    counts/<any>.json             what a node has fetched, left at its end

All nodes ask under the same key, so a file travels once. Objects are only ever created and deleted.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.checkpoints.errors import CheckpointError, KeyExists
from airflow_training.checkpoints.store import ObjectStore
from airflow_training.remote_data.chunks import ChunkCache, open_chunk_store
from airflow_training.remote_data.errors import DataError, DataNotShared, SourceAway, error_of
from airflow_training.remote_data.manifest import DataFile, DataManifest, DataRoot
from airflow_training.remote_data.roots import SharedRoots

__all__ = ["LetterBox", "Mailbox", "MailboxSource", "asked_in", "start_mailbox"]

_LETTER = re.compile(r"([0-9a-f]{64})(?:\.r([0-9]{1,9}))?\.[0-9]{1,9}\.json")
_POLL_SECONDS = 0.2
_SLOWEST_POLL_SECONDS = 1.0
_ANSWER_SECONDS = 2.0
"""So long a node looks for an answer before it says that it waits for the sharing machine."""


def _folder(source: str) -> str:
    return f"mailboxes/{source}"


def asked_in(letter: str) -> tuple[str, int | None] | None:
    """Key of the file that a request `KEY.TRY.json` or `KEY.rN.TRY.json` asks for, and N; None for another name."""
    found = _LETTER.fullmatch(letter)
    if found is None:
        return None
    return found[1], None if found[2] is None else int(found[2])


class LetterBox:
    """The requests and answers of one mailbox, for whoever answers: beside the storage, or far from it."""

    def __init__(self, store: ObjectStore, source: str) -> None:
        """`source`: of the manifest whose files are asked for."""
        self._store = store
        self._folder = _folder(source)

    def requests(self) -> list[str]:
        """Return the names of the requests that wait; what else lies there asks for nothing."""
        found = self._store.list(f"{self._folder}/requests/")
        names = (name.rpartition("/")[2] for name, _ in found)
        return [name for name in names if asked_in(name) is not None]

    def answer(self, name: str, document: Mapping[str, Any]) -> None:
        """Answer a request; the first answer counts."""
        with contextlib.suppress(KeyExists):
            self._store.create(f"{self._folder}/answers/{name}", json.dumps(document).encode())
        self._store.delete(f"{self._folder}/requests/{name}")

    def keep_counts(self, counts: Mapping[str, Any]) -> None:
        """Leave what one node has fetched."""
        name = f"{self._folder}/counts/{secrets.token_hex(8)}.json"
        self._store.create(name, json.dumps(counts).encode())

    def counts(self) -> Mapping[str, float]:
        """What all nodes have left, added up; what is no such count is left out."""
        total: dict[str, float] = {}
        for name, _ in self._store.list(f"{self._folder}/counts/"):
            try:
                left = json.loads(self._store.read(name))
            except ValueError:
                continue
            for kind, number in left.items() if isinstance(left, dict) else ():
                if isinstance(number, (int, float)):
                    total[kind] = total.get(kind, 0) + number
        return total

    def clear(self) -> None:
        """Remove everything, once nobody asks any more."""
        for name, _ in self._store.list(f"{self._folder}/"):
            self._store.delete(name)


class Mailbox:
    """The sharing machine's side: looks for requests and answers them."""

    def __init__(self, shared: SharedRoots, store: ObjectStore) -> None:
        """`store`: where the mailbox and the chunks lie."""
        self._shared = shared
        self._cache = ChunkCache(store)
        self._letters = LetterBox(store, shared.manifest.source)
        self._files = shared.manifest.files_by_key
        self.sent_bytes = 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def poll(self) -> int:
        """Answer what is asked by now; return how many requests that were."""
        asked = self._letters.requests()
        for name in asked:
            self._letters.answer(name, self._answer(*(asked_in(name) or ("", None))))
        return len(asked)

    def _answer(self, key: str, part: int | None = None) -> dict[str, Any]:
        try:
            found = self._files.get(key)
            if found is None:
                raise DataNotShared("what is asked for was not shown before submission")
            root, file = found
            digests = self._shared.digests(root.name, file.path, part)
            for index, digest in enumerate(digests):
                if self._cache.get(digest) is None:
                    data = self._shared.chunk(root.name, file.path, index, part)
                    self._cache.put(digest, data)
                    self.sent_bytes += len(data)
        except DataError as error:
            return {"error": error.reason, "message": str(error)}
        return {"chunks": list(digests)}

    def start(self) -> None:
        """Look for requests in a thread until `close`, at least once a second."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        pause = _POLL_SECONDS
        while not self._stopped.wait(pause):
            try:
                busy = self.poll()
            except (OSError, CheckpointError):  # the storage is away: so are the nodes
                busy = 0
            pause = _POLL_SECONDS if busy else min(_SLOWEST_POLL_SECONDS, pause * 1.5)

    def close(self) -> None:
        """Stop answering; what is asked stays where it is."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()


def start_mailbox(shared: SharedRoots, storage: str) -> Mailbox:
    """Answer through the storage at an address until `close`."""
    mailbox = Mailbox(shared, open_chunk_store(storage))
    mailbox.start()
    return mailbox


class MailboxSource:
    """A node's side."""

    def __init__(
        self,
        manifest: DataManifest,
        store: ObjectStore,
        *,
        answer_seconds: float = _ANSWER_SECONDS,
    ) -> None:
        """`store`: as that of the `Mailbox`; after `answer_seconds` without an answer it counts as away."""
        self._answer_seconds = answer_seconds
        self._manifest = manifest
        self._store = store
        self._cache = ChunkCache(store)
        self._folder = _folder(manifest.source)
        self._tries: dict[str, int] = {}

    def digests(self, root: DataRoot, file: DataFile, part: int | None = None) -> Sequence[str]:
        key = self._key(root, file, part)
        letter = f"{key}.{self._tries.get(key, 0)}.json"
        self._ask(letter)
        end = time.monotonic() + self._answer_seconds
        pause = 0.05
        told = self._read(letter)
        while told is None:
            if time.monotonic() > end:
                raise SourceAway("the sharing machine has not answered yet")
            time.sleep(pause)
            pause = min(0.5, pause * 1.5)
            told = self._read(letter)
        if "error" in told:
            raise error_of(str(told["error"]), str(told["message"]))
        return [str(each) for each in told["chunks"]]

    def _read(self, letter: str) -> dict[str, Any] | None:
        try:
            answer: dict[str, Any] = json.loads(
                self._store.read(f"{self._folder}/answers/{letter}")
            )
        except FileNotFoundError:
            return None
        except ValueError:  # of a power cut: the question is asked anew
            self._store.delete(f"{self._folder}/answers/{letter}")
            return None
        except OSError as error:
            raise SourceAway(f"the mailbox cannot be read: {error}") from error
        return answer

    def _key(self, root: DataRoot, file: DataFile, part: int | None) -> str:
        key = self._manifest.key_of(root, file)
        return key if part is None else f"{key}.r{part}"

    def only_chunk(self, root: DataRoot, file: DataFile) -> tuple[Sequence[str], bytes]:
        """Return the digests alone: what they name lies in the storage by then."""
        return self.digests(root, file), b""

    def chunk(self, root: DataRoot, file: DataFile, index: int, part: int | None = None) -> bytes:
        """Return a chunk that the answer has promised; where it is damaged or gone, the file is asked for anew."""
        data = self._cache.get(self.digests(root, file, part)[index])
        if data is None:
            key = self._key(root, file, part)
            self._tries[key] = self._tries.get(key, 0) + 1
            data = self._cache.get(self.digests(root, file, part)[index])
        if data is None:
            raise SourceAway(f"{file.path}: a chunk is not in the storage yet")
        return data

    def has_requests(self) -> bool:
        """Return whether a node waits for an answer; False too where that cannot be known now."""
        try:
            return bool(self._store.list(f"{self._folder}/requests/"))
        except OSError:
            return False

    def _ask(self, letter: str) -> None:
        """Ask, unless it was answered already; asking twice is asking once."""
        try:
            self._store.size(f"{self._folder}/answers/{letter}")
        except FileNotFoundError:
            try:
                self._store.create(f"{self._folder}/requests/{letter}", b"{}")
            except KeyExists:
                return
            except OSError as error:
                raise SourceAway(f"the mailbox cannot be written: {error}") from error
        except OSError as error:
            raise SourceAway(f"the mailbox cannot be read: {error}") from error
