"""The sharing machine's files: what may be shown, and their chunks. Read-only.

Served is what stands in the manifest and nothing else: a request names a root and a file of it, never a path of this
machine. Each part of the way is opened without following links, so that what was replaced meanwhile leads nowhere.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from airflow_training.capture.model import Omission
from airflow_training.errors import InputError
from airflow_training.interception.classification import is_secret_like
from airflow_training.interception.protocol import RANGE_BYTES
from airflow_training.remote_data.chunks import (
    CHUNK_BYTES,
    count_chunks,
    count_ranges,
    digest_of_chunk,
    read_chunks,
)
from airflow_training.remote_data.errors import DataNotShared, SourceChanged
from airflow_training.remote_data.known_digests import KnownDigests
from airflow_training.remote_data.manifest import DataFile, DataManifest, DataRoot

__all__ = ["SharedRoots", "scan_root", "share"]


def share(
    paths: Sequence[str | os.PathLike[str]], *, known: KnownDigests | None = None
) -> SharedRoots:
    """Look at what is to be shared: folders whole, files alone. No content is read.

    Args:
        paths: path arguments, observed loads, `--data`; as the user spells them.
        known: digests of earlier runs, so that what a cache has does not travel again.

    Raises:
        InputError: a path is not there, is a secret, or is no file and no folder.
    """
    omissions: list[Omission] = []
    folders: dict[str, list[str] | None] = {}
    for each in paths:
        path = os.path.abspath(each)  # noqa: PTH100  # as it is spelled: links above it stay
        _check(path)
        if os.path.isdir(path):  # noqa: PTH112
            folders[path] = None
        elif folders.get(os.path.dirname(path), ()) is not None:  # noqa: PTH120
            folders.setdefault(os.path.dirname(path), []).append(os.path.basename(path))  # type: ignore[union-attr]  # noqa: PTH119,PTH120
    roots = [
        scan_root(f"data{number}", path, only, omissions=omissions, known=known)
        for number, (path, only) in enumerate(_outermost(folders).items())
    ]
    return SharedRoots(
        DataManifest(source=uuid.uuid4().hex, roots=roots, omissions=omissions), known=known
    )


def _check(path: str) -> None:
    if is_secret_like(path):
        raise InputError.of(
            code="secret_data",
            field="data",
            value=path,
            message=f"{path} looks like a secret and is never shared",
            hint="give the training an Airflow connection or a cluster secret instead",
        )
    if os.path.islink(path) and not os.path.isdir(path):  # noqa: PTH112,PTH114
        raise InputError.of(
            code="link_as_data",
            field="data",
            value=path,
            message=f"{path} is a link, and links are never followed when data is read",
            hint=f"name the file that it leads to, {os.path.realpath(path)}",
        )
    if not os.path.isdir(path) and not os.path.isfile(path):  # noqa: PTH112,PTH113
        raise InputError.of(
            code="no_data",
            field="data",
            value=path,
            message=f"{path} is no file and no folder",
            hint="name what the training reads; several paths are allowed",
        )


def _outermost(folders: Mapping[str, list[str] | None]) -> dict[str, list[str] | None]:
    """Return the folders without those that another, shared whole, holds."""
    whole = [path + os.sep for path, only in folders.items() if only is None]
    return {
        path: only
        for path, only in sorted(folders.items())
        if not any(path.startswith(each) for each in whole)
    }


def scan_root(
    name: str,
    root: str,
    below: Collection[str] | None = None,
    *,
    omissions: list[Omission],
    known: KnownDigests | None = None,
    is_left_out: Callable[[str], bool] = lambda _: False,
) -> DataRoot:
    """Look at a folder that is shared; no content is read.

    Args:
        name: how requests call it.
        root: absolute.
        below: paths from it, of files and folders, where only these are shared; None: all of it.
        omissions: what is not shown is appended, with the reason.
        known: digests of earlier runs.
        is_left_out: says of an absolute path that it is no business of the run; such are not told.
    """
    files: list[DataFile] = []
    folders: list[str] = []
    links: dict[str, str] = {}
    real = os.path.realpath(root)

    def take(path: str, relative: str) -> None:
        info = os.lstat(path)
        if is_left_out(path):
            return
        if is_secret_like(path):
            omissions.append(Omission(path=path, reason="looks like a secret"))
        elif stat.S_ISLNK(info.st_mode):
            target = os.path.realpath(path)
            if target.startswith(real + os.sep) and not is_secret_like(target):
                links[relative] = os.path.relpath(target, os.path.realpath(os.path.dirname(path)))  # noqa: PTH120
            else:
                omissions.append(Omission(path=path, reason="a link that leads out"))
        elif stat.S_ISDIR(info.st_mode):
            folders.append(relative)
            visit(path, relative + "/")
        elif stat.S_ISREG(info.st_mode):
            files.append(
                DataFile(
                    path=relative,
                    size=info.st_size,
                    mtime_ns=info.st_mtime_ns,
                    mode=info.st_mode & 0o777,  # its owner there is another
                    chunks=known.find(path, info) if known is not None else (),
                )
            )
        else:
            omissions.append(Omission(path=path, reason="no file and no folder"))

    def visit(folder: str, prefix: str) -> None:
        try:
            found = sorted(os.listdir(folder))  # noqa: PTH208  # names are all that is wanted
        except PermissionError:
            omissions.append(Omission(path=folder, reason="may not be read"))
            return
        for each in found:
            take(f"{folder}/{each}", prefix + each)

    if below is None:
        visit(root, "")
    for each in sorted(below or ()):
        take(f"{root}/{each}", each)
    return DataRoot(
        name=name, path=root, files=files, folders=folders, links=links, is_whole=below is None
    )


class SharedRoots:
    """Answers for the files of one manifest, from any thread."""

    def __init__(self, manifest: DataManifest, *, known: KnownDigests | None = None) -> None:
        """`known` learns the digests that are computed here."""
        self.manifest = manifest
        self._files = {
            (root.name, file.path): (root, file) for root in manifest.roots for file in root.files
        }
        self._known = known
        self._digests: dict[tuple[str, str, int | None], Sequence[str]] = {}
        self._ranges: dict[tuple[str, str, int], Sequence[str]] = {}
        """Digests of the ranges of a chunk, by its number: the chunk was as it was shown."""
        self._sent: set[str] = set()
        """Digests of what `only_chunk` has given."""
        self._locks: dict[tuple[str, str, int | None], threading.Lock] = {}
        self._lock = threading.Lock()

    def digests(self, root: str, path: str, part: int | None = None) -> Sequence[str]:
        """Return the SHA-256 of every chunk of a file, which is read for it once; of one range where `part` is its number.

        Raises:
            DataNotShared: it is not in the manifest, has no such range, or cannot be reached without following links.
            SourceChanged: size or time are not those of the manifest.
        """
        key = (root, path, part)
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._digests:
                with self._open(root, path) as (file, shown):
                    if part is None:
                        found = self._digests_of(file, self._place(root, path))
                    else:
                        found = [self._range_digest(file, shown, root, path, part)]
                    self._compare(file, shown, root, path)
                if part is None and shown.chunks and list(shown.chunks) != found:
                    raise SourceChanged(
                        f"{self._place(root, path)}: its content is not what it was when the run was submitted"
                    )
                self._digests[key] = found
            return self._digests[key]

    def only_chunk(self, root: str, path: str) -> bytes:
        """Return the chunk of a file that has one, unless somebody can have it by its digest already: then nothing.

        Raises as `digests` does.
        """
        found = self._files.get((root, path))
        is_told = (root, path, None) in self._digests
        if found is None or is_told or count_chunks(found[1].size) != 1:
            return b""
        data = self.chunk(root, path, 0)
        digest = digest_of_chunk(data)
        with self._lock:  # files of equal content are one chunk
            is_first = digest not in self._sent
            self._sent.add(digest)
        return data if is_first else b""

    def _range_digest(
        self, file: BinaryIO, shown: DataFile, root: str, path: str, part: int
    ) -> str:
        """Return the SHA-256 of a range, whose chunk is read with it: that has the digest that is known, if any is."""
        if not 0 <= part < count_ranges(shown.size):
            raise DataNotShared(f"{shown.path} has no range {part}")
        index, number = divmod(part, CHUNK_BYTES // RANGE_BYTES)
        ranges = self._ranges.get((root, path, index))
        if ranges is None:
            file.seek(index * CHUNK_BYTES)
            data = file.read(CHUNK_BYTES)
            known = shown.chunks or self._digests.get((root, path, None), ())
            if known and digest_of_chunk(data) != known[index]:
                raise SourceChanged(
                    f"{self._place(root, path)}: its content is not what it was when the run was submitted"
                )
            ranges = [
                digest_of_chunk(data[begin : begin + RANGE_BYTES])
                for begin in range(0, len(data), RANGE_BYTES)
            ]
            self._ranges[root, path, index] = ranges
        if number >= len(ranges):  # it was cut meanwhile
            raise SourceChanged(f"{self._place(root, path)}: it has changed while it was read")
        return ranges[number]

    def _digests_of(self, file: BinaryIO, place: str) -> Sequence[str]:
        """Read a file, unless an earlier run has read it and nothing about it has changed."""
        info = os.fstat(file.fileno())
        found = list(self._known.find(place, info)) if self._known is not None else []
        if not found:
            found = [digest_of_chunk(data) for data in read_chunks(file)]
            if self._known is not None:
                self._known.keep(place, info, found)
        return found

    def chunk(self, root: str, path: str, index: int, part: int | None = None) -> bytes:
        """Return one chunk of a file, or with index 0 a range, as its digest says. Raises as `digests` does."""
        digest = self.digests(root, path, part)[index]
        with self._open(root, path) as (file, shown):
            if part is None:
                file.seek(index * CHUNK_BYTES)
                data = file.read(CHUNK_BYTES)
            else:
                file.seek(part * RANGE_BYTES)
                data = file.read(RANGE_BYTES)
            self._compare(file, shown, root, path)
        if digest_of_chunk(data) != digest:
            raise SourceChanged(
                f"{self._place(root, path)}: its content has changed during the run, at unchanged size and time"
            )
        return data

    @contextlib.contextmanager
    def _open(self, root: str, path: str) -> Iterator[tuple[BinaryIO, DataFile]]:
        found = self._files.get((root, path))
        if found is None:
            raise DataNotShared(f"{path!r} of {root!r} was not shown before submission")
        place = self._place(root, path)
        try:
            descriptor = _open_without_links(found[0].path, path)
        except FileNotFoundError as error:
            raise SourceChanged(f"{place}: it was there when the run was submitted") from error
        except OSError as error:
            raise DataNotShared(f"{place}: {error.strerror}") from error
        with os.fdopen(descriptor, "rb") as file:
            self._compare(file, found[1], root, path)
            try:
                yield file, found[1]
            except OSError as error:
                raise DataNotShared(f"{place}: it cannot be read: {error.strerror}") from error

    def _compare(self, file: BinaryIO, shown: DataFile, root: str, path: str) -> None:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode) or (info.st_size, info.st_mtime_ns) != (
            shown.size,
            shown.mtime_ns,
        ):
            raise SourceChanged(
                f"{self._place(root, path)}: it has changed since the run was submitted: {shown.size} bytes then,"
                f" {info.st_size} now"
            )

    def _place(self, root: str, path: str) -> str:
        return str(Path(self._files[root, path][0].path, path))


def _open_without_links(root: str, path: str) -> int:
    """Return a descriptor of a file below a root; a link on the way raises OSError."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise OSError(22, "no path of a file below the root")
    nofollow = getattr(os, "O_NOFOLLOW", 0)
    if os.open not in os.supports_dir_fd:  # Windows
        full = os.path.join(root, *parts)  # noqa: PTH118
        if os.path.realpath(full) != os.path.join(os.path.realpath(root), *parts):  # noqa: PTH118
            raise OSError(40, "a link leads out of what is shared")
        return os.open(full, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | nofollow, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(parts[-1], os.O_RDONLY | nofollow | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)
