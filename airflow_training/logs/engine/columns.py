"""Lines of one layout as columns, with numpy: what `compiled.py` does where numba is not installed.

A cursor goes through all lines of a layout at once, piece by piece. It is stricter than `Layout.read`: what it is not
sure of (a number of another form, a date that does not exist) is left to that, line by line, so that the values agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from airflow_training.logs.engine.layouts import Layout, Piece, value
from airflow_training.logs.engine.numbers import RANK_DIGITS
from airflow_training.logs.engine.rows import WORTH_COLUMNS, Rows

if TYPE_CHECKING:
    from airflow_training.logs.model import Floats, Integers

    Bytes = np.ndarray[Any, np.dtype[np.uint8]]
    Flags = np.ndarray[Any, np.dtype[np.bool_]]

__all__ = ["Lines", "floats", "lines_of", "rows_of"]

_BEGIN = 64
"""Bytes by which lines are told apart before their layout is known."""
_MOST_TRIES = 8
"""Layouts, for lines that begin with the same letters."""
_WIDTH = 24
"""Of a window on a number; a longer one is left to Python."""
_PAD = 512
"""Bytes behind the block: texts and windows may reach over its end."""
_LINE_END, _SPACE, _COMMA = b"\n ,"
_NUMBER, _CLOCK, _DIGIT = range(3)


def _classes() -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return [class, byte]: what may stand in a piece."""
    found = np.zeros((3, 256), dtype=np.bool_)
    for number, members in enumerate((b"0123456789.,eE+-", b"0123456789:?", b"0123456789")):
        found[number, list(members)] = True
    return found


