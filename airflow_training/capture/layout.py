"""A tree becomes a folder, and a folder a tree again, so that both ends can compare digests before anything runs."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from airflow_training.capture.links import destination
from airflow_training.capture.model import Tree, TreeEntry
from airflow_training.errors import InputError, Problem

__all__ = ["check_paths", "lay_out", "tree_of"]


_SHA256 = re.compile(r"[0-9a-f]{64}")
"""Nothing else may be asked for: a store can keep contents as files of that name."""
_SMALL_BYTES = 1 << 16
_PIECE_BYTES = 1 << 20


def check_paths(tree: Tree) -> None:
    """Refuse a tree that could write or lead outside of the folder it is laid out in.

    Raises:
        InputError: with every path that is refused.
    """
    links = {each.path: each.link for each in tree.entries if each.kind == "symlink"}
    folders = {each.path for each in tree.entries if each.kind == "folder"}
    seen: set[str] = set()
    problems: list[Problem] = []
    for each in tree.entries:
        message = _unsafe(each, links)
        if each.path in seen:
            message = "it is there twice"
        seen.add(each.path)
        if message:
            problems.append(Problem(code="unsafe-path", field=each.path, message=message))
    solid = seen - folders
    for path in seen:
        above = path
        while "/" in above:
            above = above.rpartition("/")[0]
            if above in solid:
                problems.append(
                    Problem(code="unsafe-path", field=path, message=f"{above} is no folder")
                )
    if problems:
        raise InputError(problems=problems)


def _unsafe(entry: TreeEntry, links: dict[str, str]) -> str:
    parts = entry.path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in entry.path:
        return "it is no path below the folder"
    if entry.kind == "symlink" and not _stays(entry, links):
        return "a link that leads out of the folder, or in a circle"
    if entry.kind == "file" and not _SHA256.fullmatch(entry.sha256):
        return "its content has no digest"
    if max(len(os.fsencode(part)) for part in parts) > 255 or len(os.fsencode(entry.path)) > 3000:
        return "its name is too long"
    if entry.mode & ~0o777:
        return "its mode is more than permissions"
    return ""


def _stays(entry: TreeEntry, links: dict[str, str]) -> bool:
    written = bool(entry.link) and "\0" not in entry.link
    return written and destination(entry.path, links) is not None


def lay_out(tree: Tree, folder: Path, content: Callable[[str], bytes | str | Path]) -> None:
    """Write a tree to a folder that does not exist, or is empty: all of it, or nothing.

    `content` gives the bytes of a digest, or a file that holds them; both are verified.

    Raises:
        InputError: a path is unsafe, or some content is not what its digest says.
    """
    check_paths(tree)
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        made: set[str] = set()
        for each in sorted(tree.entries, key=lambda each: each.path):
            _write(each, draft, content, made=made)
        for each in tree.entries:  # last, as a folder may forbid to write to it
            if each.kind == "folder":
                (draft / each.path).chmod(each.mode)
        draft.chmod(0o755)
        _rename(draft, folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _rename(draft: Path, folder: Path) -> None:
    try:
        draft.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        raise InputError.of(
            code="exists",
            field=str(folder),
            message="something else is there already",
            hint="name a folder that does not exist, or is empty",
        ) from None


def _write(
    entry: TreeEntry, draft: Path, content: Callable[[str], bytes | str | Path], *, made: set[str]
) -> None:
    """Write an entry. `made`: folders that are there. By texts, as thousands of paths take their time to be built."""
    path = f"{draft}/{entry.path}"
    folder = path if entry.kind == "folder" else path.rpartition("/")[0]
    if folder not in made:
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - by texts
        made.add(folder)
    if entry.kind == "folder":
        return
    if entry.kind == "symlink":
        os.symlink(entry.link, path)  # noqa: PTH211 - by texts
        return
    source = content(entry.sha256)
    digest = hashlib.sha256()
    with open(path, "xb", buffering=0) as file:  # noqa: PTH123 - by texts
        for piece in [source] if isinstance(source, bytes) else _pieces(source, entry.size):
            digest.update(piece)
            left = memoryview(piece)
            while left:
                left = left[file.write(left) :]
        if digest.hexdigest() != entry.sha256:
            raise InputError.of(
                code="digest",
                field=entry.path,
                message="its content is not what its digest says",
                hint="send it again",
            )
        os.fchmod(file.fileno(), entry.mode)


def _pieces(path: str | Path, size: int) -> Iterator[bytes]:
    """Yield the bytes of a file of about `size`: of a small one by one read, and another that finds its end."""
    at_once = min(max(size + 1, _SMALL_BYTES), _PIECE_BYTES)
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - by texts
        while piece := file.read(at_once):
            yield piece


def tree_of(folder: Path) -> Tree:
    """Compute the tree of a folder that was laid out; only its empty folders have entries."""
    entries: list[TreeEntry] = []
    _gather(folder, "", entries)
    return Tree(entries=sorted(entries, key=lambda each: each.path))


def _gather(folder: Path, prefix: str, entries: list[TreeEntry]) -> None:
    with os.scandir(folder) as found:
        names = list(found)
    if not names and prefix:
        mode = stat.S_IMODE(folder.stat().st_mode)
        entries.append(TreeEntry(path=prefix.rstrip("/"), kind="folder", mode=mode))
    for each in names:
        path = prefix + each.name
        if each.is_symlink():
            target = os.readlink(each.path)  # noqa: PTH115 - as written
            entries.append(TreeEntry(path=path, kind="symlink", mode=0o777, link=target))
        elif each.is_dir():
            _gather(Path(each.path), f"{path}/", entries)
        else:  # a socket or pipe has no content, and no tree has such an entry
            info = each.stat(follow_symlinks=False)
            entries.append(_file(each.path, path, info))


def _file(place: str, path: str, info: os.stat_result) -> TreeEntry:
    """The entry of a file as it lies there; its size is that of what was read."""
    mode = stat.S_IMODE(info.st_mode)
    if not stat.S_ISREG(info.st_mode):
        return TreeEntry(path=path, mode=mode)
    digest, size = hashlib.sha256(), 0
    for piece in _pieces(place, info.st_size):
        digest.update(piece)
        size += len(piece)
    return TreeEntry(path=path, mode=mode, size=size, sha256=digest.hexdigest())
