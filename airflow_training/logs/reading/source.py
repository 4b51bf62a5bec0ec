"""`Source`: what every log can do, wherever it lies. The rest of this folder is written against it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from airflow_training.errors import TrainingError

__all__ = [
    "BLOCK_BYTES",
    "LONGEST_LINE",
    "Line",
    "LogSlice",
    "LogUnreadable",
    "Source",
    "UnrotatedLog",
    "lines",
]

BLOCK_BYTES = 1 << 20
"""What is read at once by everything that goes through a log."""
LONGEST_LINE = 8 << 20
"""A line without end is cut into lines of so many bytes, so that memory stays bounded."""


class LogUnreadable(TrainingError):
    """The log is there and cannot be read: damaged, refused, or gone meanwhile."""


class LogSlice(NamedTuple):
    """Bytes of a log. They begin at `next_offset - len(data)`."""

    data: bytes
    next_offset: int
    """Where to read on. Greater than asked for where the beginning of the log was not kept."""
    end: bool
    """Nothing follows as of now; more may be written later."""


class Source(Protocol):
    """One log. Offsets count the bytes of its text, uncompressed. Not safe for threads."""

    name: str
    """Path, URL or `role-index`, for people."""

    def read(self, offset: int, limit: int) -> LogSlice:
        """Return up to `limit` bytes from `offset`; no bytes only at the end.

        Raises LogUnreadable.
        """

    def size(self) -> int | None:
        """Return how many bytes there are now; None where only reading all of it would tell."""

    def changed(self) -> bool:
        """Return whether the log was rotated or truncated since it was opened: offsets are void.

        What was read into the old one may still be read on until `reopen`.
        """

    def reopen(self) -> None:
        """Go over to what lies there now, from offset 0."""

    def close(self) -> None:
        """Give back what the source holds; closing twice is fine."""


class UnrotatedLog:
    """The part of a source that is nothing to do where what was read never changes and nothing is held."""

    def changed(self) -> bool:
        """Return False."""
        return False

    def reopen(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Line(NamedTuple):
    """One line, with its end where it has one."""

    offset: int
    data: bytes


def lines(source: Source, *, start: int = 0) -> Iterator[Line]:
    """Yield the lines from `start`, which must be the beginning of one, to the end as of now.

    Only a newline ends a line: progress bars rewrite theirs with carriage returns.
    """
    rest = b""
    offset = start
    while True:
        part = source.read(offset + len(rest), BLOCK_BYTES)
        if rest and part.data and part.next_offset - len(part.data) != offset + len(rest):
            yield Line(offset, rest)  # what follows was not kept
            rest = b""
        if not rest:
            offset = part.next_offset - len(part.data)
        text = rest + part.data
        whole = text.rfind(b"\n") + 1
        last = part.end or not part.data
        if last or (not whole and len(text) >= LONGEST_LINE):
            whole = len(text)
        at = 0
        while at < whole:
            stop = text.find(b"\n", at, whole) + 1 or whole
            yield Line(offset + at, text[at:stop])
            at = stop
        rest = text[whole:]
        offset += whole
        if last:
            return
