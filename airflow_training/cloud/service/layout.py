"""The tree of a submission as files of a folder, proven equal before anything of it is executed."""

from __future__ import annotations

import json
import os
import posixpath
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from airflow_training.capture.model import Tree, TreeEntry
from airflow_training.cloud.protocol import DataRoot, TreeManifest
from airflow_training.cloud.service.content import ContentFolder, digest_of
from airflow_training.errors import InputError, Problem

__all__ = ["DamagedContent", "changed_files", "check_tree", "lay_out", "scan"]

_MODEL_SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors", ".onnx", ".keras", ".h5", ".bin")
_MOST_LINKS = 20_000
_STATE = "layout.json"


class DamagedContent(InputError):
    """The store's copy of a content is not what its name says; it is gone from the store."""


def check_tree(tree: Tree) -> None:
    """Raise InputError where a tree would write outside of its folder, or twice to one place."""
    problems = [
        Problem(code="not_allowed", field="tree", value=path, message=message)
        for path, message in _wrong_entries(tree.entries)
    ]
    if problems:
        raise InputError(problems=problems[:10])


def _wrong_entries(entries: Sequence[TreeEntry]) -> Iterator[tuple[str, str]]:
    seen: dict[str, str] = {}
    for each in entries:
        parts = each.path.split("/")
        if each.path in seen:
            yield each.path, "stands twice in the tree"
        seen[each.path] = each.kind
        if parts[0] not in ("project", "imports") or not all(parts) or {".", ".."} & {*parts}:
            yield each.path, "is no path below project/ or imports/"
        elif "\0" in each.path or "\0" in each.link:
            yield each.path, "has a zero byte in its name"
        elif each.kind not in ("file", "symlink", "folder"):
            yield each.path, f"is of no known kind: {each.kind}"
        elif each.kind != "symlink" and each.mode & ~0o777:
            yield each.path, "has more than permission bits in its mode"
        elif each.kind == "file" and (len(each.sha256) != 64 or each.size < 0):
            yield each.path, "has no digest"
    for each in entries:
        above = each.path
        while (above := posixpath.dirname(above)).strip("/"):
            if seen.get(above, "folder") != "folder":
                yield each.path, f"lies below {above}, which is no folder"


def lay_out(
    manifest: TreeManifest, folder: Path, content: ContentFolder, *, link_data: bool
) -> None:
    """Make the folder of a run; raises DamagedContent, and leaves none, where one byte differs.

    `link_data`: the data lies on this machine, where the run reads it in place.
    """
    if (folder / _STATE).is_file():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for kind in ("folder", "file", "symlink"):
        for each in manifest.tree.entries:
            if each.kind == kind:
                _make(folder / each.path, each, content)
    (folder / "project").mkdir(exist_ok=True)
    found = scan(folder, manifest.tree)
    if found.digest != manifest.tree.digest:
        shutil.rmtree(folder, ignore_errors=True)
        raise _damage(found, manifest.tree, content)
    if link_data:
        for root in manifest.data:
            _link(root, folder)
    state = {path: [info.st_size, info.st_mtime_ns] for path, info in _files(folder)}
    draft = folder / f"{_STATE}.draft"
    draft.write_text(json.dumps(state))
    draft.replace(folder / _STATE)


def scan(folder: Path, expected: Tree) -> Tree:
    """Read the tree back from the folder: what is expected as it is there, and all that is there besides."""
    known = {each.path: each for each in expected.entries}
    there = [path for path in known if os.path.lexists(folder / path)]
    there += [path for path, _ in _files(folder) if path not in known]
    entries = [_entry(folder, path, known.get(path)) for path in there]
    return Tree(entries=entries)


def changed_files(folder: Path) -> Sequence[str]:
    """The files that are new or other since the folder was laid out, sorted; caches of Python left out."""
    before: Mapping[str, Sequence[int]] = json.loads((folder / _STATE).read_text())
    found = [
        path
        for path, info in _files(folder)
        if path.startswith("project/")
        and "/__pycache__/" not in path
        and stat.S_ISREG(info.st_mode)
        and before.get(path) != [info.st_size, info.st_mtime_ns]
    ]
    return sorted(found)


def _make(path: Path, entry: TreeEntry, content: ContentFolder) -> None:
    if entry.kind == "folder":
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if entry.kind == "symlink":
        path.symlink_to(entry.link)
        return
    shutil.copyfile(content.path(entry.sha256), path)
    path.chmod(entry.mode)


def _entry(folder: Path, path: str, expected: TreeEntry | None) -> TreeEntry:
    """Read an entry back; the modes of links and folders are not laid out, and not compared."""
    place = folder / path
    info = place.lstat()
    mode = stat.S_IMODE(info.st_mode)
    if expected is not None and not stat.S_ISREG(info.st_mode):
        mode = expected.mode
    if stat.S_ISLNK(info.st_mode):
        return TreeEntry(path=path, kind="symlink", mode=mode, link=str(place.readlink()))
    if stat.S_ISDIR(info.st_mode):
        return TreeEntry(path=path, kind="folder", mode=mode)
    return TreeEntry(path=path, mode=mode, size=info.st_size, sha256=digest_of(place))


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield all below `project` and `imports` that is no folder, links as links."""
    stack = [folder / "project", folder / "imports"]
    while stack:
        here = stack.pop()
        if not here.is_dir():
            continue
        with os.scandir(here) as found:
            for each in found:
                if each.is_dir(follow_symlinks=False):
                    stack.append(Path(each.path))
                else:
                    info = each.stat(follow_symlinks=False)
                    yield os.path.relpath(each.path, folder), info


def _link(root: DataRoot, folder: Path) -> None:
    """Let the run read data where it lies: a link for each file, so that what it writes stays in its folder.

    What may be a model that the run writes again is copied: a link would lead its bytes to the original.
    """
    source, place = Path(root.source), folder / root.path
    if not source.exists() or os.path.lexists(place):
        return
    files = [source] if source.is_file() else [each for each in source.rglob("*") if each.is_file()]
    if len(files) > _MOST_LINKS:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(source)
        return
    if source.is_dir():
        place.mkdir(parents=True, exist_ok=True)
    for each in files:
        target = place / each.relative_to(source) if source.is_dir() else place
        target.parent.mkdir(parents=True, exist_ok=True)
        if each.suffix in _MODEL_SUFFIXES:
            shutil.copyfile(each, target)
        else:
            target.symlink_to(each.resolve())


def _damage(found: Tree, wanted: Tree, content: ContentFolder) -> InputError:
    """Name what differs, and forget the store's copies that are damaged."""
    there = {each.path: each for each in found.entries}
    other = [each for each in wanted.entries if there.get(each.path) != each]
    extra = sorted({*there} - {each.path for each in wanted.entries})
    damaged = [
        each
        for each in other
        if each.kind == "file"
        and content.has(each.sha256)
        and digest_of(content.path(each.sha256)) != each.sha256
    ]
    for each in damaged:
        content.forget(each.sha256)
    names = [each.path for each in other] + extra
    kind = DamagedContent if damaged else InputError
    return kind.of(
        code="conflict",
        field="tree",
        message="the files laid out are not those that were sent; nothing was executed",
        value=", ".join(names[:5]),
        hint="the same command again sends what is damaged",
    )
