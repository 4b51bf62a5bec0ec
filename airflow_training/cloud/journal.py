"""What the client remembers: submissions that may have been interrupted, and where its runs came from."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from airflow_training.cloud.targets import cloud_folder

__all__ = [
    "SubmissionAttempt",
    "SubmittedRun",
    "begin_submission",
    "end_submission",
    "keep_run",
    "known_run",
    "returning_lock",
]

_RETRY_SECONDS = 3600.0
"""How long after its beginning the same command is taken for another try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionAttempt:
    """A submission whose end this client has not seen."""

    nonce: str
    at: float
    pid: int
    again: bool = False
    """It was begun by an earlier process, which is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedRun:
    """A run that was submitted from here, and what its files have to be compared with."""

    run_id: str
    target: str
    root: str
    returns: str
    at_ns: int
    """When its files were read, of the file system's clock."""
    digests: Mapping[str, str]
    """SHA-256 of what travelled, by path below the root."""
    returned: bool = False
    placed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """SHA-256 of what this run has brought to a path before: that may be replaced by what is newer."""


def begin_submission(content: str, *, target: str) -> SubmissionAttempt:
    """The number of this submission: that of an interrupted one of the same content, else a new one."""
    path = _attempt_path(content, target)
    again = False
    found: SubmissionAttempt | None = None
    try:
        found = SubmissionAttempt(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        found = None
    now = time.time()
    if found is not None and now - found.at < _RETRY_SECONDS and not _is_alive(found.pid):
        nonce, at, again = found.nonce, found.at, True
    else:
        nonce, at = secrets.token_hex(16), now
    attempted = SubmissionAttempt(nonce=nonce, at=at, pid=os.getpid(), again=again)
    _write(path, {"nonce": nonce, "at": at, "pid": os.getpid()})
    return attempted


def end_submission(content: str, *, target: str) -> None:
    """Its run is known: the same command again is another run."""
    _attempt_path(content, target).unlink(missing_ok=True)


def keep_run(run: SubmittedRun) -> None:
    """Remember where a run came from."""
    _write(_run_path(run.run_id), asdict(run))


def known_run(run_id: str) -> SubmittedRun | None:
    """Where a run came from; None where it was not from here."""
    if "/" in run_id:
        return None
    try:
        return SubmittedRun(**json.loads(_run_path(run_id).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def returning_lock(run_id: str) -> Path:
    """Locked by the process that brings a run's models back while it goes on."""
    return _run_path(run_id).with_suffix(".lock")


def _attempt_path(content: str, target: str) -> Path:
    return cloud_folder() / "client" / "submissions" / f"{target}-{content[:32]}.json"


def _run_path(run_id: str) -> Path:
    return cloud_folder() / "client" / "runs" / f"{run_id}.json"


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(document))
    draft.replace(path)


def _is_alive(pid: int) -> bool:
    return pid != os.getpid() and Path(f"/proc/{pid}").exists()
