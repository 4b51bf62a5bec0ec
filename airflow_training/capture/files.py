"""Which files of a folder travel, and why others stay: what git lists, else a walk by ignore files. Reads no content."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from airflow_training.capture import git
from airflow_training.capture.ignore import ALWAYS, OWN_FILE, IgnoreRules, is_environment
from airflow_training.capture.kinds import on_demand
from airflow_training.capture.links import destination
from airflow_training.capture.model import EntryKind, Omission, OmissionKind
from airflow_training.capture.summary import summarized

__all__ = ["Candidate", "Listing", "list_files", "list_needed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A name that travels, before its content is read."""

    path: str
    """Relative to the folder that was listed."""
    source: Path
    kind: EntryKind
    mode: int
    size: int = 0
    link: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    candidates: Sequence[Candidate]
    omissions: Sequence[Omission]
    notes: Sequence[str] = ()
    """What the user should know of how the files were found."""


def list_files(
    root: Path, *, needed: Collection[str] = (), excluded: Collection[Path] = ()
) -> Listing:
    """List what travels of a folder.

    `needed` are paths from the folder that travel whatever an ignore file says and whatever they are; of
    a folder, all in it. `excluded` are files and folders that stay and are not told: not the project's.
    """
    walk = _FolderWalk(root=root, needed=frozenset(needed), excluded=_names_below(root, excluded))
    view: _View = _IgnoreFiles(IgnoreRules((".gitignore",)))
    try:
        if git.repository_top(root) is not None:
            lists = _GitLists.of(root, "", walk.notes)
            view = lists
            if lists.ignores_all:
                walk.notes.append(
                    f"git ignores the whole folder {root}: its files are found by ignore files"
                )
                view = _IgnoreFiles(IgnoreRules((".gitignore",)))
    except git.GitError as error:
        walk.notes.append(_no_git(root, error))
    walk.visit(root, "", view, IgnoreRules((OWN_FILE,)))
    return walk.listing()


def list_needed(root: Path, needed: Collection[str]) -> Listing:
    """List only what is needed of a folder that is not a project's own."""
    walk = _FolderWalk(root=root, needed=frozenset(needed))
    for path in sorted(needed):
        source = root / path
        if source.is_dir():
            rules = IgnoreRules((".gitignore",))
            walk.visit(source, f"{path}/", _IgnoreFiles(rules), IgnoreRules((OWN_FILE,)))
        elif source.is_file():
            walk.add_file(path, source, in_package=False)
    return walk.listing()


def _no_git(folder: Path, error: git.GitError) -> str:
    return f"{folder}: {error}: files are found by ignore files"


class _View(Protocol):
    """What some ignore rules say of a folder's names."""

    @property
    def reason(self) -> str: ...

    def ignores(self, path: str) -> bool: ...

    def below(self, folder: Path, path: str) -> _View: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _GitLists:
    """A repository's own answer; paths in it are relative to the folder that is listed."""

    files: frozenset[str]
    ignored: frozenset[str]
    prefix: str
    notes: list[str]
    reason: str = "ignored by git"

    @classmethod
    def of(cls, folder: Path, prefix: str, notes: list[str]) -> _GitLists:
        return cls(
            files=frozenset(prefix + each for each in git.listed_files(folder)),
            ignored=frozenset(prefix + each for each in git.ignored_names(folder)),
            prefix=prefix,
            notes=notes,
        )

    @property
    def ignores_all(self) -> bool:
        return f"{self.prefix}./" in self.ignored

    def ignores(self, path: str) -> bool:
        return path in self.ignored if path.endswith("/") else path not in self.files

    def below(self, folder: Path, path: str) -> _View:
        if not path or path == self.prefix or not (folder / ".git").exists():
            return self
        try:
            return _GitLists.of(folder, path, self.notes)
        except git.GitError as error:  # its repository lies elsewhere, or is another user's
            self.notes.append(_no_git(folder, error))
            return _IgnoreFiles(IgnoreRules((".gitignore",))).below(folder, path)


@dataclass(frozen=True, slots=True)
class _IgnoreFiles:
    """Where there is no git: `.gitignore` files are followed all the same."""

    rules: IgnoreRules
    reason: str = "ignored by .gitignore"

    def ignores(self, path: str) -> bool:
        return self.rules.decide(path) is True

    def below(self, folder: Path, path: str) -> _View:
        return _IgnoreFiles(self.rules.below(folder, path))