def _letters() -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return a number for each byte: large for letters but `e`, which are the same in lines of a layout."""
    found = np.zeros(256, dtype=np.uint32)
    for byte in range(65, 91):
        if byte != ord("E"):
            found[byte] = (byte * 2_654_435_761 + 12_345) & 0xFFFFFFFF
            found[byte | 32] = ((byte | 32) * 2_246_822_519 + 54_321) & 0xFFFFFFFF
    return found


_CLASS = _classes()
_LETTER = _letters()


class Lines:
    """Some lines of a block."""

    def __init__(
        self, block: bytearray, starts: Integers, ends: Integers, numbers: Integers
    ) -> None:
        """`starts` and `ends` are places in the block, `numbers` the line ends before each."""
        self.bytes = np.frombuffer(bytes(block) + bytes(_PAD), dtype=np.uint8)
        self.block = block
        self.starts = starts
        self.ends = ends
        self.numbers = numbers

    def text(self, number: int) -> bytes:
        """Return one of the lines."""
        return bytes(self.block[self.starts[number] : self.ends[number]])

    def groups(self) -> Iterator[Integers]:
        """Yield the numbers of lines that begin with the same letters, where there are enough of them."""
        begins = np.where(
            np.arange(_BEGIN) < (self.ends - self.starts)[:, None],
            _LETTER[self.windows(self.starts, _BEGIN)],
            0,
        )
        _, group, counts = np.unique(
            begins.sum(axis=1, dtype=np.uint32), return_inverse=True, return_counts=True
        )
        order = np.argsort(group, kind="stable")
        for own in np.split(order, np.cumsum(counts)[:-1]):
            if len(own) >= WORTH_COLUMNS:
                yield own

    def windows(self, places: Integers, width: int) -> Bytes:
        """Return [places, width]: the bytes from each place on."""
        return np.lib.stride_tricks.sliding_window_view(self.bytes, width)[places]


def lines_of(
    block: bytearray, rest: bytes, runs: Sequence[Sequence[int]], anchors: Sequence[int]
) -> tuple[Lines, Integers]:
    """Return the lines that hold an anchor, and for each the place of the rest at which it begins.

    `rest` and `runs` are those of a `Rest` of the block.
    """
    breaks = np.flatnonzero(np.frombuffer(rest, dtype=np.uint8) == _LINE_END)
    which = np.unique(np.searchsorted(breaks, np.asarray(anchors)))
    begins = np.where(which > 0, breaks[which - 1] + 1, 0)
    table = np.array(runs, dtype=np.int64)
    run = table[np.searchsorted(table[:, 0], begins, side="right") - 1]
    starts = run[:, 1] + begins - run[:, 0]
    same = starts + breaks[which] - begins
    ends = np.where(run[:, 3] < 0, same, run[:, 3])
    numbers = run[:, 2] + which - np.searchsorted(breaks, run[:, 0])
    return Lines(block, starts, ends, numbers), begins


def rows_of(
    lines: Lines, layouts: Callable[[bytes], Sequence[Layout]], *, longest: int
) -> tuple[list[Rows], Flags]:
    """Return what lines say of which there are many of one layout, and which lines those are.

    `layouts` gives the layouts that a line may have, the first one first. Lines of more than `longest` bytes are left out.
    """
    found: list[Rows] = []
    read = np.zeros(len(lines.starts), dtype=np.bool_)
    for group in lines.groups():
        left = group[lines.ends[group] - lines.starts[group] <= longest]
        tried: set[int] = set()
        for _ in range(_MOST_TRIES):
            if len(left) < WORTH_COLUMNS:
                break
            known = layouts(lines.text(int(left[0])))
            layout = next((each for each in known if each.parsed and id(each) not in tried), None)
            if layout is None:
                left = left[1:]
                continue
            tried.add(id(layout))
            reading = _Reading(lines, left)
            reading.read(layout)
            if len(reading.own):
                read[reading.own] = True
                left = left[~read[left]]
                found.append(reading.rows(layout))
    return found, read


class _Reading:
    """A cursor in each of some lines; a line that does not fit falls out."""

    def __init__(self, lines: Lines, own: Integers) -> None:
        self.lines = lines
        self.own = own
        self.at = lines.starts[own].copy()
        self.columns: dict[int, Floats] = {}
        self.times: Floats | None = None
        self.ranks: Integers | None = None

    def rows(self, layout: Layout) -> Rows:
        """Return what was read."""
        own, count = self.own, len(self.own)
        values = np.empty((count, layout.columns))
        for column, found in self.columns.items():
            values[:, column] = found
        return Rows(
            layout,
            values,
            self.lines.starts[own],
            self.lines.numbers[own] + 1,
            np.full(count, np.nan) if self.times is None else self.times,
            np.full(count, -1, dtype=np.int64) if self.ranks is None else self.ranks,
        )

    def read(self, layout: Layout) -> None:
        """Go through the lines; what is left are those of the layout."""
        if any(len(text) > _PAD for text in (*layout.texts, *(one.shape for one in layout.pieces))):
            self._keep(np.zeros(len(self.own), dtype=np.bool_))
            return
        self._text(layout.texts[0])
        followers = (*layout.pieces, None)[1:]
        for piece, after, follower in zip(layout.pieces, layout.texts[1:], followers, strict=True):
            if not len(self.own):
                return
            if piece.kind == "bar":
                self._bar(after, last=follower is None)
            elif piece.kind == "time":
                self._time()
            elif piece.kind == "shape":
                self._shape(piece.shape)
            else:
                if piece.padded:
                    self._spaces()
                self._piece(piece)
            if piece.kind != "bar":
                self._text(after)
        self._keep(self.at == self.lines.ends[self.own])

    def _keep(self, fits: Flags) -> None:
        """Let go the lines that do not fit."""
        if fits.all():
            return
        self.own, self.at = self.own[fits], self.at[fits]
        self.columns = {column: found[fits] for column, found in self.columns.items()}
        self.times = None if self.times is None else self.times[fits]
        self.ranks = None if self.ranks is None else self.ranks[fits]

    def _text(self, text: bytes) -> None:
        if text:
            there = self.lines.windows(self.at, len(text))
            self._keep((there == np.frombuffer(text, dtype=np.uint8)).all(axis=1))
            self.at = self.at + len(text)

    def _shape(self, shape: bytes) -> None:
        there = self.lines.windows(self.at, len(shape))
        wanted = np.frombuffer(shape, dtype=np.uint8)
        fits = np.where(wanted == ord("0"), _CLASS[_DIGIT][there], there == wanted)
        self.at = self.at + len(shape)
        self._keep(fits.all(axis=1))

    def _spaces(self) -> None:
        at = self.at
        while (more := self.lines.bytes[at] == _SPACE).any():
            at = at + more
        self.at = at

    def _token(self, kind: int) -> tuple[Bytes, Integers]:
        """Take the longest run of bytes of a class; return what begins there, [lines, width], and the sizes."""
        window = self.lines.windows(self.at, _WIDTH)
        other = ~_CLASS[kind][window]
        sizes = other.argmax(axis=1)
        fits = (sizes > 0) & other.any(axis=1)
        if not fits.all():
            window, sizes = window[fits], sizes[fits]
            self._keep(fits)
        self.at = self.at + sizes
        return window, sizes

    def _without_comma(self, window: Bytes, sizes: Integers) -> tuple[Bytes, Integers]:
        """Give back a comma at the end of a token: it is the text behind it."""
        behind = window[np.arange(len(sizes)), sizes - 1] == _COMMA
        self.at = self.at - behind
        return window, sizes - behind

    def _piece(self, piece: Piece) -> None:
        if piece.kind == "clock":
            window, sizes = self._token(_CLOCK)
            if piece.column >= 0:
                self._clocks(piece, _texts(window, sizes))
        elif piece.kind == "rank":
            window, sizes = self._token(_DIGIT)
            numbers = floats(window, sizes)
            self.ranks = numbers.astype(np.int64)
            self._keep(sizes <= RANK_DIGITS)
        else:
            self._number(piece)

    def _number(self, piece: Piece) -> None:
        window, sizes = self._without_comma(*self._token(_NUMBER))
        numbers = floats(window, sizes)
        fits = ~np.isnan(numbers)
        if piece.plain:
            fits &= _is_plain(window, sizes)
        if piece.column >= 0:
            with np.errstate(all="ignore"):  # as Python: what is too large is infinite
                if piece.kind == "divided":
                    numbers = numbers / piece.scale
                elif piece.kind == "inverse":
                    numbers = np.where(numbers == 0, np.inf, piece.scale / numbers)
                else:
                    numbers = numbers * piece.scale
            self.columns[piece.column] = numbers
        self._keep(fits)

    def _clocks(self, piece: Piece, texts: Sequence[bytes]) -> None:
        found = np.array([_clock(piece, text) for text in texts])
        self.columns[piece.column] = found
        self._keep(~np.isnan(found))

    def _bar(self, after: bytes, *, last: bool) -> None:
        """Go behind the next occurrence of the text after a bar, or to the end of the line."""
        if not after:
            self.at = self.lines.ends[self.own]
            if not last:
                self._keep(np.zeros(len(self.own), dtype=np.bool_))
            return
        places = np.array([*_occurrences(self.lines.bytes, after), len(self.lines.bytes)])
        found = places[np.searchsorted(places, self.at)]
        fits = found + len(after) <= self.lines.ends[self.own]
        self.at = np.where(fits, found + len(after), self.at)
        self._keep(fits)

    def _time(self) -> None:
        """Read `2026-01-31 10:30:00`, with a fraction and `Z`; other zones are left to Python."""
        window = self.lines.windows(self.at, 22).astype(np.int64)
        comma = window[:, 10] == _COMMA
        gap = (window[:, 10] == _SPACE) | (window[:, 10] == ord("T"))
        gap |= comma & (window[:, 11] == _SPACE)
        rest = np.where(comma[:, None], window[:, 12:20], window[:, 11:19])
        signs = ((window[:, (4, 7)] == ord("-")) | (window[:, (4, 7)] == ord("/"))).all(axis=1)
        signs &= (rest[:, (2, 5)] == ord(":")).all(axis=1)
        digits = (
            np.concatenate(
                [window[:, (0, 1, 2, 3, 5, 6, 8, 9)], rest[:, (0, 1, 3, 4, 6, 7)]], axis=1
            )
            - 48
        )
        fits = gap & signs & ((digits >= 0) & (digits <= 9)).all(axis=1)
        digits[~fits] = 0
        pairs = digits[:, ::2] * 10 + digits[:, 1::2]
        year, month, day = pairs[:, 0] * 100 + pairs[:, 1], pairs[:, 2], pairs[:, 3]
        fits &= (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1)
        fits &= (pairs[:, 4] <= 23) & (pairs[:, 5] <= 59)
        months = np.where(fits, (year - 1970) * 12 + month - 1, 0)
        days = _days_before(months) + day - 1
        fits &= days < _days_before(months + 1)
        of_day = (pairs[:, 4] * 60 + pairs[:, 5]) * 60 + np.minimum(pairs[:, 6], 59)
        self.times = np.where(fits, days * 86_400 + of_day, 0).astype(np.float64)
        self.at = self.at + np.where(comma, 20, 19)
        self._keep(fits)
        self._fraction()
        self.at = self.at + (self.lines.bytes[self.at] == ord("Z"))
        after = self.lines.bytes[self.at]
        self._keep(~_CLASS[_DIGIT][after] & (after != ord(":")))

    def _fraction(self) -> None:
        """Add what stands behind the seconds."""
        window = self.lines.windows(self.at, 12)
        point = (window[:, 0] == ord(".")) | (window[:, 0] == _COMMA)
        digits = _CLASS[_DIGIT][window[:, 1:]]
        sizes = np.where(point, (~digits).argmax(axis=1), 0)
        fits = (sizes <= 9) & ~(point & digits.all(axis=1))
        numbers = np.zeros(len(sizes), dtype=np.int64)
        for place in range(9):
            more = place < sizes
            numbers = np.where(more, numbers * 10 + window[:, place + 1] - 48, numbers)
        if self.times is not None:
            self.times = self.times + numbers / _EXACT[sizes]
        self.at = self.at + np.where(sizes > 0, sizes + 1, 0)
        self._keep(fits)


_EXACT = np.array([10.0**power for power in range(23)])


def _days_before(months: Integers) -> Integers:
    """Return how many days lie between 1970 and the beginning of a month, counted from 1970."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def floats(window: Bytes, sizes: Integers) -> Floats:
    """Return the numbers that `window` [numbers, width] begins with, each of so many bytes; NaN for what is none.

    Up to 2**53 and 10**22 they are exact integers, whose quotient is rounded once, as `float` does it.
    """
    bytes_ = np.ascontiguousarray(window.T[: int(sizes.max(initial=1))])
    inside = np.arange(len(bytes_))[:, None] < sizes
    digit = _CLASS[_DIGIT][bytes_] & inside
    point = (bytes_ == ord(".")) & inside
    raised = ((bytes_ | 32) == ord("e")) & inside
    sign = ((bytes_ == ord("-")) | (bytes_ == ord("+"))) & inside
    power = np.logical_or.accumulate(raised)
    fraction = np.logical_or.accumulate(point) & ~power
    mantissa, exponent = digit & ~power, digit & power
    count = mantissa.sum(axis=0)
    at_its_place = sign.copy()
    at_its_place[0] = False
    at_its_place[1:] &= ~raised[:-1]
    sure = (
        (count > 0)
        & (count <= 18)
        & (point.sum(axis=0) <= 1)
        & (raised.sum(axis=0) <= 1)
        & ~(point & power).any(axis=0)
        & ~at_its_place.any(axis=0)
        & (exponent.any(axis=0) | ~power.any(axis=0))
    )
    comma = (bytes_ == _COMMA) & inside
    if comma.any():
        sure &= ~(_misplaced(comma, digit) | (comma & (fraction | power)).any(axis=0))
    digits = _whole(bytes_, mantissa)
    tens = _whole(bytes_, exponent)
    tens = np.where((sign & power & (bytes_ == ord("-"))).any(axis=0), -tens, tens)
    tens -= (fraction & digit).sum(axis=0)
    sure &= (digits <= 1 << 53) & (np.abs(tens) <= 22)
    scale = _EXACT[np.where(sure, np.abs(tens), 0)]
    found: Floats = np.where(tens < 0, digits / scale, digits * scale)
    found = np.where(bytes_[0] == ord("-"), -found, found)
    rest = np.flatnonzero(~sure)
    found[rest] = [_float(text) for text in _texts(window[rest], sizes[rest])]
    return found


