"""The tree of a job's code: fetched by digest, laid out before the command starts, and what a run changed in it.

A storage holds, below one address:

- `trees/DIGEST`: the rows `[path, kind, mode, size, sha256, link]` of a tree, sorted, as JSON whose SHA-256 is the digest;
- `packs/DIGEST`: the contents of that tree of at most `PACKED_BYTES`, one after the other, sorted by SHA-256;
- `blobs/SHA256`: each larger content.

Python 3.8 and newer, standard library only: it runs inside pods too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tarfile
from pathlib import Path

from airflow_training.agent.upload import local_target, remote_storage

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, BinaryIO

__all__ = [
    "PACKED_BYTES",
    "TreeError",
    "add_known_files",
    "blob_key",
    "changed_files",
    "lay_out_archive",
    "lay_out_code",
    "pack_key",
    "packed_contents",
    "remove_folder",
    "tree_key",
]

PACKED_BYTES = 1 << 18
"""Contents of at most this size share one object: an object storage takes as long for each as for a megabyte."""
_READ_BYTES = 1 << 20
_OPEN = 0o700
_LONG_NAME = 255
_ROW = (str, str, int, int, str, str)


class TreeError(Exception):
    """What the storage holds is not the tree that was named: nothing of it may be executed."""


def tree_key(digest: str) -> str:
    """Where the rows of a tree lie."""
    return f"trees/{digest}"


def pack_key(digest: str) -> str:
    """Where the small contents of a tree lie."""
    return f"packs/{digest}"


def blob_key(sha256: str) -> str:
    """Where a large content lies."""
    return f"blobs/{sha256}"


def packed_contents(sizes: Mapping[str, int]) -> Sequence[str]:
    """The contents of a pack, in their order. `sizes`: bytes by SHA-256 of all contents of a tree."""
    return sorted(sha256 for sha256, size in sizes.items() if size <= PACKED_BYTES)


def lay_out_code(uri: str, digest: str, folder: Path) -> None:
    """Make `folder` from the tree of that digest (hexadecimal); what was there goes.

    Each byte is verified as it is written, and the folder gets its name when all of it is there.

    Raises TreeError for anything else than was named, and whatever the storage raises.
    """
    rows = _rows(uri, digest)
    _check(rows)
    draft = folder.with_name(f".{folder.name}.draft")
    for each in (draft, folder):
        remove_folder(each)
    draft.mkdir(parents=True)
    places: dict[str, list[Sequence[Any]]] = {}
    for row in rows:
        path, kind, _, _, sha256, _ = row
        (draft / path).parent.mkdir(parents=True, exist_ok=True)
        if kind == "folder":
            (draft / path).mkdir(exist_ok=True)
        elif kind == "file":
            places.setdefault(sha256, []).append(row)
    _write_contents(uri, digest, places, draft)
    for path, kind, mode, _, _, link in rows:  # last: nothing is written through a link
        if kind == "symlink":
            (draft / path).symlink_to(link)
        elif kind == "folder":
            (draft / path).chmod(mode)
    state = {name: _mark(info) for name, info in _files(draft)}
    _state_of(folder).write_text(json.dumps(state), encoding="utf-8")
    draft.rename(folder)


def lay_out_archive(uri: str, key: str, digest: str, folder: Path) -> None:
    """Make `folder` from a tar of the storage whose SHA-256 is `digest` (hexadecimal); what was there goes.

    Raises TreeError for other bytes, of which nothing is unpacked, and whatever the storage raises.
    """
    draft = folder.with_name(f".{folder.name}.draft")
    archive = folder.with_name(f".{folder.name}.tar")
    for each in (draft, folder):
        remove_folder(each)
    found = hashlib.sha256()
    with _open(uri, key) as source, archive.open("wb") as file:
        while data := source.read(_READ_BYTES):
            found.update(data)
            file.write(data)
    try:
        if found.hexdigest() != digest:
            raise TreeError(
                f"{uri}/{key}: the storage holds other bytes than its digest {digest} says"
            )
        with tarfile.open(str(archive)) as tar:
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(str(draft))  # noqa: S202  # its bytes are those that were named
    finally:
        archive.unlink()
    draft.rename(folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder with what a run left in it: a link in its place, and folders that it has closed to itself."""
    if folder.is_symlink():
        folder.unlink()
        return
    shutil.rmtree(str(folder), ignore_errors=True)
    if not folder.is_dir():
        return
    folder.chmod(_OPEN)
    for here, folders, _ in os.walk(str(folder)):
        for name in folders:
            with contextlib.suppress(OSError):  # `rmtree` tells what stays
                if not Path(here, name).is_symlink():
                    Path(here, name).chmod(_OPEN)
    shutil.rmtree(str(folder))


def changed_files(folder: Path) -> dict[str, Path]:
    """The files of a folder that are new or other since it was laid out, by name; caches of Python left out."""
    before = json.loads(_state_of(folder).read_text(encoding="utf-8"))
    return {
        name: folder / name
        for name, info in sorted(_files(folder), key=lambda found: found[0])
        if stat.S_ISREG(info.st_mode)
        and "__pycache__" not in name.split("/")
        and info.st_atime_ns  # else it is data of which only a part has come
        and before.get(name) != _mark(info)
    }


