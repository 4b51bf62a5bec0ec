"""All that a local run needs elsewhere: its files by digest, its command, and what stays behind with the reason."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from airflow_training.capture import git
from airflow_training.capture.closure import DynamicImport, import_closure
from airflow_training.capture.code_places import OutsideImport
from airflow_training.capture.command import capture_command
from airflow_training.capture.contents import TreeContents
from airflow_training.capture.files import list_files, list_needed
from airflow_training.capture.git import GitState
from airflow_training.capture.installed import Installed, installed_in, own_site_dirs
from airflow_training.capture.kinds import on_demand, size_text
from airflow_training.capture.known_contents import KnownContents
from airflow_training.capture.model import CapturedCommand, Omission, Tree
from airflow_training.capture.notebook import export_notebook
from airflow_training.capture.roots import find_root, is_shared_folder
from airflow_training.capture.secrets import secret_file
from airflow_training.errors import InputError, Problem

__all__ = ["LocalData", "ProjectCapture", "capture_project", "capture_run"]

_MOST_FILES = 20_000
_MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalData:
    """A file or folder that does not travel before the start, and may be read by the script all the same."""

    path: str
    """Where it is looked for in the tree."""
    source: Path
    """Where it lies on this machine."""
    size: int
    """In bytes; 0 for a folder that nobody looked into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectCapture:
    """What travels, what does not, and what is wrong. Nothing is sent before `check` was called."""

    root: Path
    tree: Tree
    command: CapturedCommand
    omissions: Sequence[Omission] = ()
    outside: Sequence[OutsideImport] = ()
    dynamic_imports: Sequence[DynamicImport] = ()
    missing: Sequence[str] = ()
    """Imports that find nothing here and are not sure to run: `path:line: name`."""
    notes: Sequence[str] = ()
    problems: Sequence[Problem] = ()
    """Secrets, modules that are not found, files that cannot be read."""
    git: GitState | None = None
    contents: Mapping[str, Path | bytes] = field(default_factory=dict)
    """Digest -> the file that has it, or the bytes of what was generated."""

    def check(self) -> None:
        """Refuse what may not, or could not, run elsewhere.

        Raises:
            InputError: with all problems at once.
        """
        if self.problems:
            raise InputError(problems=self.problems)

    @property
    def local_data(self) -> Sequence[LocalData]:
        """What can be read on demand: data, models, large files, and what is ignored unless it is a secret by its name."""
        return [
            LocalData(path=path, source=self._source(path), size=each.size)
            for each in self.omissions
            if each.kind in ("data", "model", "large", "ignored")
            for path in [each.path.rstrip("/")]
            if not secret_file(path) and not secret_file(str(self._source(path).resolve()))
        ]

    def _source(self, path: str) -> Path:
        """Where a path of the tree lies on this machine."""
        for each in self.outside:
            for target, source in each.items.items():
                base = f"imports/{each.name}/{target}"
                if path.startswith(f"{base}/"):
                    return source / path[len(base) + 1 :]
        return self.root / path.removeprefix("project").lstrip("/")

    def read(self, sha256: str) -> bytes:
        """The content of a digest, as it was captured.

        Raises:
            InputError: the file has changed since.
        """
        source = self.contents[sha256]
        if isinstance(source, bytes):
            return source
        content = source.read_bytes() if source.is_file() else b""
        if hashlib.sha256(content).hexdigest() != sha256:
            raise InputError.of(
                code="changed",
                field=str(source),
                message="it has changed while it was sent",
                hint="start again: what is there already is not sent twice",
            )
        return content


def capture_run(
    argv: Sequence[str],
    *,
    working_dir: Path,
    environ: Mapping[str, str],
    root: Path | None = None,
    env: Sequence[str] = (),
    allow_secrets: Collection[str] = (),
    allow_missing: Collection[str] = (),
    excluded: Collection[Path] = (),
    known: KnownContents | None = None,
    loaded: Collection[Path] = (),
) -> ProjectCapture:
    """Capture `SCRIPT ARGS` or `-m MODULE ARGS` as it would run in `working_dir`. Call `check` before sending.

    Args:
        argv: as after `python`; a script may be a notebook.
        working_dir: absolute.
        environ: the variables of this process; PYTHONPATH of it is followed, few others travel.
        root: the project's root, else found.
        env: further variables, NAME or NAME=VALUE.
        allow_secrets: FILE or FILE:LINE that are no secrets, as in the tree without `project/`.
        allow_missing: modules that need not be found.
        excluded: files and folders that are not the project's, should they lie in it: a store, a cache.
        known: of earlier captures; it is written anew.
        loaded: models that the program was seen to load: they travel as those do that an argument names.

    Raises:
        InputError: there is no such script, an argument or variable is a secret, or far too much would travel.
    """
    project = find_root(argv, working_dir=working_dir, root=root)
    command = capture_command(argv, root=project, working_dir=working_dir, environ=environ, env=env)
    generated: dict[str, bytes] = {}
    notes: list[str] = []
    if command.kind == "script" and command.entry.endswith(".ipynb"):
        script = export_notebook((project / command.entry).read_bytes(), path=command.entry)
        notes += [f"{command.entry}: left out: {each}" for each in script.left_out]
        command = replace(command, entry=f"{command.entry}.py")
        generated[command.entry] = script.source
    python_path = [
        Path(os.path.normpath(working_dir / each))
        for each in environ.get("PYTHONPATH", "").split(os.pathsep)
        if each
    ]
    return capture_project(
        project,
        command,
        working_dir=working_dir,
        python_path=python_path,
        generated=generated,
        notes=notes,
        allow_secrets=allow_secrets,
        allow_missing=allow_missing,
        excluded=excluded,
        known=known,
        loaded=loaded,
    )


