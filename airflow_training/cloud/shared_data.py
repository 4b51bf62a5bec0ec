"""What of this machine a run elsewhere may read, shown before it is sent: data that stays, path arguments, `--data`."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_training.capture.command import path_value, tree_path
from airflow_training.capture.kinds import size_text
from airflow_training.capture.model import CapturedCommand, Omission
from airflow_training.capture.project import ProjectCapture
from airflow_training.capture.roots import is_shared_folder
from airflow_training.capture.secrets import secret_file
from airflow_training.cloud.own_files import own_files
from airflow_training.errors import InputError, Problem
from airflow_training.interception.classification import is_secret_like
from airflow_training.remote_data.known_digests import KnownDigests
from airflow_training.remote_data.manifest import DataFile, DataManifest, DataRoot
from airflow_training.remote_data.roots import scan_root

__all__ = ["MOST_DATA_FILES", "SharedData", "describe_shared", "find_shared_data", "shared_json"]

MOST_DATA_FILES = 200_000
_MOST_ROWS = 10
_BEFORE = rb"(?:(?<=file://)|(?<![\w./\x80-\xff-]))"
_AFTER = rb"(?![\w\x80-\xff-]|\.\w)"
"""What stands around a path in a program that is not the end, or the beginning, of another one: `/data` in `/database`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedData:
    """What is shown, and the command as a run spells it that finds outside data at another place."""

    manifest: DataManifest
    """Without a source: each run is its own."""
    command: CapturedCommand
    notes: Sequence[str] = ()
    problems: Sequence[Problem] = ()

    @property
    def document(self) -> bytes:
        """The manifest as it travels, empty where nothing is shared: equal manifests give equal bytes."""
        if not any(root.files or root.folders or root.links for root in self.manifest.roots):
            return b""
        return self.manifest.to_bytes()

    def check(self) -> None:
        """Raise InputError where the run would not find, or may not have, what it reads."""
        if self.problems:
            raise InputError(problems=self.problems)


@dataclass(slots=True)
class _Found:
    """What was found so far."""

    capture: ProjectCapture
    below: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """Place of a root in the run's folder, and here -> paths below it."""
    outside: dict[str, str] = field(default_factory=dict)
    """Path here, outside of the project -> its place."""
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    omissions: list[Omission] = field(default_factory=list)


def find_shared_data(
    capture: ProjectCapture,
    paths: Sequence[str] = (),
    *,
    loaded: Sequence[Path] = (),
    working_dir: Path,
    known: KnownDigests | None = None,
) -> SharedData:
    """Look at what a captured run may read; no content is read.

    `paths`: of `--data`, as they were typed in `working_dir`. `loaded`: what the program was seen to open here. `known`:
    digests of earlier runs, which content has to have then.
    """
    found = _Found(capture)
    for each in capture.local_data:
        _add_local(found, each.path, str(each.source))
    command = capture.command
    named = {path for path in command.paths.values() if tree_path(Path(path), capture.root) is None}
    for path in sorted(named):
        why = _refusal(path, capture.root)
        if why:
            found.notes.append(f"{path} stays here, and the run cannot read it: {why}")
        else:
            _add_outside(found, path)
    for text in paths:
        path = os.path.normpath(working_dir / text)
        inside = tree_path(Path(path), capture.root)
        why = _refusal(path, capture.root) if inside is None or is_secret_like(path) else ""
        if why or not os.path.lexists(path):
            found.problems.append(
                Problem(
                    code="not_allowed",
                    field="--data",
                    value=text,
                    message=why or "there is no such file or folder",
                    hint="name the file or folder that the script reads",
                )
            )
        elif inside is not None:
            _add_local(found, inside, path)
        elif path not in named:
            _add_outside(found, path)
            found.problems += _absolute_spellings(capture, path)
    _look_at_loads(found, loaded)
    roots = [*_scan(found, known)]
    if (count := sum(len(root.files) for root in roots)) > MOST_DATA_FILES:
        found.problems.append(
            Problem(
                code="out_of_range",
                field="data",
                message=f"{count:,} files would be shown to the run",
                allowed=(f"{MOST_DATA_FILES:,} files",),
                hint="put small files into archives or shards, or run it in a smaller project",
            )
        )
    return SharedData(
        manifest=DataManifest(source="", roots=roots, omissions=found.omissions),
        command=_spelled(command, found),
        notes=found.notes,
        problems=found.problems,
    )


def _look_at_loads(found: _Found, loaded: Sequence[Path]) -> None:
    """Refuse what the program opens outside of the project by a path that it spells; tell of what it finds otherwise."""
    shared = [Path(each) for each in found.outside]
    unknown = [
        each
        for each in loaded
        if tree_path(each, found.capture.root) is None
        and not any(other in (each, *each.parents) for other in shared)
        and not any(
            part.startswith(".") for part in each.parts
        )  # a cache of a library, its settings
    ]
    for each in unknown[:_MOST_ROWS]:
        spelled = [*_spelling_lines(found.capture, str(each))]
        found.problems += spelled
        if not spelled:
            found.notes.append(
                f"{each} was opened here, and lies outside of the project: the run has it only where an argument"
                f" of the script names it, or its folder: SCRIPT --data {each}"
            )
    if len(unknown) > _MOST_ROWS:
        found.notes.append(f"{len(unknown) - _MOST_ROWS:,} more files outside of the project")


def _add_local(found: _Found, path: str, source: str) -> None:
    """Share what lies in the tree, at the same place of the run's folder."""
    top = "project" if path.split("/")[0] == "project" else "/".join(path.split("/")[:2])
    below = path.removeprefix(top).lstrip("/")
    if not below:  # all of the project: what does not travel is shown already
        return
    if source.endswith("/" + below):
        root = source[: -len(below) - 1]
    else:  # a package that is called otherwise where it lies
        top, below = posixpath.split(path)
        root, name = posixpath.split(source)
        if name != below:
            found.notes.append(f"{source} stays here, and the run cannot read it: it is renamed")
            return
    found.below.setdefault((top, root), set()).add(below)


