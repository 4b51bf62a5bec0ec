"""The walk over a block without numba: nothing is known of layouts, all parts are put aside, cleaned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from airflow_training.logs.engine.layouts import LineLayout
from airflow_training.logs.lines.cleaning import LONGEST_PART, clean, parts

if TYPE_CHECKING:
    from airflow_training.logs.engine.rows import Rows


class UnparsedLines(NamedTuple):
    """Parts of lines that are still to be looked at, cleaned, each with a line end."""

    data: bytearray | memoryview
    runs: Sequence[int]
    """Where stretches of it come from, four numbers each: see `compiled.walk`."""


_NOTHING = UnparsedLines(bytearray(), ())


@dataclass
class WalkResult:
    """What a walk over a part of a block found."""

    consumed: int
    """Where in the block it stopped: at the beginning of a part."""
    line: int
    """Line ends before that."""
    rest: UnparsedLines
    """What is no row."""
    aside: UnparsedLines
    """Rows that signatures may match."""
    rows: Sequence[Rows] = ()
    full: bool = False
    """Whether it stopped because so much was found, and there is more to walk over."""


class Walker(Protocol):
    """Takes a block apart."""

    learns: bool
    """Whether lines are read faster once their layout is known."""

    def register_layout(self, line: bytes, layout: LineLayout) -> None:
        """Read lines of the layout from now on."""

    def forget(self) -> None:
        """Forget all layouts."""

    def walk(
        self, block: bytearray, start: int, end: int, line: int, *, complete: bool
    ) -> WalkResult:
        """Take apart `block[start:end]`; the last part ends there if `complete`, else it may go on."""


class PlainWalker:
    """Needs nothing but Python."""

    learns = False

    def register_layout(self, line: bytes, layout: LineLayout) -> None:
        """Do nothing: rows are read by the layouts themselves."""

    def forget(self) -> None:
        """Do nothing."""

    def walk(
        self, block: bytearray, start: int, end: int, line: int, *, complete: bool
    ) -> WalkResult:
        """Take apart `block[start:end]`."""
        data = block[start:end]
        if not complete:
            last = max(data.rfind(b"\n"), data.rfind(b"\r"), data.rfind(b"\b")) + 1
            if len(data) - last > LONGEST_PART:
                last += (len(data) - last - 1) // LONGEST_PART * LONGEST_PART
            del data[last:]
        consumed = start + len(data)
        ends = data.count(b"\n")
        if b"\r" not in data and b"\b" not in data and b"\x1b" not in data and short(data):
            if data and data[-1] != 10:
                data.append(10)
            return WalkResult(
                consumed, line + ends, UnparsedLines(data, (0, start, line, -1)), _NOTHING
            )
        rest = bytearray()
        runs: list[int] = []
        for first, last, before in parts(bytes(data)):
            runs += (len(rest), start + first, line + before, start + last)
            rest += clean(bytes(data[first:last]))
            rest.append(10)
        return WalkResult(consumed, line + ends, UnparsedLines(rest, runs), _NOTHING)


def short(data: bytearray) -> bool:
    """Return whether no line of `data` is longer than a part may be."""
    position = 0
    while position + LONGEST_PART < len(data):
        position = data.rfind(b"\n", position, position + LONGEST_PART + 1) + 1
        if position == 0:
            return False
    return True