def capture_project(
    root: Path,
    command: CapturedCommand,
    *,
    working_dir: Path | None = None,
    python_path: Sequence[Path] = (),
    site_dirs: Sequence[Path] | None = None,
    generated: Mapping[str, bytes] | None = None,
    notes: Sequence[str] = (),
    allow_secrets: Collection[str] = (),
    allow_missing: Collection[str] = (),
    excluded: Collection[Path] = (),
    known: KnownContents | None = None,
    loaded: Collection[Path] = (),
) -> ProjectCapture:
    """Capture a command that is known already; `generated` are files below the root that are not on disk."""
    generated = generated or {}
    here = working_dir or root / command.working_dir.removeprefix("project").lstrip("/")
    installed = installed_in(own_site_dirs() if site_dirs is None else site_dirs)
    follow = partial(
        import_closure,
        root=root,
        kind=command.kind,
        entry=command.entry,
        working_dir=here,
        python_path=python_path,
        installed=installed,
        entry_source=generated.get(command.entry),
        also=[Path(p) for p in command.paths.values() if p.endswith(".py") and Path(p).is_file()],
        allow_missing=allow_missing,
    )
    closure = follow()
    own, others = _editables(installed, root)
    contents = TreeContents(allow_secrets=allow_secrets, watched=others, known=known)
    contents.notes += notes
    needed = {*closure.needed, *_named_files(command, root, loaded)} - {*generated}
    if is_shared_folder(root):
        listing = list_needed(root, needed)
        contents.notes.append(
            f"{root} is no project's folder: only what is imported travels; --root FOLDER for all of one"
        )
    else:
        listing = list_files(root, needed=needed, excluded=excluded)
    too_much = list(_too_much({f"project/{e.path}": e.size for e in listing.candidates}, root))
    if too_much:  # before millions of files are read
        raise InputError(problems=too_much)
    contents.listing(listing, "project")
    for path, content in generated.items():
        contents.content(f"project/{path}", content, mode=0o644)
    if contents.named - {*closure.loaded}:  # by a configuration, say: `_target_: mylib.Net`
        closure = follow(also_modules=contents.named)
    for each in closure.outside:
        contents.outside(each)
    for name, metadata in own.items():
        contents.metadata(f"imports/{name}", metadata)
    if command.working_dir != "project" and here.is_dir():
        contents.folder(command.working_dir)
    if working_dir is not None and root not in (working_dir, *working_dir.parents):
        contents.notes.append(
            f"the program runs in the project's folder {root}, not in {working_dir}: relative paths"
            " begin there; --root FOLDER names another project"
        )
    if known is not None:
        known.save()
    tree = Tree(entries=contents.settled())
    return ProjectCapture(
        root=root,
        tree=tree,
        command=replace(
            command,
            import_paths=list(
                dict.fromkeys(
                    [
                        *command.import_paths,
                        *closure.import_paths,
                        *(f"imports/{name}" for name in own),
                    ]
                )
            ),
        ),
        omissions=contents.omissions,
        outside=closure.outside,
        dynamic_imports=closure.dynamic,
        missing=closure.missing,
        notes=contents.notes,
        problems=[
            *closure.problems,
            *contents.problems,
            *_too_much({e.path: e.size for e in tree.entries}, root),
        ],
        git=_git_state(root),
        contents=contents.contents,
    )


def _editables(installed: Installed, root: Path) -> tuple[Mapping[str, Path], frozenset[str]]:
    """The metadata of distributions that are this project's own, and what others' packages are called."""
    own: dict[str, Path] = {}
    others: set[str] = set()
    for each in installed.editables:
        if any(root in (place, *place.parents) for place in each.places):
            own |= {each.name: each.metadata} if each.metadata else {}
        else:
            others |= {name for name in each.names() if name.isidentifier()}
    return own, frozenset(others)


def _named_files(command: CapturedCommand, root: Path, loaded: Collection[Path]) -> Iterator[str]:
    """Files of the project that an argument names, but for data: a model, or a configuration that git ignores.

    And those that were `loaded`.
    """
    for path in (*map(Path, command.paths.values()), *loaded):
        if root in path.parents and path.is_file():
            waits = on_demand(path.name, path.stat().st_size, in_package=False)
            if waits is None or waits[0] == "model":
                yield path.relative_to(root).as_posix()


def _git_state(root: Path) -> GitState | None:
    if git.repository_top(root) is None:
        return None
    try:
        return git.git_state(root)
    except git.GitError:  # told already, where the files were listed
        return None


def _too_much(sizes: Mapping[str, int], root: Path) -> Iterator[Problem]:
    size = sum(sizes.values())
    if len(sizes) <= _MOST_FILES and size <= _MOST_BYTES:
        return
    folders: dict[str, int] = {}
    for path, bytes_ in sizes.items():
        top = "/".join(path.split("/")[:2])
        folders[top] = folders.get(top, 0) + bytes_
    largest = sorted(folders, key=lambda name: -folders[name])[:3]
    told = ", ".join(f"{name} ({size_text(folders[name])})" for name in largest)
    yield Problem(
        code="too-much",
        field=str(root),
        message=f"{len(sizes):,} files of {size_text(size)} would travel; largest: {told}",
        allowed=(f"{_MOST_FILES:,} files", size_text(_MOST_BYTES)),
        hint=f"--root FOLDER, or name what stays in {root}/.trainingignore",
    )