def _is_plain(window: Bytes, sizes: Integers) -> Flags:
    """Return which numbers begin and end with a digit and have no exponent."""
    digit = _CLASS[_DIGIT]
    raised = ((window | 32) == ord("e")) & (np.arange(window.shape[1]) < sizes[:, None])
    last = window[np.arange(len(sizes)), sizes - 1]
    plain: Flags = digit[window[:, 0]] & digit[last] & ~raised.any(axis=1)
    return plain


def _misplaced(comma: Flags, digit: Flags) -> Flags:
    """Return whether a comma stands anywhere but between one to three digits and groups of three."""
    after = np.concatenate([digit, np.zeros((4, digit.shape[1]), dtype=np.bool_)])
    count = len(digit)
    three = after[1 : count + 1] & after[2 : count + 2] & after[3 : count + 3] & ~after[4:]
    before = digit.cumsum(axis=0)
    first = comma & (comma.cumsum(axis=0) == 1)
    wrong: Flags = ((comma & ~three) | (first & ((before < 1) | (before > 3)))).any(axis=0)
    return wrong


def _whole(bytes_: Bytes, which: Flags) -> Integers:
    """Return the numbers that some of the bytes [width, numbers] are the digits of; those with too many are wrong."""
    found = np.zeros(bytes_.shape[1], dtype=np.int64)
    for row, own in zip(bytes_, which, strict=True):
        if own.any():
            found = np.where(own, found * 10 + row - 48, found)
    return found


def _texts(window: Bytes, sizes: Integers) -> list[bytes]:
    return [bytes(row[:size]) for row, size in zip(window, sizes, strict=True)]


def _float(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _clock(piece: Piece, text: bytes) -> float:
    try:
        return value(piece, text)
    except ValueError:
        return float("nan")


def _occurrences(data: Bytes, text: bytes) -> Integers:
    """Return where a text begins, also where it overlaps itself."""
    there = data[: len(data) - len(text) + 1] == text[0]
    for place, byte in enumerate(text[1:], 1):
        there &= data[place : len(data) - len(text) + 1 + place] == byte
    return np.flatnonzero(there)