def add_known_files(folder: Path, files: Mapping[str, tuple[int, int]]) -> None:
    """Take files that will come into a laid out folder for its own: size and time in nanoseconds by name."""
    if files:
        state = json.loads(_state_of(folder).read_text(encoding="utf-8"))
        state.update({name: list(mark) for name, mark in files.items()})
        _state_of(folder).write_text(json.dumps(state), encoding="utf-8")


def _state_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")


def _mark(info: os.stat_result) -> list[int]:
    return [info.st_size, info.st_mtime_ns]


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield all below a folder that is no folder itself, links as links."""
    for here, folders, names in os.walk(str(folder)):
        for name in (*names, *(each for each in folders if Path(here, each).is_symlink())):
            path = os.path.join(here, name)  # noqa: PTH118  # `os.walk` speaks text
            with contextlib.suppress(OSError):  # it went meanwhile
                yield os.path.relpath(path, str(folder)), os.lstat(path)


# what is fetched ---------------------------------------------------------------------------------
def _rows(uri: str, digest: str) -> Sequence[Sequence[Any]]:
    with _open(uri, tree_key(digest)) as file:
        text = file.read()
    if hashlib.sha256(text).hexdigest() != digest:
        raise TreeError(f"{uri}/{tree_key(digest)} is not the tree of that digest")
    try:
        rows: Any = json.loads(text.decode())
    except (ValueError, RecursionError):
        rows = None
    if not isinstance(rows, list) or not all(_is_row(row) for row in rows):
        raise TreeError(f"{uri}/{tree_key(digest)} has that digest, and lists no tree")
    found: Sequence[Sequence[Any]] = rows
    return found


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, list)
        and tuple(type(each) for each in row) == _ROW
        and row[3] >= 0
        and not any("\0" in each for each in row if isinstance(each, str))
    )


def _check(rows: Sequence[Sequence[Any]]) -> None:
    """Refuse a tree that could write or lead outside of its folder, whoever has named it."""
    solid = {row[0] for row in rows if row[1] != "folder"}
    seen: set[str] = set()
    for path, kind, mode, _, sha256, link in rows:
        parts = path.split("/")
        above = {"/".join(parts[:count]) for count in range(1, len(parts))}
        bad = (
            any(part in ("", ".", "..") for part in parts)
            or max(len(os.fsencode(part)) for part in parts) > _LONG_NAME
            or kind not in ("file", "symlink", "folder")
            or mode & ~0o777
            or path in seen
            or above & solid
        )
        if kind == "symlink":
            led = os.path.normpath(os.path.join(os.path.dirname(path), link))  # noqa: PTH118, PTH120  # as text
            bad = bad or not link or os.path.isabs(link) or led.split("/")[0] == ".."  # noqa: PTH117  # as text
        if kind == "file":
            bad = bad or len(sha256) != hashlib.sha256().digest_size * 2 or not sha256.isalnum()
        if bad:
            raise TreeError(f"{path!r} is no name of a tree, or leads out of it")
        seen.add(path)


def _write_contents(
    uri: str, digest: str, places: Mapping[str, Sequence[Sequence[Any]]], draft: Path
) -> None:
    sizes = {sha256: rows[0][3] for sha256, rows in places.items()}
    packed = packed_contents(sizes)
    if packed:
        with _open(uri, pack_key(digest)) as pack:
            for sha256 in packed:
                _write(pack, places[sha256], draft, whole=False)
    for sha256 in sorted(sizes.keys() - set(packed)):
        with _open(uri, blob_key(sha256)) as file:
            _write(file, places[sha256], draft, whole=True)


def _write(source: BinaryIO, rows: Sequence[Sequence[Any]], draft: Path, *, whole: bool) -> None:
    """Write a content to each of its places; `whole`: nothing may follow it."""
    path, _, mode, size, sha256, _ = rows[0]
    found, left = hashlib.sha256(), size
    with (draft / path).open("xb") as file:
        while left > 0:
            data = source.read(min(left, _READ_BYTES))
            if not data:
                break
            left -= len(data)
            found.update(data)
            file.write(data)
    if found.hexdigest() != sha256 or (whole and source.read(1)):
        raise TreeError(f"{path!r}: the storage holds other bytes than its digest {sha256} says")
    for other, _, its_mode, _, _, _ in rows[1:]:
        shutil.copyfile(str(draft / path), str(draft / other))
        (draft / other).chmod(its_mode)
    (draft / path).chmod(mode)  # last: it may forbid to read it


def _open(uri: str, key: str) -> BinaryIO:
    target = local_target(uri)
    if target is not None:
        return (target / key).open("rb")
    filesystem, root = remote_storage(uri)
    file: BinaryIO = filesystem.open(f"{root.rstrip('/')}/{key}", "rb")
    return file
