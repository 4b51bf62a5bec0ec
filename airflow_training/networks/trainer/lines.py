"""The lines of a text file that begin in a stretch of bytes, with whole lists of equal query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from airflow_training.networks.trainer.mistakes import TrainerError

__all__ = ["TextLine", "header_of", "lines_in", "refuse_binary", "row_at"]

_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line of a file that holds something."""

    start: int
    """Byte it begins at."""
    text: str


_BINARY = (
    (b"\x1f\x8b", "is compressed (gzip)", "unpack it"),
    (b"PK\x03\x04", "is a zip or a workbook", "unpack it, or save it as text"),
    (b"PAR1", "is Parquet", "format: parquet"),
    (b"\xff\xfe", "is UTF-16", "save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16", "save it as UTF-8"),
)


def refuse_binary(file: BinaryIO, name: str) -> None:
    """Raise TrainerError where a file is known to be no text of one byte a letter."""
    file.seek(0)
    head = file.read(4)
    for mark, message, fix in _BINARY:
        if head.startswith(mark):
            raise TrainerError(name, message, fix)


def header_of(file: BinaryIO) -> tuple[str, int]:
    """Return the first line of a file, and the byte after it."""
    file.seek(0)
    first = file.readline()
    return _text(first.removeprefix(b"\xef\xbb\xbf")), len(first)


def lines_in(
    file: BinaryIO,
    start: int,
    stop: int,
    *,
    head: int = 0,
    query: Callable[[str], str] | None = None,
) -> list[TextLine]:
    """Return the lines that begin in bytes `start` to `stop`.

    With `query`, a list of lines with equal query belongs to the stretch in which its first line begins, so
    that lists stay whole wherever the file is cut.

    Args:
        file: open for reading bytes.
        start: first byte.
        stop: byte after the last one.
        head: bytes at the beginning that are no lines of data.
        query: says which list a line belongs to.
    """
    begin = max(start, head)
    if begin > head:
        file.seek(begin - 1)
        begin += len(file.readline()) - 1  # the line that began before ends here
    file.seek(begin)
    lines: list[TextLine] = []
    earlier = query and _query_before(file, begin, head, query)
    file.seek(begin)
    while raw := file.readline():
        place, begin = begin, begin + len(raw)
        text = _text(raw)
        if not text.strip():
            continue
        if query is None:
            if place >= stop:
                break
        else:
            own = query(text)
            if not lines and own == earlier:
                continue
            if place >= stop and (not lines or own != query(lines[-1].text)):
                break
        lines.append(TextLine(place, text))
    return lines


def row_at(file: BinaryIO, start: int) -> int:
    """Return the number of the line that begins at a byte, from 1: what an editor shows."""
    file.seek(0)
    left, row = start, 1
    while left > 0 and (block := file.read(min(left, _BLOCK))):
        row += block.count(b"\n")
        left -= len(block)
    return row


def _query_before(file: BinaryIO, begin: int, head: int, query: Callable[[str], str]) -> str | None:
    """Return the query of the last line before a byte; None where there is none."""
    tail = b""
    place = begin
    while place > head:
        step = min(_BLOCK, place - head)
        place -= step
        file.seek(place)
        tail = file.read(step) + tail
        whole = tail.rstrip(b"\r\n \t")
        cut = whole.rfind(b"\n")
        if whole and (cut >= 0 or place == head):
            return query(_text(whole[cut + 1 :]))
    return None


def _text(raw: bytes) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")  # of older programs; no two texts become the same
    return text.rstrip("\r\n")
