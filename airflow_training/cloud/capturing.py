"""What travels, found in the files of the project. The seam between this room and `capture`."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_training.capture.model import CapturedCommand, Omission, Tree, TreeEntry
from airflow_training.cloud.targets import cloud_folder
from airflow_training.errors import InputError
from airflow_training.settings import airflow_home, load_settings

__all__ = ["ProjectFiles", "capture_files", "find_root"]

MOST_FILE_BYTES = 256 << 20
_NEVER = frozenset(
    {".git", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".ruff_cache"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFiles:
    """What a command needs, with where each content lies."""

    root: Path
    tree: Tree
    command: CapturedCommand
    omissions: Sequence[Omission]
    sources: dict[str, Path]
    """File by the SHA-256 of its content."""


def find_root(start: Path) -> Path:
    """The project that a folder belongs to: git's top, else the folder itself."""
    for folder in (start, *start.parents):
        if (folder / ".git").exists():
            return folder
    return start


def capture_files(root: Path, command: CapturedCommand) -> ProjectFiles:
    """Read and hash what travels; raises InputError."""
    entries: list[TreeEntry] = []
    omissions: list[Omission] = []
    sources: dict[str, Path] = {}
    listed = _tracked(root)
    ours = _own_folders()
    for path in _walk(root) if listed is None else listed:
        if any(path.is_relative_to(each) for each in ours):
            continue
        name = path.relative_to(root).as_posix()
        try:
            info = path.lstat()
        except FileNotFoundError:  # deleted, and git does not know yet
            continue
        if stat.S_ISLNK(info.st_mode):
            entries.append(
                TreeEntry(
                    path=f"project/{name}", kind="symlink", mode=0o777, link=str(path.readlink())
                )
            )
        elif not stat.S_ISREG(info.st_mode):
            continue
        elif info.st_size > MOST_FILE_BYTES:
            omissions.append(Omission(path=name, reason="larger than 256 MiB", size=info.st_size))
        else:
            data = path.read_bytes()
            sha256 = hashlib.sha256(data).hexdigest()
            sources[sha256] = path
            mode = 0o755 if info.st_mode & 0o100 else 0o644
            entries.append(
                TreeEntry(path=f"project/{name}", mode=mode, size=len(data), sha256=sha256)
            )
    if listed is not None:
        omissions += [
            each
            for each in _ignored(root)
            if not any((root / each.path).is_relative_to(own) for own in ours)
        ]
    if (
        not any(each.path == f"project/{command.entry}" for each in entries)
        and command.kind == "script"
    ):
        raise InputError.of(
            code="not_found",
            field="SCRIPT",
            value=command.entry,
            message=f"{command.entry} does not travel: git ignores it, or it is too large",
            hint=f"git -C {root} check-ignore -v {command.entry}",
        )
    return ProjectFiles(
        root=root,
        tree=Tree(entries=sorted(entries)),
        command=command,
        omissions=omissions,
        sources=sources,
    )


def _own_folders() -> Sequence[Path]:
    """What this package keeps on this machine, where `$AIRFLOW_HOME` lies in the project: it never travels."""
    home = airflow_home().resolve()
    store = "airflow_training.db"
    return [
        cloud_folder().resolve(),
        load_settings().local_dir.resolve(),
        *(home / f"{store}{each}" for each in ("", "-wal", "-shm", "-journal", ".upgrade-lock")),
    ]


def _tracked(root: Path) -> Sequence[Path] | None:
    """What git tracks or does not ignore; None where there is no git."""
    found = _git(root, "ls-files", "-co", "--exclude-standard", "-z")
    return None if found is None else [root / each for each in sorted({*found})]


def _ignored(root: Path) -> Sequence[Omission]:
    found = _git(root, "ls-files", "-oi", "--directory", "--exclude-standard", "-z") or ()
    return [
        Omission(path=each.rstrip("/"), reason="ignored by git")
        for each in found
        if not _NEVER & {*each.rstrip("/").split("/")}
    ]


def _git(root: Path, *words: str) -> Sequence[str] | None:
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return [os.fsdecode(each) for each in done.stdout.split(b"\0") if each]


def _walk(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        names[:] = sorted(each for each in names if each not in _NEVER)
        yield from (Path(folder) / each for each in sorted(files))