def _add_outside(found: _Found, path: str) -> None:
    """Share what lies outside of the project, at a place that is called like it."""
    above = next((each for each in found.outside if path.startswith(each + os.sep)), None)
    if above is not None and Path(above).is_dir():
        found.outside[path] = f"{found.outside[above]}/{os.path.relpath(path, above)}"
        return
    name = posixpath.basename(path)
    found.outside[path] = f"data/{len(found.outside)}/{name}"
    top = posixpath.dirname(found.outside[path])
    found.below[top, posixpath.dirname(path)] = {name}


def _refusal(path: str, root: Path) -> str:
    """Why a path outside of the project is not shared; empty where it is."""
    place = Path(path)
    if is_secret_like(path) or secret_file(path):
        return "it looks like a secret"
    if place.is_symlink():
        return f"it is a link; name {place.resolve()}"
    if is_shared_folder(place) or place in root.parents:
        return "it holds far more than one data set"
    if not place.is_dir() and not place.is_file():
        return f"{place} is no file and no folder"
    return ""


def _scan(found: _Found, known: KnownDigests | None) -> Iterator[DataRoot]:
    ours = own_files()
    travels = {each.path for each in found.capture.tree.entries if each.kind != "folder"}
    for (top, root), below in sorted(found.below.items()):

        def is_left_out(path: str, top: str = top, root: str = root) -> bool:
            if f"{top}/{os.path.relpath(path, root)}" in travels or Path(path) in ours:
                return True
            what = secret_file(path)
            if what:
                found.omissions.append(Omission(path=path, reason=what))
            return bool(what)

        there = _outermost([each for each in below if os.path.lexists(f"{root}/{each}")])
        yield scan_root(
            top, root, there, omissions=found.omissions, known=known, is_left_out=is_left_out
        )


def _outermost(paths: Sequence[str]) -> Sequence[str]:
    """Leave out what lies in another."""
    known = set(paths)
    return [
        each
        for each in paths
        if not any(each[:place] in known for place, text in enumerate(each) if text == "/")
    ]


def _spelled(command: CapturedCommand, found: _Found) -> CapturedCommand:
    """The command with outside data where the run finds it."""
    args = [*command.args]
    for index, path in command.paths.items():
        if path in found.outside:
            text, value = args[index], path_value(args[index])
            place = posixpath.relpath(found.outside[path], command.working_dir)
            args[index] = text.removesuffix(value) + place
    return replace(command, args=args)


def _absolute_spellings(capture: ProjectCapture, path: str) -> Iterator[Problem]:
    """Refuse programs that name outside data themselves: no argument tells them where a run has it."""
    spelled = [*_spelling_lines(capture, path)]
    yield from spelled
    if not spelled:
        yield Problem(
            code="not_allowed",
            field="--data",
            value=path,
            message="it lies outside of the project, and no argument of the script names it",
            hint=f"SCRIPT --data {path}, where the script reads such an argument; the run finds it there",
        )


def _spelling_lines(capture: ProjectCapture, path: str) -> Iterator[Problem]:
    """The lines of the program in which a path of this machine stands."""
    told = 0
    whole = re.compile(_BEFORE + re.escape(os.fsencode(path)) + _AFTER)
    for each in sorted(capture.tree.entries):
        if each.kind != "file" or not each.path.endswith(".py"):
            continue
        source = capture.contents[each.sha256]
        text = source if isinstance(source, bytes) else source.read_bytes()
        for number, line in enumerate(text.split(b"\n"), 1):
            if whole.search(line) and told < _MOST_ROWS:
                told += 1
                yield Problem(
                    code="not_supported",
                    field=f"{each.path.removeprefix('project/')}:{number}",
                    message=f"{path} is a path of this machine, and the run has its data at another",
                    hint=f"let an argument of the script name it: SCRIPT --data {path}",
                )


def describe_shared(manifest: DataManifest) -> Sequence[str]:
    """Tell what the run may read of this machine, a line for each file or folder, the largest first."""
    rows = sorted(_rows(manifest), key=lambda row: (-row[2], row[0]))
    lines = [
        f"{path} ({count:,} files, {size_text(size)})"
        if count != 1
        else f"{path} ({size_text(size)})"
        for path, count, size in rows[:_MOST_ROWS]
    ]
    if len(rows) > _MOST_ROWS:
        rest = rows[_MOST_ROWS:]
        lines.append(f"{len(rest):,} more ({size_text(sum(size for _, _, size in rest))})")
    return lines


def _rows(manifest: DataManifest) -> Iterator[tuple[str, int, int]]:
    for root in manifest.roots:
        tops: dict[str, list[DataFile]] = {}
        for file in root.files:
            tops.setdefault(file.path.split("/")[0], []).append(file)
        base = "" if root.name == "project" else f"{root.path}/"
        for top, files in tops.items():
            name = f"{top}/" if len(files) > 1 else files[0].path
            yield f"{base}{name}", len(files), sum(file.size for file in files)


def shared_json(manifest: DataManifest) -> Mapping[str, Any]:
    """The same as a document with stable keys."""
    return {
        "files": sum(len(root.files) for root in manifest.roots),
        "bytes": manifest.size,
        "roots": [
            {
                "name": root.name,
                "path": root.path,
                "files": len(root.files),
                "bytes": sum(file.size for file in root.files),
            }
            for root in manifest.roots
        ],
        "omissions": [each.to_json() for each in manifest.omissions],
    }
