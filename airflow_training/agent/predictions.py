"""What a script writes into `TRAINING_PREDICTIONS_DIR`: which files are complete, and how they are brought away.

Python 3.8 and newer: it runs inside pods too. Nothing but plain files of the folder itself is ever
read, however the script names or links them.
"""

from __future__ import annotations

import os
import re
import stat

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Stamp = tuple[int, int, int]

__all__ = ["MOST_BYTES", "NAME", "NewPredictions", "publish"]

MOST_BYTES = 64 << 20
"""Of one file."""
MOST_FILES = 2000
"""Of one attempt."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,150}\.(?:parquet|csv|jsonl|png)", re.ASCII)
_PARTIAL = re.compile(r"\..*|.*(?:\.tmp|\.part|~)", re.DOTALL)
"""Names that say themselves that the file is not complete."""


class NewPredictions:
    """Knows which files of one attempt were published. Looks at the folder, and reads no file."""

    def __init__(self, folder: str, *, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._seen: dict[str, Stamp] = {}
        self._published: dict[str, Stamp] = {}
        self._refused: set[str] = set()

    def complete(self, *, at_end: bool) -> dict[str, Stamp]:
        """Files that are complete and not yet published: name -> size and time of change.

        A file is complete once it looks as it did at the look before, or the script has ended.
        """
        found = dict(self._files())
        ready = {
            name: stamp
            for name, stamp in sorted(found.items())
            if self._published.get(name) != stamp and (at_end or self._seen.get(name) == stamp)
        }
        self._seen = found
        return ready

    def published(self, files: Mapping[str, Stamp]) -> None:
        """Take note of what was brought away."""
        self._published.update(files)

    def _files(self) -> Iterator[tuple[str, Stamp]]:
        try:
            entries = list(os.scandir(self._folder))
        except OSError:
            return
        for each in entries:
            name = each.name
            if _PARTIAL.fullmatch(name):
                continue
            try:
                status = each.stat(follow_symlinks=False)
            except OSError:
                continue
            problem = self._problem(name, status)
            if problem:
                self._refuse(name, problem)
            else:
                yield name, (status.st_mtime_ns, status.st_size, status.st_ino)

    def _problem(self, name: str, status: os.stat_result) -> str:
        if not stat.S_ISREG(status.st_mode):
            return "it is no plain file"
        if not NAME.fullmatch(name):
            return "its name has to end with .parquet, .csv, .jsonl or .png, and consist of letters, digits and ._=-"
        if status.st_size > MOST_BYTES:
            return f"it has {status.st_size} bytes; {MOST_BYTES} are the most"
        if name not in self._published and len(self._published) >= MOST_FILES:
            return f"{MOST_FILES} files were published, which are the most"
        return ""

    def _refuse(self, name: str, problem: str) -> None:
        if len(self._refused) < MOST_FILES and name not in self._refused:
            self._refused.add(name)
            self._say(f"predictions: {name[:200]!r} is not published: {problem}")


def publish(folder: str, names: Iterable[str], uri: str) -> Iterator[bool]:
    """Bring files of a folder to an address; yield of each whether it is there. Raises what storage raises."""
    from airflow_training.agent.upload import put

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for name in names:
            content = _content(name, descriptor)
            if content is not None:
                put(content, f"{uri.rstrip('/')}/{name}")
            yield content is not None
    finally:
        os.close(descriptor)


def _content(name: str, folder: int) -> bytes | None:
    """Return a plain file; None for one that is no such file any more, or too large by now."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    return content if len(content) <= MOST_BYTES else None
