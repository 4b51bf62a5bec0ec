"""Lines that begin with time stamps, as the API server sends logs: each byte is taken once. Pure.

The server counts no bytes and can start a log at a whole second only. So of the newest second it is
known which line came first and how much was taken, and that is left out when the second comes again.
Where it does not come again, the node has begun another file meanwhile: then that is said.

A node that rotated twice while its file was sent sends the newest one twice: it begins with the line that
came after the long pause, and what was taken since then is left out.
"""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterator

__all__ = ["FILE_SECONDS", "GAP", "Piece", "StampedReader", "epoch", "gap_line", "unread_line"]

GAP = "airflow-training: lines may be missing here"
"""How the line begins that stands where some could not be read; the diagnosis looks for it."""
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)")
FILE_SECONDS = 5.0
"""A node writes one file of a log for longer: by default it looks every 10 s whether one is full."""
_SECOND = 19
"""Characters of a time stamp without its fraction."""

Piece = tuple[str, bytes]
"""(Time stamp; empty where the line had begun before), content."""


class StampedReader:
    """Takes what is new out of lines with time stamps, across any number of openings of a log."""

    def __init__(self, token: str = "") -> None:
        """`token`: where another reader was; empty: at the beginning."""
        fields = token.split("|")
        self._first = fields[0]
        """Stamp of the first line of the newest second."""
        self._taken = int(fields[1]) if len(fields) > 1 else 0
        """Bytes of that second."""
        self._newest = fields[2] if len(fields) > 2 else self._first
        """Stamp of the line that was taken last."""
        self._line = int(fields[3]) if len(fields) > 3 else 0
        """Bytes of that line; 0: all of it."""
        self.reopen()

    @property
    def token(self) -> str:
        """Token from which another reader goes on."""
        return f"{self._first}|{self._taken}|{self._newest}|{self._line}" if self._first else ""

    @property
    def newest(self) -> str:
        """Return the stamp of the line that was taken last."""
        return self._newest

    def reopen(self) -> str:
        """Return the time from which the log is to be sent now; empty: from its beginning."""
        self._seeks = bool(self._first)
        """What was taken before has not come again yet."""
        self._left = 0
        """Bytes that come again, as they were taken before."""
        self._rest = b""
        """The beginning of a line whose time stamp is not complete."""
        self._stamp, self._in_line = "", 0
        self._file, self._of_file = "", 0
        """Stamp of the first line since a pause as long as that of a whole file, and bytes since then."""
        self._again = 0
        """Bytes of that file that come again, in the same sending."""
        self._inside = self._is_new = self._drops = self._counts = False
        found = _STAMP.fullmatch(self._first)
        return "" if found is None else found[1] + found[2]

    def give_back(self, size: int) -> None:
        """Count the end of the newest piece as not taken; something of it was."""
        if self._counts:
            self._taken -= size
            self._line = self._in_line - size

    def take(self, block: bytes) -> Iterator[Piece]:
        """Yield what is new in the next bytes of the log."""
        text, at = self._rest + block, 0
        self._rest = b""
        while at < len(text):
            if not self._inside:
                blank = text.find(b" ", at)
                if blank < 0:
                    self._rest = text[at:]
                    return
                before, cut = self._newest, self._line
                stamp = text[at:blank].decode("ascii", errors="replace")
                at = blank + 1
                if self._begin(stamp):
                    if cut:
                        yield "", b"\n"
                    yield before, gap_line(before, stamp)
            end = text.find(b"\n", at) + 1 or len(text)
            content = text[at:end]
            at = end
            self._inside = not content.endswith(b"\n")
            fresh = self._new(content)
            if fresh:
                yield self._stamp if self._is_new else "", fresh
                self._is_new = False

    def _begin(self, stamp: str) -> bool:
        """Begin a line; return whether some before it may be missing."""
        before, self._stamp, self._in_line = self._stamp, stamp, 0
        self._is_new, self._drops = True, False
        second, newest_second = stamp[:_SECOND], self._first[:_SECOND]
        if not self._again and stamp == self._file and _key(stamp) < _key(before):
            self._again = self._of_file
        if self._again:
            self._counts = second == newest_second
            return False
        if not before or _are_far(before, stamp):
            self._file, self._of_file = stamp, 0
        missing = False
        if self._seeks and stamp == self._first:
            self._seeks, self._left = False, self._taken
        elif self._seeks and _key(stamp) <= _key(self._newest):
            # the first line of that second is in another file by now
            self._seeks = stamp != self._newest
            self._left = 0 if self._seeks else self._line
            self._drops = not self._left
        elif self._seeks or (self._left and second > newest_second):
            self._seeks, self._left, self._first, missing = False, 0, "", True
        elif self._left and second < newest_second:
            self._drops = True
        if not self._drops and (not self._first or second > newest_second):
            self._first, self._taken = stamp, 0
        # two streams of one container may come a little out of order
        self._counts = second == self._first[:_SECOND]
        return missing

    def _new(self, content: bytes) -> bytes:
        """Return what is new of a line, or of a part of it."""
        if self._drops:
            return b""
        known = min(self._again, len(content)) or min(self._left, len(content))
        if self._again:
            self._again -= known
        else:
            self._left -= known
            self._of_file += len(content)
        self._in_line += len(content)
        self._is_new = self._is_new and not known
        if known == len(content):
            return b""
        if self._counts:
            self._taken += len(content) - known
            self._newest, self._line = self._stamp, self._in_line if self._inside else 0
        return content[known:]


def gap_line(before: str, after: str) -> bytes:
    """Return the line that says what may be missing between two others."""
    text = f"{GAP}: the node began a new log file after {before}, and the next line is of {after}"
    return text.encode() + b"\n"


def unread_line(started: str, first: str) -> bytes:
    """Return the line that says why some may be missing before the first that was read."""
    text = f"{GAP}: the container started at {started}, its log was not read then, and the first line there is of {first}"
    return text.encode() + b"\n"


def epoch(stamp: str) -> float:
    """Return the whole second of a time stamp since 1970."""
    return calendar.timegm(time.strptime(stamp[:_SECOND], "%Y-%m-%dT%H:%M:%S"))


def _are_far(before: str, after: str) -> bool:
    return before[:_SECOND] < after[:_SECOND] and epoch(after) - epoch(before) >= FILE_SECONDS


def _key(moment: str) -> tuple[str, str]:
    """Return what orders RFC 3339 time stamps of one zone: their fractions have up to nine digits."""
    whole, _, fraction = moment.rstrip("Z").partition(".")
    return whole, fraction.ljust(9, "0")
