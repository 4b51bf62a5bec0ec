"""Layouts: what lines of one kind have in common, learned from the first of them.

A layout is the fixed text of a line and how to read what is between: values, and things that only vary. It is made
from what `parse_line` says of one line, and read here by a regular expression; `compiled.py` reads the same faster.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from airflow_training.logs.engine.formats import ParsedLineLike
from airflow_training.logs.engine.numbers import CLOCK, NUMBER, PLAIN, RANK
from airflow_training.logs.lines.cleaning import clean, kept_bytes
from airflow_training.logs.lines.prefixes import DATE, prefix, time_of

_WHOLE_NUMBER = re.compile(NUMBER.encode())
_DIGITS = re.compile(rb"\d+")
_ZEROS = bytes(48 if 48 <= byte <= 57 else byte for byte in range(256))
_FREE = re.compile(rb"(?<!\d)(?<!\d,)\d+(?!\d|,\d)")
"""Digits of which any number may stand in a line without metrics; with a comma between, it tells what is a number."""
_LIKE_DATE = re.compile(rb"\W*[\d.,:?+-]+[-/][\d.,:/?+-]*")
_PADDING = re.compile(rb"(?<= ) +$")
_NOT_LETTERS = bytes(
    byte for byte in range(256) if not (65 <= (byte & 223) <= 90) or (byte & 223) == 69
)


class LayoutPiece(NamedTuple):
    """What stands between two fixed texts."""

    kind: str
    """number, divided, inverse, clock, rank, time, bar; `skip` is a number that is no value, `shape` a run of digits and
    signs with each digit at its place (`10:31:02`), `free` are digits."""
    scale: float = 1.0
    column: int = -1
    """Of the values; -1 for none."""
    plain: bool = False
    """Whether the number has neither sign nor exponent."""
    shape: bytes = b""
    """Of a `shape`: its text, with 0 for each digit."""
    padded: bool = True
    """Whether any number of spaces may stand before it."""

    def written(self, name: str) -> bytes:
        """Return the pattern of its text, as a group: the longest that there is, however the line goes on."""
        if self.kind == "bar":
            return rb"(.*?)"
        if self.kind == "time":
            return rb"(" + DATE + rb")"
        if self.kind == "shape":
            return rb"(" + re.escape(self.shape).replace(b"0", rb"\d") + rb")"
        text = PLAIN if self.plain else _WRITTEN.get(self.kind, NUMBER)
        spaces = " *" if self.padded else ""
        return f"{spaces}(?=(?P<{name}>{text}))(?P={name})".encode()


@dataclass(frozen=True)
class LineLayout:
    """Fixed texts and the pieces between them: `texts[0] pieces[0] texts[1] ... texts[-1]`."""

    texts: tuple[bytes, ...]
    pieces: tuple[LayoutPiece, ...]
    parsed: ParsedLineLike | None
    """None for lines that hold no metric."""
    columns: int
    spans: tuple[tuple[int, int], ...]
    """Of the pieces, in the line that the layout was learned from."""

    @property
    def has_timestamp(self) -> bool:
        """Return whether one of the pieces is the time of the line."""
        return any(piece.kind == "time" for piece in self.pieces)

    @cached_property
    def expression(self) -> re.Pattern[bytes]:
        """Expression for a whole line, with a group for each piece."""
        written = [re.escape(self.texts[0])]
        for number, (piece, text) in enumerate(zip(self.pieces, self.texts[1:], strict=True)):
            written.append(piece.written(f"p{number}") + re.escape(text))
        return re.compile(rb"".join(written), re.DOTALL)

    def read(self, line: bytes) -> LineValues | None:
        """Return the values of a line; None if it is of another layout."""
        found = self.expression.fullmatch(line)
        return None if found is None else self._row(found.groups())

    def read_spans(self, line: bytes) -> LineValues:
        """Return the values of the line that the layout was learned from."""
        return self._row([line[start:end] for start, end in self.spans])

    def _row(self, texts: Sequence[bytes]) -> LineValues:
        values = [0.0] * self.columns
        rank = -1
        time = float("nan")
        for piece, text in zip(self.pieces, texts, strict=True):
            if piece.kind == "time":
                seconds = time_of(clean(text))  # a colour may begin in the middle of it
                time = time if seconds is None else seconds
            elif piece.kind == "rank":
                rank = int(clean(text))
            if piece.column >= 0:
                values[piece.column] = value(piece, text)
        return LineValues(values, rank, time)


_WRITTEN = {"clock": CLOCK, "free": "[0-9]+", "rank": RANK}
"""Others are numbers."""


class LineValues(NamedTuple):
    """What one line says."""

    values: list[float]
    rank: int
    """-1 for none."""
    time: float
    """NaN for none."""


def value(piece: LayoutPiece, text: bytes) -> float:
    """Return the value of a piece, as `logs/metrics/lines.py` says."""
    if piece.kind == "clock":
        if b"?" in text:
            return float("nan")
        days, _, rest = text.rpartition(b"day")
        seconds = 0.0
        for part in rest.lstrip(b"s, ").split(b":"):
            seconds = seconds * 60 + float(part)
        return (seconds + 86400 * float(days or 0)) * piece.scale
    number = float(text.replace(b",", b""))
    if piece.kind == "divided":
        return number / piece.scale
    if piece.kind == "inverse":
        return piece.scale / number if number else float("inf")
    return number * piece.scale


def letters(line: bytes) -> bytes:
    """The letters of a line but `e`: equal for lines of one layout whatever their numbers are."""
    return line.translate(None, _NOT_LETTERS)


def masked(line: bytes) -> bytes:
    """The line without its numbers: equal for lines that hold no metric in the same words."""
    dated = _date_end(line)
    return line[:dated].translate(_ZEROS) + _FREE.sub(b"0", line[dated:]).translate(_ZEROS)


def _date_end(line: bytes) -> int:
    """Return where that ends which is like a date at the beginning of a line."""
    found = _LIKE_DATE.match(line)
    return 0 if found is None else found.end()


def layout_of(line: bytes, parsed: ParsedLineLike | None) -> LineLayout:
    """Return the layout of a line that `parse_line` read, or of one that holds no metric."""
    spans: list[tuple[int, int, LayoutPiece]] = []
    column = 0
    for slot in parsed.slots if parsed is not None else ():
        own = column if slot.metric else -1
        column += bool(slot.metric)
        text = line[slot.start : slot.end]
        piece = LayoutPiece(
            slot.kind, slot.scale, own, plain=slot.form == "plain", padded=slot.padded
        )
        # what is no number has its shape, or a line with a number there, which may be a value, would fit
        if slot.kind == "skip" and (slot.form == "fixed" or not _WHOLE_NUMBER.fullmatch(text)):
            piece = _shape(text)
        spans.append((slot.start, slot.end, piece))
    if parsed is None:
        dated = _date_end(line)
        free = {found.start() for found in _FREE.finditer(line, dated)}
        spans = [
            (
                *found.span(),
                LayoutPiece("free", padded=False) if found.start() in free else _shape(found[0]),
            )
            for found in _DIGITS.finditer(line)
        ]
    for start, end, kind in _prefix_spans(line):
        over = [span for span in spans if span[0] < end and span[1] > start]
        if all(
            piece.kind in ("skip", "shape", "free") and piece.column < 0 for _, _, piece in over
        ):
            spans = [span for span in spans if span not in over]
            spans.append((start, end, LayoutPiece(kind)))
    spans.sort(key=lambda span: span[0])
    texts = []
    position = 0
    for start, end, _ in spans:
        texts.append(line[position:start])
        position = end
    texts.append(line[position:])
    pieces = [piece for _, _, piece in spans]
    return LineLayout(
        tuple(_without_padding(texts, pieces)),
        tuple(pieces),
        parsed,
        column,
        tuple((start, end) for start, end, _ in spans),
    )


def _shape(text: bytes) -> LayoutPiece:
    return LayoutPiece("shape", shape=text.translate(_ZEROS), padded=False)


def _without_padding(texts: Sequence[bytes], pieces: Sequence[LayoutPiece]) -> list[bytes]:
    """Return the fixed texts with one space of those before a number, as they vary with its width.

    One stays: without it, `12: 5` would be a line like `12:5`. Spaces behind a number stay: two of them separate what one
    does not.
    """
    bare = [
        _PADDING.sub(b"", text) if piece.padded and piece.kind not in ("time", "bar") else text
        for text, piece in zip(texts[:-1], pieces, strict=True)
    ]
    return [*bare, texts[-1]]


def _prefix_spans(line: bytes) -> list[tuple[int, int, str]]:
    """Return where the rank and the time of the prefix stand in a line that may hold ANSI sequences."""
    head = prefix(clean(line))
    spans = [(head.time_span, "time"), (head.rank_span, "rank")]
    if b"\x1b" not in line:
        return [(*span, kind) for span, kind in spans if span is not None]
    kept = kept_bytes(line)
    return [
        (kept[span[0]], kept[span[1] - 1] + 1, kind) for span, kind in spans if span is not None
    ]
