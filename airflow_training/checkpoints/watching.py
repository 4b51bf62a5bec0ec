"""Commits what a script writes into a folder by itself, and puts the newest checkpoint back there.

`python -m airflow_training.checkpoints.watching FOLDER DESCRIPTOR [--again]`: the agent starts it beside a script that knows
nothing of checkpoints. It restores, says so in one line of JSON on the descriptor, and then commits whatever is complete
until SIGUSR1, or SIGUSR2, after which it looks a last time. `--again`: the script runs already, nothing is restored.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_training.agent.proc import descendants
from airflow_training.agent.progress import report_checkpoint
from airflow_training.agent.progress_tail import NewestProgress
from airflow_training.checkpoints import reading
from airflow_training.checkpoints.errors import CheckpointError, StoreRefused
from airflow_training.checkpoints.group import Group
from airflow_training.checkpoints.records import Manifest
from airflow_training.checkpoints.reporting import report_rejected

__all__ = ["WatchedFolder", "has_complete_save", "main", "restore_folder", "snapshot"]

LOOK_SECONDS = 2.0
COMMIT_SECONDS = 60.0
_NUMBER = re.compile(r"\d+")

Files = Mapping[str, tuple[int, int]]
"""Path below the folder -> (bytes, time of the last change in nanoseconds)."""


def snapshot(folder: Path) -> Files:
    """Return the files below a folder as they are now; links and empty folders are left out."""
    found: dict[str, tuple[int, int]] = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink():
                about = path.stat()
                found[path.relative_to(folder).as_posix()] = about.st_size, about.st_mtime_ns
    return found


def is_being_written(folder: Path, processes: Iterable[int]) -> bool:
    """Return whether one of the processes has a file below the folder open for writing."""
    inside = f"{folder.resolve()}/"
    for pid in processes:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
            if any(_writes(pid, each, inside) for each in descriptors):
                return True
    return False


def _writes(pid: int, descriptor: os.DirEntry[str], inside: str) -> bool:
    try:
        if not os.readlink(descriptor.path).startswith(inside):  # noqa: PTH115 - there are thousands
            return False
        about = Path(f"/proc/{pid}/fdinfo/{descriptor.name}").read_text()
    except OSError:  # it was closed meanwhile
        return False
    flags = int(about.split("flags:")[1].split()[0], 8)
    return bool(flags & (os.O_WRONLY | os.O_RDWR))


def has_complete_save(before: Files, now: Files, committed: Files, *, busy: bool) -> bool:
    """Return whether there is something new that is whole: nothing changed since the look before."""
    return bool(now) and not busy and now == before and now != committed


def step_of(names: Iterable[str], *, reported: int | None, last: int) -> int:
    """Return the step that new files are of: as the script reported, else the largest number in their paths.

    Always later than `last`, that of the checkpoint before.
    """
    numbers = [int(each) for name in names for each in _NUMBER.findall(name) if len(each) < 16]
    wanted = reported if reported is not None else max(numbers, default=0)
    return max(wanted, last + 1)


def restore_folder(folder: Path, root: str, manifest: Manifest) -> None:
    """Make the folder what the checkpoint holds: what was written after it may be half of something."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.restoring")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for name, piece in reading.stream(root, manifest, rank=0):
        if not name:
            continue
        path = partial / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(piece)
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for path in partial.iterdir():
        path.replace(folder / path.name)
    partial.rmdir()


