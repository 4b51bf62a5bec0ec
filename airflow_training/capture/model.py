"""What travels: files by digest, the command line, and what stays behind with the reason. Data only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from airflow_training.errors import InputError

__all__ = ["CapturedCommand", "Omission", "Tree", "TreeEntry"]

EntryKind = Literal["file", "symlink", "folder"]
_KINDS = get_args(EntryKind)
OmissionKind = Literal["ignored", "data", "model", "large", "environment", "link", "special"]
"""Data, models, large files and what is ignored can be read on demand; the others stay behind."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TreeEntry:
    """One name of the tree that is laid out elsewhere.

    `path` is relative, with `/`: `project/...` for the project's root and `imports/<name>/...` for each
    folder that is imported from outside of it. Empty folders have entries, others need none.
    """

    path: str
    kind: EntryKind = "file"
    mode: int = 0o644
    """Permission bits only."""
    size: int = 0
    """In bytes; 0 for links and folders."""
    sha256: str = ""
    """Hexadecimal, of a file's bytes."""
    link: str = ""
    """What a symlink points to, as written."""

    def to_json(self) -> Mapping[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """All that is laid out in a run's folder, sorted by path."""

    entries: Sequence[TreeEntry]

    @property
    def rows(self) -> list[list[Any]]:
        """The fields of all entries, sorted as entries are: lists of thousands compare faster than dataclasses."""
        return sorted(
            [each.path, each.kind, each.mode, each.size, each.sha256, each.link]
            for each in self.entries
        )

    @property
    def digest(self) -> str:
        """SHA-256 over every entry's path, kind, mode, size and content: equal trees, equal digests."""
        return hashlib.sha256(json.dumps(self.rows, separators=(",", ":")).encode()).hexdigest()

    @property
    def blobs(self) -> Mapping[str, int]:
        """Size in bytes by the digest of each content that a store must hold."""
        return {each.sha256: each.size for each in self.entries if each.kind == "file"}

    def to_json(self) -> Mapping[str, Any]:
        return {"digest": self.digest, "entries": [each.to_json() for each in self.entries]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Tree:
        """Read what `to_json` wrote; it may come from anywhere.

        Raises:
            InputError: it is no tree.
        """
        try:
            return cls(entries=[_entry(each) for each in document["entries"]])
        except (LookupError, TypeError, ValueError) as error:
            raise InputError.of(
                code="tree",
                field="entries",
                message=f"it is no tree of a capture: {error}",
                hint="send what the capture wrote, unchanged",
            ) from None


def _entry(document: Mapping[str, Any]) -> TreeEntry:
    entry = TreeEntry(**document)
    texts, numbers = (entry.path, entry.sha256, entry.link), (entry.mode, entry.size)
    if (
        entry.kind not in _KINDS
        or not all(isinstance(text, str) for text in texts)
        or not all(type(number) is int and number >= 0 for number in numbers)
    ):
        raise ValueError(f"an entry of another kind or type: {entry.path!r}")
    "".join(texts).encode()  # not a name that no file can have
    return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedCommand:
    """The command line that is run in the tree: `python SCRIPT ARGS` or `python -m MODULE ARGS`."""

    kind: Literal["script", "module"]
    entry: str
    """The script below `project/`, or the module's dotted name."""
    args: Sequence[str] = ()
    working_dir: str = "project"
    """A folder of the tree."""
    import_paths: Sequence[str] = ()
    """Folders of the tree that stand on PYTHONPATH, in order."""
    env: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[int, str] = field(default_factory=dict)
    """Index in `args` -> path on this machine, for arguments that name a file or folder that exists."""

    def to_json(self) -> Mapping[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> CapturedCommand:
        paths = {int(index): path for index, path in document.get("paths", {}).items()}
        return cls(**{**document, "paths": paths})


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """A file or folder of the project that does not travel."""

    path: str
    """As in the tree; a folder's ends with `/`."""
    reason: str
    """In words: ignored by git, larger than the limit, a data file that is read on demand ..."""
    size: int = 0
    """In bytes, of all files in a folder; 0 where nobody looked into it."""
    kind: OmissionKind = "ignored"
    count: int = 1
    """Files that this stands for."""

    def to_json(self) -> Mapping[str, Any]:
        return asdict(self)
