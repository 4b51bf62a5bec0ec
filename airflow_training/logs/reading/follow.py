"""A log as it is written, across rotation and truncation. Does not wait by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from airflow_training.logs.reading.source import BLOCK_BYTES, LogSlice, Source

__all__ = ["follow"]


def follow(source: Source, *, offset: int = 0, wait: Callable[[], bool]) -> Iterator[LogSlice]:
    """Yield what the log has from `offset` and what is written later.

    At the end of what there is, `wait` is called; it pauses and returns whether to go on. After a
    rotation or truncation what is left of the old log comes first, then parts that begin at 0.
    """
    while True:
        changed = source.changed()
        part = source.read(offset, BLOCK_BYTES)
        if part.data:
            offset = part.next_offset
            yield part
        elif changed:  # asked before the read: nothing more is written to the old one
            source.reopen()
            offset = 0
        elif not wait():
            return
