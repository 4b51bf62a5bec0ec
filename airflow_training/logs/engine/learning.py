"""The layouts of one scan: `parse_line` is asked once for each, later lines are read by what it said.

Most lines of most logs hold no metric and differ in their digits only. They are learned too, so that the compiled walk
passes over those that no signature can match.
"""

from __future__ import annotations

from airflow_training.logs.engine.columns import RowLayouts
from airflow_training.logs.engine.formats import Formats, ParsedLineLike
from airflow_training.logs.engine.layouts import LineLayout, LineValues, layout_of, letters, masked
from airflow_training.logs.engine.required_texts import RequiredTexts
from airflow_training.logs.lines.cleaning import clean
from airflow_training.logs.lines.prefixes import has_wrong_date

MOST_LAYOUTS = 4096
"""Then all are forgotten and learned again: a log with more layouts has lines that never come again."""

MOST_ALIKE = 64
"""Layouts with the same letters; a log with more has names with numbers in them that never come again."""

MOST_NOTICED = 256
"""Lines; what comes again among so many is worth a layout."""

_IN_NUMBERS = b"0123456789.,:?/+- e"
"""In numbers, clocks and times."""
_IN_PIECE = {
    "free": b"0123456789 ",
    "rank": b"0123456789 ",
    "bar": bytes(byte for byte in range(256) if not 97 <= byte | 32 <= 122) + b"e",
}


class LayoutTable:
    """Layouts by the letters of their lines. Without `formats` no line holds a metric."""

    def __init__(self, formats: Formats | None) -> None:
        self._formats = formats
        self._layouts: dict[bytes, list[LineLayout]] = {}
        self._without: dict[bytes, bool] = {}
        """Lines that hold no metric, with their digits taken out: whether their layout was told."""
        self._noticed: set[bytes] = set()
        """Lines that were noticed not long ago, with their digits taken out."""
        self._tables: dict[bytes, RowLayouts] = {}
        """Of the rows below a line that names columns."""
        self.new: list[tuple[bytes, LineLayout]] = []
        """Not yet known to the compiled walk, with the line each was learned from."""

    @property
    def full(self) -> bool:
        """Return whether it is time to forget all."""
        return len(self._layouts) + len(self._without) >= MOST_LAYOUTS

    def forget(self) -> None:
        """Forget all layouts."""
        self._layouts.clear()
        self._without.clear()
        self._tables.clear()

    def read(self, line: bytes) -> tuple[LineLayout, LineValues] | None:
        """Return the layout and the values of a line; None if it holds no metric."""
        known = self._layouts.get(letters(line), ())
        for layout in known:
            if (row := layout.read(line)) is not None:
                return layout, row
        mask = masked(line)
        told = self._without.get(mask)
        if told is None and self.rows_below(line) is not None:
            return None  # it is to be seen each time
        if told is None:
            parsed = None if self._formats is None else self._formats.parse_line(line)
            if parsed is not None:
                return self._learn(line, parsed)
            self._without[mask] = False
        elif not told:
            # the second of its kind: what never comes again is not worth a layout
            self._without[mask] = True
            self.new.append((line, layout_of(line, None)))
        return None

    def rows_below(self, line: bytes) -> RowLayouts | None:
        """Return the layouts of the rows of the table that begins with a line; None for any other line."""
        found = self._tables.get(line)
        columns = None if found or self._formats is None else self._formats.columns(line)
        if columns is None:
            return found
        if len(self._tables) >= MOST_ALIKE:
            self._tables.clear()
        found = self._tables[line] = RowLayouts(columns)
        return found

    def _learn(self, line: bytes, parsed: ParsedLineLike) -> tuple[LineLayout, LineValues]:
        layout = layout_of(line, parsed)
        row = layout.read_spans(line)
        # a date that is one would fit into the layout of one that does not exist, and be lost; and a layout that does
        # not fit its own line would be learned at every such line
        if (layout.has_timestamp or not has_wrong_date(clean(line))) and layout.read(
            line
        ) is not None:
            known = self._layouts.setdefault(letters(line), [])
            if len(known) < MOST_ALIKE:
                self.new.append((line, layout))
                known.insert(0, layout)
        return layout, row

    def observe_line(self, line: bytes) -> None:
        """Take any line of the log: lines without metrics that come again and again are learned too."""
        mask = masked(line)
        if mask in self._noticed:
            if letters(line) not in self._layouts:
                self.read(line)
            return
        if len(self._noticed) >= MOST_NOTICED:
            self._noticed.clear()
        self._noticed.add(mask)


class MatchMask:
    """Which texts may stand in lines of a layout, in any case: one bit for each place in it."""

    def __init__(self, line: bytes, layout: LineLayout) -> None:
        self._fixed: dict[int, int] = {}
        """Byte -> places where it stands."""
        self._free: dict[int, int] = {}
        """Byte -> places of pieces that may hold it."""
        self._pieces = 0
        place = 0
        for number, text in enumerate(layout.texts):
            for byte in text.lower():
                self._fixed[byte] = self._fixed.get(byte, 0) | 1 << place
                place += 1
            if number < len(layout.pieces):
                self._pieces |= 1 << place
                kind, span = layout.pieces[number].kind, slice(*layout.spans[number])
                for byte in _in_piece(kind, line[span].lower()):
                    self._free[byte] = self._free.get(byte, 0) | 1 << place
                # pieces with nothing between them share a place
                place += bool(layout.texts[number + 1])
        self._all = (2 << place) - 1

    def holds(self, text: bytes) -> bool:
        """Return whether a line may hold `text`, which is in lower case."""
        places = self._all
        for byte in text:
            places = (places & self._fixed.get(byte, 0)) << 1 | places & self._free.get(byte, 0)
            if not places:
                return False
            places |= (places & self._pieces) << 1
        return True


def _in_piece(kind: str, learned: bytes) -> bytes:
    """Return what may stand in a piece: lines of one layout have the same letters, but for `e`."""
    letters = bytes(byte for byte in learned if 97 <= byte <= 122)
    return _IN_PIECE.get(kind, _IN_NUMBERS) + letters


def may_match(line: bytes, layout: LineLayout, needs: RequiredTexts) -> bool:
    """Return whether a signature may match a line of the layout, learned from `line`, whatever its (finite) numbers are."""
    if b"\x1b" in line:
        return True  # what signatures see has no colours, what the layout says has
    reach = MatchMask(line, layout)
    own = frozenset(letters(line.lower()))
    there = {
        number
        for number, (text, needed) in enumerate(needs.texts)
        if needed <= own and reach.holds(text)
    }
    return needs.met_by(there)