class WatchedFolder:
    """One folder and the group that its content is committed to."""

    def __init__(self, folder: Path, instructions: Mapping[str, Any]) -> None:
        """`instructions`: what `TRAINING_CHECKPOINT` says."""
        self._folder = folder
        self._instructions = instructions
        self._group: Group | None = None
        self._before: Files = {}
        self._committed: Files = {}
        self._last_step = -1

    def begin(self, *, commits: bool, restores: bool) -> int | None:
        """Put the newest whole checkpoint back; return its step, None where there is none.

        `commits`: this process is the one that commits from now on. `restores`: False beside a
        script that runs already.
        """
        instructions = self._instructions
        resume = instructions["resume"]
        root, manifest = instructions["root"], None
        if commits:
            self._group = Group.open(
                root,
                incarnation=instructions["incarnation"],
                order=instructions["order"],
                keep=instructions["keep"],
                keep_every=instructions["keep_every"],
                resume=resume["kind"] != "none",
                not_after=resume["not_after"],
                environment=instructions["environment"],
            )
            manifest = self._group.base
        elif resume["kind"] != "none":
            manifest, rejected = reading.newest_and_rejected(root, not_after=resume["not_after"])
            report_rejected(rejected)  # a group tells it by itself
        self._last_step = -1 if manifest is None else manifest.step
        if not restores:
            return None
        if manifest is None and instructions["initial"] is not None:
            root, first = instructions["initial"]["uri"], instructions["initial"]
            manifest = reading.find(root, step=first["step"], digest=first["digest"])
        if manifest is None:
            return None
        restore_folder(self._folder, root, manifest)
        self._before = self._committed = snapshot(self._folder)
        return manifest.step

    def poll(self, *, reported: int | None, processes: Iterable[int], last: bool = False) -> bool:
        """Commit what is complete; return whether something was. `last`: no other look will follow."""
        before, self._before = self._before, snapshot(self._folder)
        now = self._before
        busy = is_being_written(self._folder, processes)
        if self._group is None or not has_complete_save(
            now if last else before, now, self._committed, busy=busy
        ):
            return False
        changed = [name for name in now if now[name] != self._committed.get(name)]
        step = step_of(changed, reported=reported, last=self._last_step)
        return self._commit(self._group, step, now)

    def _commit(self, group: Group, step: int, files: Files) -> bool:
        started = time.monotonic()
        self._last_step = step
        blobs = {name: _mapped(self._folder / name) for name in files}
        group.write(step, blobs, document={"files": sorted(files)})
        if snapshot(self._folder) != files:
            group.fail(step, "the script wrote while it was read")
            return False
        manifest = group.commit(step, deadline=COMMIT_SECONDS)
        if manifest is None:
            return False
        self._committed = files
        report_checkpoint(
            reading.reference(self._instructions["root"], manifest),
            took=time.monotonic() - started,
            bytes=manifest.size,
            number=manifest.number,
        )
        return True


def _mapped(path: Path) -> memoryview:
    """Return a file's content without reading it into memory.

    A script that makes the file shorter meanwhile ends this process (SIGBUS): the agent starts it again.
    """
    # what was a file a moment ago may be a link by now
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def main(arguments: list[str]) -> int:
    """Restore, say so, commit until told to end; returns the exit code."""
    folder, answer = Path(arguments[0]), int(arguments[1])
    ending: list[int] = []
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, _frame: ending.append(number))
    signal.signal(
        signal.SIGTERM, signal.SIG_IGN
    )  # the script saves first: then comes the other one
    instructions = json.loads(os.environ["TRAINING_CHECKPOINT"])
    # one instance writes for all where they train one model; the others only find it
    commits = instructions["group"] == "instance" or os.environ.get("TRAINING_RANK", "0") == "0"
    watched = WatchedFolder(folder, instructions)
    with os.fdopen(answer, "w") as pipe:
        try:
            step = watched.begin(commits=commits, restores="--again" not in arguments)
        except (CheckpointError, OSError, ImportError) as error:
            hopeless = isinstance(error, (StoreRefused, ImportError))
            pipe.write(json.dumps({"error": str(error), "hopeless": hopeless}))
            return 1
        pipe.write(json.dumps({"restored": step}))
    if commits:
        _follow(watched, ending)
    return 0


def _follow(watched: WatchedFolder, ending: Sequence[int]) -> None:
    progress = NewestProgress(Path(os.environ.get("TRAINING_PROGRESS_FILE", os.devnull)))
    complained = ""
    while True:
        if signal.SIGUSR1 in ending:
            return
        last = signal.SIGUSR2 in ending
        step = progress.poll().get("step")
        try:
            watched.poll(
                reported=step if isinstance(step, int) else None,
                processes=() if last else descendants(os.getppid()),
                last=last,
            )
        except (CheckpointError, OSError) as error:
            if str(error) != complained:
                print(f"airflow-training: not committed: {error}", file=sys.stderr, flush=True)  # noqa: T201 - the log
            complained = str(error)
        if last:
            return
        until = time.monotonic() + LOOK_SECONDS
        while time.monotonic() < until and not ending:
            time.sleep(0.1)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
