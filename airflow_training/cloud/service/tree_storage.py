"""Trees in a storage that instances reach: written once for each digest, as their agents read them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from airflow_training.agent.code_tree import blob_key, pack_key, packed_contents, tree_key
from airflow_training.agent.upload import local_target
from airflow_training.capture.model import Tree
from airflow_training.checkpoints.errors import CheckpointError, KeyExists
from airflow_training.checkpoints.store import LocalStore, RemoteStore, open_address
from airflow_training.cloud.service.run_files import open_below
from airflow_training.errors import InputError

__all__ = ["TreeStorage"]

_READ_BYTES = 4 << 20
_LET_IN = (
    "whoever asks needs credentials that may read, write and delete there, of S3 in AWS_ACCESS_KEY_ID and"
    " AWS_SECRET_ACCESS_KEY or a profile, and the instances in the target's `envFrom`; then the same command again"
)
_REACHED = (
    "the service and its instances have to read and write there: see `storage` of the target's settings;"
    " once it answers, the same command again"
)


class TreeStorage:
    """The storage at an address. What of it cannot be reached raises InputError with the address."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        self._opened: LocalStore | RemoteStore | None = None
        self._compared: dict[str, tuple[int, str]] = {}
        """Of objects whose bytes were compared, or written, the revision in which they were."""

    def check(self) -> None:
        """Write, read and delete an object; raises InputError where that is impossible."""
        key, words = f"probes/{secrets.token_hex(8)}", b"airflow-training"
        with self._told():
            self._store.create(key, words)
            same = self._store.read(key) == words
            self._store.delete(key)
        if not same:
            raise self._refusal(f"{self.uri} does not show what was just written")

    def has(self, tree: Tree) -> bool:
        """Whether all of a tree lies here; instances verify every byte of it."""
        return not any(self.size(key) != size for key, size in _objects(tree).items())

    def put(self, tree: Tree, content: Callable[[str], bytes | Path]) -> None:
        """Write what is missing or damaged of a tree, its rows last.

        An object is named by its digest, and read only once: from then on the storage is asked whether it is the same still.

        `content`: the bytes of a digest, or the file that has them. No content is held in memory as a whole.
        """
        rows = tree_key(tree.digest)
        for key, size in _objects(tree).items():
            if key == rows or self._is_whole(key, size, _parts(key, tree)):
                continue
            with tempfile.TemporaryFile() as draft:
                for sha256, _ in _parts(key, tree):
                    _append(draft, content(sha256))
                self._replace(key, draft)
        self._replace_rows(rows, rows_of(tree))

    def _is_whole(self, key: str, size: int, parts: Sequence[tuple[str, int]]) -> bool:
        """Whether an object is there and holds these contents, each with its bytes, one after the other."""
        now = self._revision(key)
        if now is None or now[0] != size:
            return False
        if now == self._compared.get(key) and now[1]:
            return True
        start = 0
        for sha256, length in parts:
            found = hashlib.sha256()
            for piece in self.stream(key, start=start, size=length):
                found.update(piece)
            if found.hexdigest() != sha256:
                return False
            start += length
        self._compared[key] = now
        return True

    def read(self, key: str, *, most: int) -> bytes | None:
        """At most so many bytes of an object that an instance wrote; None for none."""
        with self._told():
            try:
                if local_target(self.uri) is None:
                    return self._store.read(key, 0, most)
                with self._own_file(key) as file:
                    return file.read(most)
            except FileNotFoundError:
                return None

    def stream(self, key: str, *, start: int, size: int) -> Iterator[bytes]:
        """`size` bytes of an object that an instance wrote, from one on, in pieces; fewer where it ends before."""
        with self._told(), contextlib.ExitStack() as stack:
            file = None
            if local_target(self.uri) is not None:
                file = stack.enter_context(self._own_file(key))
                file.seek(start)
            while size > 0:
                wanted = min(size, _READ_BYTES)
                data = file.read(wanted) if file else self._store.read(key, start, wanted)
                if not data:
                    return
                yield data
                start, size = start + len(data), size - len(data)

    def _own_file(self, key: str) -> BinaryIO:
        """A file of a storage that is a folder, where instances write; raises FileNotFoundError."""
        return open_below(local_target(self.uri) or Path(), key)

    def size(self, key: str) -> int:
        """Bytes of an object; -1 for none."""
        with self._told():
            try:
                return self._store.size(key)
            except FileNotFoundError:
                return -1

    def _revision(self, key: str) -> tuple[int, str] | None:
        """Size of an object, and what changes with its bytes; None for none."""
        with self._told():
            try:
                return self._store.revision(key)
            except FileNotFoundError:
                return None

    def _replace(self, key: str, draft: BinaryIO) -> None:
        """Write an object in the place of one that is damaged, or is not there."""
        draft.flush()
        if not os.fstat(draft.fileno()).st_size:  # nothing that could be mapped
            self._create(key, b"")
            return
        with (
            mmap.mmap(draft.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as data,
        ):
            self._create(key, data)

    def _replace_rows(self, key: str, rows: bytes) -> None:
        if self.read(key, most=len(rows) + 1) != rows:
            self._create(key, rows)

    def _create(self, key: str, data: bytes | memoryview) -> None:
        with self._told():
            self._store.delete(key)
            with contextlib.suppress(KeyExists):  # others were faster, with the same bytes
                self._store.create(key, data)

    @property
    def _store(self) -> LocalStore | RemoteStore:
        if self._opened is None:
            self._opened = open_address(self.uri)
        return self._opened

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (OSError, CheckpointError) as error:
            reason = (isinstance(error, OSError) and error.strerror) or str(error)
            named = "" if self.uri in reason else f"{self.uri} "
            raise self._refusal(
                f"{named}cannot be used: {reason}", is_denied=isinstance(error, PermissionError)
            ) from error

    def _refusal(self, message: str, *, is_denied: bool = False) -> InputError:
        return InputError.of(
            code="unavailable",
            field="storage",
            value=self.uri,
            message=message,
            hint=_LET_IN if is_denied else _REACHED,
        )


def rows_of(tree: Tree) -> bytes:
    """The rows of a tree as they are stored; their SHA-256 is its digest."""
    return json.dumps(tree.rows, separators=(",", ":")).encode()


def _parts(key: str, tree: Tree) -> Sequence[tuple[str, int]]:
    """SHA-256 and bytes of each content of an object."""
    sizes = tree.blobs
    if key == pack_key(tree.digest):
        return [(each, sizes[each]) for each in packed_contents(sizes)]
    sha256 = key.rpartition("/")[2]
    return [(sha256, sizes[sha256])]


def _append(draft: BinaryIO, content: bytes | Path) -> None:
    if isinstance(content, bytes):
        draft.write(content)
        return
    with content.open("rb") as file:
        shutil.copyfileobj(file, draft, _READ_BYTES)


def _objects(tree: Tree) -> dict[str, int]:
    """Key and bytes of each object that a tree is made of."""
    sizes = tree.blobs
    packed = packed_contents(sizes)
    found = {blob_key(sha256): size for sha256, size in sizes.items() if sha256 not in {*packed}}
    if packed:
        found[pack_key(tree.digest)] = sum(sizes[sha256] for sha256 in packed)
    return {**found, tree_key(tree.digest): len(rows_of(tree))}
