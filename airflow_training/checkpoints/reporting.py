"""What a training process tells the controller about itself: lines in `$TRAINING_PROGRESS_FILE`.

    telling = Telling(rank=group.rank, world=group.world, generation=group.generation)
    telling.say("RESTORING", step=500)
    telling.say("RUNNING", verified=500)
    telling.say("SAVING", step=600)
    telling.say("SAVED", step=600, verified=600)

The states and what may follow what is in `docs/recovery.md`. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["ProcessReporter", "newest_environment", "own_group", "report_rejected"]

_VERIFIED_KEPT = 4
_REJECTED_KEPT = 8
_LONGEST_REASON = 300
_ENVIRONMENT_FILE = "environment.jsonl"
"""Written by the agent, beside the progress file."""


class ProcessReporter:
    """The lines of one process in one generation; safe to use from several threads.

    Does nothing where `$TRAINING_PROGRESS_FILE` is not set, and never disturbs the training.
    """

    def __init__(self, *, rank: int, world: int, generation: int, group: str = "") -> None:
        """`group`: of `own_group()`."""
        self._fixed = {"rank": rank, "world": world, "generation": generation, "group": group}
        self._sequence = 0
        self._verified: list[int] = []
        self._rejected: list[dict[str, Any]] = []
        self._newest: dict[str, Any] = {}
        self._lock = threading.Lock()

    def say(
        self,
        state: str,
        *,
        step: int | None = None,
        verified: int | None = None,
        environment: str = "",
    ) -> None:
        """Tell the state that this process is in now.

        `verified`: a step whose own part it has just read back or restored. `environment`: the
        digest of the record that its save names.
        """
        with self._lock:
            self._sequence += 1
            if verified is not None:
                rest = [each for each in self._verified if each != verified]
                self._verified = sorted([*rest, verified])[-_VERIFIED_KEPT:]
            line: dict[str, Any] = {
                **self._fixed,
                "sequence": self._sequence,
                "state": state,
                "step": step,
                # all of them each time: only the newest line may be seen
                "verified": list(self._verified),
                "environment": environment,
            }
            self._newest = {name: value for name, value in line.items() if value is not None}
            self._tell()

    def reject(self, step: int | None, why: str) -> None:
        """Tell at once of a checkpoint that is not restored; the state stays what it was."""
        with self._lock:
            self._rejected = [*self._rejected, _rejection(step, why)][-_REJECTED_KEPT:]
            self._tell()

    def _tell(self) -> None:
        rejected = {"rejected": self._rejected} if self._rejected else {}
        _append({"subtask": {**self._newest, **rejected}})


def report_rejected(rejected: Sequence[tuple[int | None, str]]) -> None:
    """Tell of (step, why) of checkpoints that were not restored, for a process without a reporter."""
    if rejected:
        newest = rejected[-_REJECTED_KEPT:]
        _append({"rejected": [_rejection(step, why) for step, why in newest]})


def _rejection(step: int | None, why: str) -> dict[str, Any]:
    return {
        "at": time.time(),
        "step": step,
        "why": why[:_LONGEST_REASON],
        "restore": _own_restore(),
    }


def _own_restore() -> str:
    """Return what all processes that restore together share, "" where the controller says nothing."""
    try:
        told = json.loads(os.environ.get("TRAINING_CHECKPOINT") or "{}")
        start = str(told.get("incarnation", ""))
    except (ValueError, AttributeError):
        return ""
    return f"{start} {own_group()}".strip() if start else ""


def own_group(environ: Mapping[str, str] = os.environ) -> str:
    """Return `<role>-<index>` where the controller says that the instance saves alone, else ""."""
    try:
        alone = json.loads(environ.get("TRAINING_CHECKPOINT") or "{}").get("group") == "instance"
    except (ValueError, AttributeError):
        return ""
    if not alone:
        return ""
    role = environ.get("TRAINING_INSTANCE_ROLE") or environ["TRAINING_ROLE"]
    return f"{role}-{environ['TRAINING_INDEX']}"


def newest_environment(environ: Mapping[str, str] = os.environ) -> tuple[str, bytes] | None:
    """Return digest and text of the newest record of this instance's environment; None: none."""
    path = environ.get("TRAINING_PROGRESS_FILE")
    if not path:
        return None
    try:
        records = (Path(path).parent / _ENVIRONMENT_FILE).read_bytes().splitlines()
    except OSError:
        return None
    if not records:
        return None
    return f"sha256:{hashlib.sha256(records[-1]).hexdigest()}", records[-1]


def _append(values: Mapping[str, Any]) -> None:
    path = os.environ.get("TRAINING_PROGRESS_FILE")
    if not path:
        return
    line = json.dumps(values) + "\n"
    try:
        # one write of one line with O_APPEND: several processes may tell in one file
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError:
        return
    try:
        os.write(descriptor, line.encode())
    except OSError:
        return  # a full disk
    finally:
        os.close(descriptor)
