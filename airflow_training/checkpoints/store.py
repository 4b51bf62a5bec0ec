"""Where checkpoints lie: objects under keys that are created once, read, listed and deleted.

Plain paths and `file://` need the standard library only. Any other address goes through fsspec and its driver.
An object is there whole or not at all: a local file appears under its name by a hard link, after it is on disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from airflow_training.checkpoints.client_jitter import separate_jitter
from airflow_training.checkpoints.errors import CheckpointError, KeyExists, StoreRefused

__all__ = [
    "LocalStore",
    "ObjectStore",
    "RemoteStore",
    "create_once",
    "open_address",
    "open_store",
    "probe",
]

Data = bytes | memoryview | Iterable[bytes | memoryview]

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_RACERS = 4
_REVISIONS = ("ETag", "etag", "generation")
"""What drivers of fsspec call the state of an object: those of S3, of Google's and Microsoft's storages."""
_COPIED_AT_ONCE = 1 << 20


class ObjectStore(Protocol):
    """Objects below one address. Keys are relative, with `/` between their parts.

    Whatever goes wrong on the way raises OSError; a key that is not there FileNotFoundError.
    """

    uri: str
    workers: int
    """How many threads at once this store is worth writing and reading with."""

    def create(self, key: str, data: Data) -> None:
        """Write an object; raises KeyExists where there is one."""

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes: ...

    def size(self, key: str) -> int: ...

    def list(self, prefix: str) -> list[tuple[str, int]]:
        """Return (key, size) of all objects in the folder `prefix` and below, by key."""

    def delete(self, key: str) -> None:
        """Delete an object; one that is not there is fine."""

    def clear_unfinished(self) -> None:
        """Remove what writers that were killed left behind, under no key at all."""


def open_store(uri: str | ObjectStore) -> ObjectStore:
    """Return the store at a plain path, a `file://` address or an address that fsspec knows; a store as it is.

    Raises:
        StoreRefused: where fsspec or the driver of the address is not installed.
    """
    return open_address(uri) if isinstance(uri, str) else uri


def open_address(uri: str) -> LocalStore | RemoteStore:
    """Return the store at an address, as `open_store`; it can tell the revision of an object."""
    if "://" not in uri:
        return LocalStore(Path(uri).absolute())
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return LocalStore(Path(unquote(parts.path)))
    return RemoteStore(uri)


def _pieces(data: Data) -> Iterator[bytes | memoryview]:
    if isinstance(data, (bytes, memoryview)):
        yield data
    else:
        yield from data


class LocalStore:
    """Files below a folder, durable before `create` returns."""

    workers = 2

    def __init__(self, root: Path, *, durable: bool = True) -> None:
        """`durable`: False for what is compared with its digest at every read, and can be had again."""
        self.uri = str(root)
        self._durable = durable
        self._root = root
        self._unfinished = root / ".unfinished"

    def create(self, key: str, data: Data) -> None:
        path, pieces = self._root / key, list(_pieces(data))
        while not self._create(
            path, pieces
        ):  # a process that starts has cleared what was unfinished
            pass
        self._sync(path.parent)

    def _create(self, path: Path, pieces: list[bytes | memoryview]) -> bool:
        """Return whether the file was there, on disk, to be given its name."""
        self._make_folder(self._unfinished)
        partial = self._unfinished / secrets.token_hex(8)
        try:
            _write(partial, pieces, durable=self._durable)
            return self._publish(partial, path)
        finally:
            partial.unlink(missing_ok=True)

    def _publish(self, partial: Path, path: Path) -> bool:
        """Give a file its name, unless another has it; return False where the file is gone."""
        while partial.exists():
            self._make_folder(path.parent)
            try:
                os.link(partial, path)
            except FileExistsError:
                raise KeyExists(f"{path} exists already") from None
            except FileNotFoundError:  # or `delete` has just taken away the empty folder
                continue
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                _copy_in_place(partial, path)
            return True
        return False

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        with (self._root / key).open("rb") as file:
            file.seek(start)
            return file.read(-1 if size is None else size)

    def size(self, key: str) -> int:
        return (self._root / key).stat().st_size

    def revision(self, key: str) -> tuple[int, str]:
        """Return the size of an object, and a text that is another one once its bytes were written again."""
        found = (self._root / key).stat()
        return found.st_size, f"{found.st_ino} {found.st_mtime_ns} {found.st_ctime_ns}"

    def list(self, prefix: str) -> list[tuple[str, int]]:
        found = []
        for folder, _, names in os.walk(self._root / prefix):
            if Path(folder) == self._unfinished:
                continue
            for name in names:
                path = Path(folder, name)
                try:
                    size = path.stat().st_size
                except FileNotFoundError:  # deleted meanwhile
                    continue
                except OSError:  # there, and cannot be read: who reads it is told why
                    size = 0
                found.append((path.relative_to(self._root).as_posix(), size))
        return sorted(found)

    def delete(self, key: str) -> None:
        path = self._root / key
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty, or gone
            path.parent.rmdir()

    def clear_unfinished(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for path in self._unfinished.iterdir():
                path.unlink(missing_ok=True)

    def _make_folder(self, folder: Path) -> None:
        """Make a folder and those above it, each known to its parent on disk."""
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        self._sync(folder.parent)

    def _sync(self, folder: Path) -> None:
        if self._durable:
            _sync_folder(folder)


def _write(path: Path, pieces: Iterable[bytes | memoryview], *, durable: bool = True) -> None:
    with path.open("xb") as file:
        for piece in pieces:
            file.write(piece)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def _copy_in_place(source: Path, path: Path) -> None:
    """Write under the final name: on file systems without hard links a kill leaves a part there.

    Such a part is found by its digest like any other damage.
    """
    try:
        with source.open("rb") as file:
            _write(path, iter(lambda: file.read(_COPIED_AT_ONCE), b""))
    except FileExistsError:
        raise KeyExists(f"{path} exists already") from None
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:  # with what it held: there is nothing to keep
        return
    try:
        os.fsync(descriptor)
    except OSError as error:  # some network file systems do not know this
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


class RemoteStore:
    """Objects of any file system that fsspec has a driver for."""

    workers = 8

    def __init__(self, uri: str) -> None:
        scheme = urlsplit(uri).scheme
        try:
            import fsspec

            # a listing from a cache would hide what other processes write
            filesystem, path = fsspec.core.url_to_fs(uri, use_listings_cache=False)
        except ImportError as error:
            raise StoreRefused(f"{uri}: {error}") from error
        except ValueError as error:
            raise StoreRefused(f"{uri}: no driver for {scheme}:// is known: {error}") from error
        separate_jitter()
        self.uri = uri
        self._filesystem: Any = filesystem
        self._root = path.rstrip("/")

    def create(self, key: str, data: Data) -> None:
        content = b"".join(_pieces(data))
        with _as_os_errors(self.uri):
            try:
                self._filesystem.pipe_file(self._path(key), content, mode="create")
            except FileExistsError:
                raise KeyExists(f"{self.uri}/{key} exists already") from None

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        end = None if size is None else start + size
        with _as_os_errors(self.uri):
            # no range for a whole object: an empty one has none
            content: bytes = self._filesystem.cat_file(
                self._path(key), start=start or None, end=end
            )
            return content

    def size(self, key: str) -> int:
        with _as_os_errors(self.uri):
            self._filesystem.invalidate_cache()
            return int(self._filesystem.size(self._path(key)))

    def revision(self, key: str) -> tuple[int, str]:
        """Return the size of an object, and a text that is another one once its bytes were written again.

        That of an object store is its tag or generation; the text is empty where the driver tells none.
        """
        with _as_os_errors(self.uri):
            self._filesystem.invalidate_cache()
            found = self._filesystem.info(self._path(key))
        told = [str(found[name]) for name in _REVISIONS if found.get(name)]
        return int(found["size"]), " ".join(told)

    def list(self, prefix: str) -> list[tuple[str, int]]:
        with _as_os_errors(self.uri):
            self._filesystem.invalidate_cache()
            try:
                found = self._filesystem.find(self._path(prefix.rstrip("/")), detail=True)
            except FileNotFoundError:
                return []
            root = self._filesystem._strip_protocol(self._root)  # as `find` spells paths
        return sorted(
            (path.removeprefix(root).lstrip("/"), int(info["size"])) for path, info in found.items()
        )

    def delete(self, key: str) -> None:
        with _as_os_errors(self.uri), contextlib.suppress(FileNotFoundError):
            self._filesystem.rm_file(self._path(key))

    def clear_unfinished(self) -> None:
        """Do nothing: an object store shows no unfinished objects."""

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"


@contextlib.contextmanager
def _as_os_errors(uri: str) -> Iterator[None]:
    """Let nothing but our own errors and OSError out: every driver has a tree of its own. All tell the address."""
    try:
        yield
    except OSError as error:
        if error.filename is None and not isinstance(error, FileNotFoundError):
            _name(error, uri)
        raise
    except CheckpointError:
        raise
    except Exception as error:
        raise OSError(f"{uri}: {type(error).__name__}: {error}") from error


def _name(error: OSError, uri: str) -> None:
    """Let an error that a driver raises with words only (`PermissionError("Forbidden")`) say where it happened."""
    words = error.strerror or str(error) or type(error).__name__
    if uri not in words:
        number = errno.EACCES if isinstance(error, PermissionError) else errno.EIO
        error.errno, error.strerror, error.filename = error.errno or number, words, uri


def create_once(store: ObjectStore, key: str, content: bytes) -> None:
    """Create a small object; one with the same content is ours, its answer was lost.

    Raises:
        KeyExists: there is another under this key.
    """
    try:
        store.create(key, content)
    except KeyExists:
        if store.read(key) != content:
            raise


def probe(store: ObjectStore) -> bool:
    """Return whether the store creates a key for exactly one of several writers.

    Tries it under a name of its own: once in a row and once by several threads at the same time.

    Raises:
        StoreRefused: where the store is not writable, or does not show what was just written.
    """
    try:
        return _honours_create(store)
    except OSError as error:
        raise StoreRefused(f"{store.uri} cannot keep checkpoints: {error}") from error


def _honours_create(store: ObjectStore) -> bool:
    folder = f"probes/{secrets.token_hex(8)}/"
    in_turn, at_once = f"{folder}in-turn", f"{folder}at-once"
    try:
        store.create(in_turn, b"first")
        if store.read(in_turn) != b"first" or (in_turn, 5) not in store.list(folder):
            raise StoreRefused(
                f"{store.uri} cannot keep checkpoints: it does not show what was just written"
            )
        if _creates(store, in_turn):
            return False
        with ThreadPoolExecutor(_RACERS) as pool:
            return sum(pool.map(lambda _: _creates(store, at_once), range(_RACERS))) == 1
    finally:
        for key in (in_turn, at_once):
            store.delete(key)


def _creates(store: ObjectStore, key: str) -> bool:
    try:
        store.create(key, b"again")
    except KeyExists:
        return False
    return True
