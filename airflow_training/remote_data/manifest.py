"""What is shared, as it was shown before submission: names, sizes and times; digests where they are known. Data only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_training.capture.model import Omission
from airflow_training.remote_data.chunks import RANGED_FROM_BYTES

__all__ = ["DataFile", "DataManifest", "DataRoot"]

_ROOT_FIELDS = ("name", "path", "folders", "links", "is_whole")
_FILE_FIELDS = ("path", "size", "mtime_ns", "mode")
_DIGESTS = ("chunks",)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file below a root."""

    path: str
    """Relative to the root, with `/`."""
    size: int
    """In bytes."""
    mtime_ns: int
    mode: int = 0o644
    """Permission bits only."""
    chunks: Sequence[str] = ()
    """SHA-256 of each chunk where the sharing machine knows them already; learned at the first read else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRoot:
    """A folder that is shared, or of a folder the files that are shared."""

    name: str
    path: str
    """Absolute, as the sharing machine spells it."""
    files: Sequence[DataFile] = ()
    folders: Sequence[str] = ()
    """All of them, so that empty ones are there too."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Symbolic links that stay inside: path -> where they lead, relative to their own folder."""
    is_whole: bool = True
    """False where only these files of the folder are shared; the others are the run's own business."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataManifest:
    """All that one submission shares."""

    source: str
    """Of this submission only: what is learned of a file under it is never taken for another's."""
    roots: Sequence[DataRoot]
    omissions: Sequence[Omission] = ()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each.size for root in self.roots for each in root.files)

    def key_of(self, root: DataRoot, file: DataFile) -> str:
        """Return the key of a file as it was shown: hexadecimal SHA-256 of what is known of it."""
        known = [self.source, root.name, root.path, file.path, file.size, file.mtime_ns]
        return hashlib.sha256(json.dumps(known, separators=(",", ":")).encode()).hexdigest()

    @property
    def ranged_from(self) -> int:
        """Bytes from which on a file is read in ranges; 0 where no file is so large."""
        files = (each for root in self.roots for each in root.files)
        return RANGED_FROM_BYTES if any(each.size >= RANGED_FROM_BYTES for each in files) else 0

    @property
    def files_by_key(self) -> Mapping[str, tuple[DataRoot, DataFile]]:
        """All files under the keys by which nodes ask for them in a mailbox."""
        return {self.key_of(root, file): (root, file) for root in self.roots for file in root.files}

    def to_json(self) -> Mapping[str, Any]:
        return asdict(self)

    def to_bytes(self, *, with_digests: bool = False) -> bytes:
        """What is shown, as it travels: without source and omissions, equal bytes for equal data.

        `with_digests`: as the sharing machine keeps it, with those that it knows.
        """
        names = (*_FILE_FIELDS, *_DIGESTS) if with_digests else _FILE_FIELDS
        roots = [
            {
                **{name: getattr(root, name) for name in _ROOT_FIELDS},
                "files": [[getattr(file, name) for name in names] for file in root.files],
            }
            for root in self.roots
        ]
        return json.dumps(roots, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str, with_digests: bool = False) -> DataManifest:
        """Read what `to_bytes` wrote. Raises ValueError, TypeError or LookupError for anything else."""

        def names(row: Sequence[Any]) -> Sequence[str]:
            is_known = with_digests and len(row) > len(_FILE_FIELDS)  # an earlier version kept none
            return (*_FILE_FIELDS, *_DIGESTS) if is_known else _FILE_FIELDS

        roots = [
            DataRoot(
                **{name: root[name] for name in _ROOT_FIELDS},
                files=[
                    DataFile(**dict(zip(names(row), row, strict=True))) for row in root["files"]
                ],
            )
            for root in json.loads(data)
        ]
        return cls(source=source, roots=roots)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> DataManifest:
        roots = [
            DataRoot(**{**root, "files": [DataFile(**each) for each in root["files"]]})
            for root in document["roots"]
        ]
        omissions = [Omission(**each) for each in document.get("omissions", ())]
        return cls(source=document["source"], roots=roots, omissions=omissions)