@dataclass(slots=True, kw_only=True)
class _FolderWalk:
    """One pass over the folder, which asks the view of every name."""

    root: Path
    needed: frozenset[str]
    excluded: frozenset[str] = frozenset()
    candidates: list[Candidate] = field(default_factory=list)
    omissions: list[Omission] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    followed: set[str] = field(default_factory=set)

    def visit(self, folder: Path, prefix: str, view: _View, own: IgnoreRules) -> None:
        """Add what travels of a folder; `prefix` is its path from the root, with `/` at the end."""
        before = len(self.candidates)
        try:
            entries = sorted(os.scandir(folder), key=lambda each: each.name)
            os.stat(f"{folder}/.")  # noqa: PTH116 - it may be listed, but not entered
        except OSError as error:
            self.omit(prefix or "./", f"it cannot be read: {error.strerror}", kind="special")
            return
        view, own = view.below(folder, prefix), own.below(folder, prefix)
        in_package = any(each.name == "__init__.py" for each in entries)
        for entry in entries:
            path = prefix + entry.name
            if path in self.excluded or (entry.name in ALWAYS and path not in self.needed):
                continue
            if entry.is_dir(follow_symlinks=False):
                self._folder(entry, f"{path}/", view, own)
            elif not (entry.is_symlink() or entry.is_file()):
                self.omit(path, "neither a file nor a folder", kind="special")
            elif self._is_needed(path) or not self._ignored(entry, path, view, own):
                if entry.is_symlink():
                    try:
                        self._link(entry, path, in_package=in_package)
                    except OSError as error:
                        reason = f"a link that cannot be followed: {error.strerror}"
                        self.omit(path, reason, kind="link")
                else:
                    self.add_file(path, Path(entry.path), in_package=in_package)
        if prefix and len(self.candidates) == before:
            self._keep_folder(folder, prefix)

    def add_file(self, path: str, source: Path, *, in_package: bool) -> None:
        """Add a file, or say why it waits until it is read."""
        try:
            found = source.stat()
        except OSError:
            return  # removed since the folder was listed, as logs and checkpoints are
        if not self._is_needed(path):
            waits = on_demand(path, found.st_size, in_package=in_package)
            if waits is not None:
                self.omissions.append(
                    Omission(path=path, kind=waits[0], reason=waits[1], size=found.st_size)
                )
                return
        mode = stat.S_IMODE(found.st_mode) & 0o777
        self.candidates.append(
            Candidate(path=path, source=source, kind="file", mode=mode, size=found.st_size)
        )

    def omit(self, path: str, reason: str, *, kind: OmissionKind, size: int = 0) -> None:
        """Say that something stays."""
        self.omissions.append(Omission(path=path, reason=reason, kind=kind, size=size))

    def listing(self) -> Listing:
        """What was found, in order."""
        self._settle_links()
        self.candidates.sort(key=lambda each: each.path)
        files = [each.path for each in self.candidates if each.kind != "folder"]
        omissions = summarized(self.omissions, files)
        return Listing(candidates=self.candidates, omissions=omissions, notes=self.notes)

    def _settle_links(self) -> None:
        """Leave out links that lead out of the folder by way of others."""
        links = {each.path: each.link for each in self.candidates if each.kind == "symlink"}
        for path in links:
            if destination(path, links) is None:
                self.omit(path, "a link that leads out of the folder, or in a circle", kind="link")
                self.candidates = [each for each in self.candidates if each.path != path]

    def _is_needed(self, path: str) -> bool:
        return path in self.needed or any(each in self.needed for each in _above(path))

    def _needs_below(self, path: str) -> bool:
        return any(each.startswith(path) for each in self.needed)

    def _ignored(self, entry: os.DirEntry[str], path: str, view: _View, own: IgnoreRules) -> bool:
        verdict = own.decide(path)
        if verdict is None and not view.ignores(path):
            return False
        if verdict is False:
            return False
        reason = f"ignored by {OWN_FILE}" if verdict else view.reason
        with contextlib.suppress(FileNotFoundError):  # removed since, as logs and checkpoints are
            size = entry.stat(follow_symlinks=False).st_size
            target = os.readlink(entry.path) if entry.is_symlink() else ""  # noqa: PTH115 - as written
            leads_out = entry.is_dir() and self._inside(Path(entry.path), target) is None
            if leads_out:
                reason += f", a link out of the project, to {target}"
            self.omit(path, reason, kind="link" if leads_out else "ignored", size=size)
        return True

    def _folder(self, entry: os.DirEntry[str], path: str, view: _View, own: IgnoreRules) -> None:
        folder = Path(entry.path)
        with contextlib.suppress(PermissionError):  # told when it is visited
            if is_environment(folder):
                self.omit(path, "a Python environment", kind="environment")
                return
        verdict = own.decide(path)
        by_view = verdict is None and view.ignores(path)
        if not (verdict or by_view) or self._is_needed(path.rstrip("/")):
            self.visit(folder, path, view, own)
            return
        if own.negates or self._needs_below(path):  # some file in it may be wanted all the same
            before = len(self.candidates)
            omitted = len(self.omissions)
            self.visit(folder, path, _Nothing(view.reason), own)
            if any(each.kind != "folder" for each in self.candidates[before:]):
                return
            del self.candidates[before:], self.omissions[omitted:]
        self.omit(path, view.reason if by_view else f"ignored by {OWN_FILE}", kind="ignored")
        if by_view and not path.endswith((".egg-info/", ".dist-info/")):
            # scripts write to folders that are there and ignored: out/, logs/
            self._keep_folder(folder, path)

    def _keep_folder(self, folder: Path, path: str) -> None:
        mode = stat.S_IMODE(folder.stat().st_mode) & 0o777 | 0o700
        self.candidates.append(
            Candidate(path=path.rstrip("/"), source=folder, kind="folder", mode=mode)
        )

    def _link(self, entry: os.DirEntry[str], path: str, *, in_package: bool) -> None:
        target = os.readlink(entry.path)  # noqa: PTH115 - as written
        source = Path(entry.path)
        inside = self._inside(source, target)
        if inside is not None:
            self.candidates.append(
                Candidate(path=path, source=source, kind="symlink", mode=0o777, link=inside)
            )
        elif source.is_file():
            self.add_file(path, source.resolve(), in_package=in_package)
        elif source.is_dir() and (
            self._in_repository(source) or self._is_needed(path) or self._needs_below(f"{path}/")
        ):
            real = os.path.realpath(source)
            if real not in self.followed:
                self.followed.add(real)
                rules = IgnoreRules((".gitignore",))
                self.visit(source, f"{path}/", _IgnoreFiles(rules), IgnoreRules((OWN_FILE,)))
                self.followed.discard(real)
        elif source.exists():
            self.omit(path, f"a link out of the project, to {target}", kind="link")
        else:
            self.omit(path, f"a link to nothing, {target}", kind="link")

    def _in_repository(self, source: Path) -> bool:
        """Whether a link leads to another folder of the same repository: such a folder is code."""
        top = git.repository_top(self.root.resolve())
        return top is not None and top in source.resolve().parents

    def _inside(self, source: Path, target: str) -> str | None:
        """The link as a relative one if it stays in the folder, else None."""
        real = source.parent.resolve()
        above = [each for each in self.followed if Path(each) in (real, *real.parents)]
        if (
            above
        ):  # in a folder that a link leads to: what leads out of that means another place here
            meant = Path(os.path.normpath(real / target))
            if Path(max(above, key=len)) not in meant.parents:
                return None
            return os.path.relpath(meant, real) if target.startswith("/") else target
        parent = os.path.relpath(source.parent, self.root)
        if not target.startswith("/"):
            joined = os.path.normpath(Path(parent, target))
            return None if joined == ".." or joined.startswith("../") else target
        for root in (str(self.root), str(self.root.resolve())):
            if target == root or target.startswith(root + os.sep):
                return os.path.relpath(os.path.relpath(target, root), parent)
        return None


@dataclass(frozen=True, slots=True)
class _Nothing:
    """A folder that is ignored as a whole, looked at for what is kept by name."""

    reason: str

    def ignores(self, path: str) -> bool:
        return not path.endswith("/")

    def below(self, folder: Path, path: str) -> _View:  # noqa: ARG002 - the signature of the other views
        return self


def _names_below(root: Path, paths: Collection[Path]) -> frozenset[str]:
    real = root.resolve()
    resolved = [path.resolve() for path in paths]
    return frozenset(p.relative_to(real).as_posix() for p in resolved if real in p.parents)


def _above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
