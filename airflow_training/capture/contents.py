"""The entries of a tree with their contents, each read once: for its digest, for secrets, for what it names."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_training.capture.code_places import OutsideImport
from airflow_training.capture.files import Candidate, Listing, list_files
from airflow_training.capture.kinds import LARGEST_BYTES, size_text
from airflow_training.capture.known_contents import KnownContents
from airflow_training.capture.model import Omission, TreeEntry
from airflow_training.capture.secrets import Secret, find_secrets, secret_file, secret_problems
from airflow_training.errors import Problem

__all__ = ["TreeContents"]

_TEXTS = (".yaml", ".yml", ".toml", ".json", ".cfg", ".ini", ".py")
_METADATA = ("METADATA", "PKG-INFO", "entry_points.txt", "top_level.txt")


def _name_finder(names: Collection[str]) -> Any:
    """Finds dotted names that begin so, in any text."""
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    words = "|".join(re2.escape(name) for name in sorted(names))
    return re2.compile(rf"(?:^|[^\w./-])({words})\.[A-Za-z_]".encode(), options)


class TreeContents:
    """Entries of the tree, with their contents read once: for the digest and for secrets."""

    def __init__(
        self,
        *,
        allow_secrets: Collection[str],
        watched: Collection[str] = (),
        known: KnownContents | None = None,
    ) -> None:
        """`watched` are packages that a text may name, by code that no import shows. `known` is asked before a file is read."""
        self._known = known
        if known is not None:
            known.load(watched)
        self.allow_secrets = allow_secrets
        self.named: set[str] = set()
        self._names = _name_finder(watched) if watched else None
        self.entries: dict[str, TreeEntry] = {}
        self.contents: dict[str, Path | bytes] = {}
        self.omissions: list[Omission] = []
        self.problems: list[Problem] = []
        self.notes: list[str] = []

    def listing(self, listing: Listing, prefix: str) -> None:
        """Add what was listed of a folder as `prefix`."""
        for each in listing.candidates:
            self._candidate(each, f"{prefix}/{each.path}")
        self.omissions += [
            replace(each, path=f"{prefix}/{each.path.removeprefix('./')}")
            for each in listing.omissions
        ]
        self.notes += [note for note in listing.notes if note not in self.notes]

    def outside(self, each: OutsideImport) -> None:
        """Add what is imported from outside of the project."""
        base = f"imports/{each.name}"
        for target, source in each.items.items():
            path = f"{base}/{target}" if target else base
            if source.is_dir():
                needed = {
                    file.relative_to(source).as_posix()
                    for file in each.needed
                    if source in file.parents
                }
                self.listing(list_files(source, needed=needed), path)
            else:
                self.file(path, source, mode=source.stat().st_mode & 0o777)
        if each.metadata:
            self.metadata(base, each.metadata)

    def metadata(self, base: str, folder: Path) -> None:
        """Add what code reads of its own distribution by `importlib.metadata`."""
        for name in _METADATA:
            if (folder / name).is_file():
                self.file(f"{base}/{folder.name}/{name}", folder / name, mode=0o644)

    def _candidate(self, each: Candidate, path: str) -> None:
        try:
            path.encode()
            each.link.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(path).decode("utf-8", "backslashreplace")
            self._problem(
                shown, "its name is not UTF-8", "rename it, or leave it out by .trainingignore"
            )
            return
        if each.kind == "file":
            self.file(path, each.source, mode=each.mode)
        else:
            self.entries[path] = TreeEntry(
                path=path, kind=each.kind, mode=each.mode, link=each.link
            )

    def file(self, path: str, source: Path, *, mode: int) -> None:
        """Add a file as it is on disk."""
        shown = path.removeprefix("project/")
        try:
            info = source.stat()
            if info.st_size > LARGEST_BYTES:
                self._problem(
                    path,
                    f"the code needs it, and it is larger than {size_text(LARGEST_BYTES)}",
                    "read it by a path that is an argument instead: then it is read on demand",
                )
                return
            known = None if self._known is None else self._known.find(shown, source, info)
            content = b"" if known else source.read_bytes()
        except OSError as error:
            self._problem(
                path,
                f"it cannot be read: {error.strerror}",
                f"chmod u+r {source}, or leave it out by .trainingignore",
            )
            return
        if known:
            sha256, named = known
            self.entries[path] = TreeEntry(path=path, mode=mode, size=info.st_size, sha256=sha256)
            self.named.update(named)
        else:
            sha256, names, secrets = self._add(path, content, mode=mode)
            if self._known is not None and not secrets and len(content) == info.st_size:
                self._known.keep(shown, source, info, sha256=sha256, named=names)
        self.contents[sha256] = source
        what = secret_file(str(source))
        if what and not secret_file(shown):  # a link with a harmless name leads to it
            secret = Secret(path=shown, line=1, what=f"{what}, {source.name},")
            self.problems += secret_problems([secret], allowed=self.allow_secrets)

    def content(self, path: str, content: bytes, *, mode: int) -> str:
        """Add a file of these bytes; its digest."""
        return self._add(path, content, mode=mode)[0]

    def _add(
        self, path: str, content: bytes, *, mode: int
    ) -> tuple[str, set[str], Sequence[Secret]]:
        """Its digest, the packages that it names, and secrets in it, those too that are allowed."""
        sha256 = hashlib.sha256(content).hexdigest()
        self.entries[path] = TreeEntry(path=path, mode=mode, size=len(content), sha256=sha256)
        self.contents[sha256] = content
        names: set[str] = set()
        if self._names is not None and path.endswith(_TEXTS):
            names = {name.decode() for name in self._names.findall(content)}
            self.named |= names
        shown = path.removeprefix("project/")
        secrets = find_secrets(shown, content)
        self.problems += secret_problems(secrets, allowed=self.allow_secrets)
        return sha256, names, secrets

    def folder(self, path: str) -> None:
        """Add a folder that must be there, should nothing be in it."""
        self.entries.setdefault(path, TreeEntry(path=path, kind="folder", mode=0o755))

    def settled(self) -> list[TreeEntry]:
        """All entries; a folder only where it is empty."""
        filled: set[str] = set()
        for path in self.entries:
            while "/" in path and path.rpartition("/")[0] not in filled:
                path = path.rpartition("/")[0]
                filled.add(path)
        kept = [
            each
            for each in self.entries.values()
            if not (each.kind == "folder" and each.path in filled)
        ]
        return sorted(kept, key=lambda each: each.path)

    def _problem(self, path: str, message: str, hint: str) -> None:
        shown = path.removeprefix("project/")
        self.problems.append(Problem(code="file", field=shown, message=message, hint=hint))
