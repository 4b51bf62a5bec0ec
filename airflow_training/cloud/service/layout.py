"""The tree of a submission as files of a folder, proven equal before anything of it is executed."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from airflow_training.capture import layout
from airflow_training.capture.model import Tree
from airflow_training.cloud.own_files import own_files
from airflow_training.cloud.protocol import DataReference, TreeManifest
from airflow_training.cloud.service.content import ContentFolder, digest_of
from airflow_training.errors import InputError, Problem
from airflow_training.remote_data.manifest import DataManifest

__all__ = ["changed_files", "check_tree", "lay_out"]

_MODEL_SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors", ".onnx", ".keras", ".h5", ".bin")
_MOST_LINKS = 20_000
_STATE = "layout.json"
_TOPS = ("project", "imports")


def check_tree(tree: Tree) -> None:
    """Raise InputError where a tree would write or lead outside of its folder, or twice to one place."""
    problems = [
        Problem(code="not_allowed", field="tree", value=each.path, message=message)
        for each in tree.entries
        for message in (
            "is no path below project/ or imports/" * (each.path.split("/")[0] not in _TOPS),
            "is of no known kind" * (each.kind not in ("file", "symlink", "folder")),
        )
        if message
    ]
    if problems:
        raise InputError(problems=problems[:10])
    layout.check_paths(tree)


def lay_out(
    manifest: TreeManifest,
    folder: Path,
    content: ContentFolder,
    *,
    link_data: bool,
    shared: DataManifest | None = None,
) -> None:
    """Make the folder of a run; raises InputError, and leaves none, where one byte differs.

    `link_data`: the data lies on this machine, where the run reads it in place. `shared`: what will be laid
    out without content, and is no output as long as it is what it was.
    """
    if (folder / _STATE).is_file():
        return
    shutil.rmtree(folder, ignore_errors=True)
    try:
        layout.lay_out(manifest.tree, folder, content.place)
        same = layout.tree_of(folder).digest == manifest.tree.digest
    except InputError as error:
        if error.problems[0].code != "digest":
            raise
        same = False
    if not same:
        shutil.rmtree(folder, ignore_errors=True)
        raise _damage(manifest.tree, content)
    (folder / "project").mkdir(exist_ok=True)
    if link_data:
        for root in manifest.data:
            _link(root, folder, ours=own_files())
    state = {path: [info.st_size, info.st_mtime_ns] for path, info in _files(folder)}
    if shared is not None:
        for place in shared.roots:
            state |= {
                f"{place.name}/{each.path}": [each.size, each.mtime_ns] for each in place.files
            }
    draft = folder / f"{_STATE}.draft"
    draft.write_text(json.dumps(state))
    draft.replace(folder / _STATE)


def changed_files(folder: Path) -> Sequence[str]:
    """The files that are new or other since the folder was laid out, sorted; caches of Python left out.

    None of a folder that was removed to make room.
    """
    if not folder.is_dir():
        return []
    before: Mapping[str, Sequence[int]] = json.loads((folder / _STATE).read_text())
    found = [
        path
        for path, info in _files(folder)
        if path.startswith("project/")
        and "/__pycache__/" not in path
        and stat.S_ISREG(info.st_mode)
        and info.st_atime_ns  # else it is data of which only a part has come
        and before.get(path) != [info.st_size, info.st_mtime_ns]
    ]
    return sorted(found)


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield all below `project` and `imports` that is no folder, links as links."""
    stack = [*_TOPS]
    while stack:
        here = stack.pop()
        try:
            with os.scandir(folder / here) as found:
                entries = list(found)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for each in entries:
            path = f"{here}/{each.name}"
            if each.is_dir(follow_symlinks=False):
                stack.append(path)
            else:
                yield path, each.stat(follow_symlinks=False)


def _link(root: DataReference, folder: Path, *, ours: Collection[Path]) -> None:
    """Let the run read data where it lies: a link for each file, so that what it writes stays in its folder.

    What may be a model that the run writes again is copied: a link would lead its bytes to the original.
    """
    source, place = Path(root.source), folder / root.path
    if source.is_file():
        _link_file(source, place)
        return
    # of a folder of which something travels, only the files that lie in it stay: others are told by themselves
    mixed = place.is_dir() and any(each.is_file() for each in place.rglob("*"))
    files = [*_data_files(source, deep=not mixed, ours=ours)]
    if len(files) > _MOST_LINKS and not mixed:
        if place.is_dir():
            shutil.rmtree(place)  # nothing but empty folders
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(source)
        return
    for each in files:
        _link_file(each, place / each.relative_to(source))


def _data_files(source: Path, *, deep: bool, ours: Collection[Path]) -> Iterator[Path]:
    for here, folders, names in os.walk(source):
        folders[:] = [each for each in folders if deep and Path(here, each).resolve() not in ours]
        for name in names:
            path = Path(here, name)
            if path.is_file() and path.resolve() not in ours:
                yield path


def _link_file(source: Path, place: Path) -> None:
    if os.path.lexists(place):
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix in _MODEL_SUFFIXES:
        shutil.copyfile(source, place)
    else:
        place.symlink_to(source.resolve())


def _damage(wanted: Tree, content: ContentFolder) -> InputError:
    """Name what differs, and forget the store's copies that are damaged."""
    damaged = [
        each
        for each in wanted.entries
        if each.kind == "file"
        and content.has(each.sha256)
        and digest_of(content.path(each.sha256)) != each.sha256
    ]
    for each in damaged:
        content.forget(each.sha256)
    return InputError.of(
        code="conflict",
        field="tree",
        message="the files laid out are not those that were sent; nothing was executed",
        value=", ".join(each.path for each in damaged[:5]),
        hint="the same command again sends what is damaged",
    )
