"""Processes of attempts whose folders are gone: found by the mark that each carries, and ended.

An agent is known by its command line, what it started by its environment. Who deletes the folder of
a living instance ends it; its agent does the same within seconds, if it lives.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from airflow_training.agent import proc
from airflow_training.agent.files import AttemptFolder, read_json
from airflow_training.runtimes.folders.paths import RunFolder

__all__ = ["Stray", "end_strays", "find_strays"]

_END_SECONDS = 5.0
_DIRECTORY = b"TRAINING_INSTANCE_DIR="
_UID = b"TRAINING_INSTANCE_UID="


@dataclass(frozen=True, slots=True)
class Stray:
    pid: int
    start_time: int
    is_agent: bool


def find_strays(run: RunFolder) -> list[Stray]:
    """Living processes of the run in folders that are gone, or that belong to another attempt."""
    found = []
    # an agent stands in the common folder before it goes to its own
    ours = {*map(_identity, _control_folders(run)), _identity(run.path.parent)}
    below = os.fsencode(run.path) + b"/"
    for pid, start in proc.living_processes().items():
        environment = proc.arguments_of(pid, "environ")
        folder = _value(environment, _DIRECTORY)
        if folder.startswith(below):
            uid = _value(environment, _UID).decode(errors="replace")
            is_agent, stray = False, _is_gone(AttemptFolder(Path(os.fsdecode(folder))), uid)
        else:
            is_agent = _is_agent(proc.arguments_of(pid, "cmdline"), below)
            if is_agent and _is_fork(pid, below):
                continue  # what its parent is decides about both
            standing = _identity(Path(f"/proc/{pid}/cwd")) if is_agent else None
            stray = standing is not None and standing not in ours
        if stray and _sees_what_we_see(pid):
            found.append(Stray(pid, start, is_agent))
    return found


def end_strays(run: RunFolder) -> list[int]:
    """Kill what `find_strays` finds, with all below it; return what would not die."""
    until = time.monotonic() + _END_SECONDS
    pause = 0.002
    while strays := find_strays(run):
        for each in strays:
            # an agent goes last: while it lives, whatever loses its parent is still below it
            tree = proc.descendants(each.pid) if each.is_agent else {}
            proc.signal_processes(tree or {each.pid: each.start_time}, signal.SIGKILL)
        if time.monotonic() > until:
            return sorted(each.pid for each in strays)
        time.sleep(pause)
        pause = min(pause * 2, 0.1)
    return []


def _value(environment: list[bytes], name: bytes) -> bytes:
    return next((each[len(name) :] for each in environment if each.startswith(name)), b"")


def _is_gone(folder: AttemptFolder, uid: str) -> bool:
    if folder.deleted:
        return True
    spec = read_json(folder.spec)
    # a title that a process gives itself may be written over a part of its environment, and the mark with it
    return uid != "" and spec is not None and spec["uid"] != uid


def _is_agent(words: list[bytes], below: bytes) -> bool:
    """Return whether a process was started as `<python> ... <archive> start FOLDER...` for this run."""
    if b"start" not in words:
        return False
    place = words.index(b"start")
    return words[place - 1].endswith(b".pyz") and any(
        each.startswith(below) for each in words[place + 1 :]
    )


def _is_fork(pid: int, below: bytes) -> bool:
    """Return whether an agent forked this process, which looks like it until it becomes its command."""
    parent = proc.parent_of(pid)
    return parent is not None and _is_agent(proc.arguments_of(parent, "cmdline"), below)


def _control_folders(run: RunFolder) -> Iterator[Path]:
    """Yield the folders that the agents of attempts which are there stand in."""
    for role, index in run.instances():
        for _, folder in run.attempts(role, index):
            if not folder.deleted:
                yield folder.control


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from any other, whatever it is called; None where there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError, ProcessLookupError):
        return None
    return found.st_dev, found.st_ino


def _sees_what_we_see(pid: int) -> bool:
    """Return whether paths mean the same to a process: in another container they need not."""
    theirs = _identity(Path(f"/proc/{pid}/ns/mnt"))
    return theirs is not None and theirs == _identity(Path("/proc/self/ns/mnt"))
