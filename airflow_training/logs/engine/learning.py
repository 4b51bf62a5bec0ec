"""The layouts of one scan: `parse_line` is asked once for each, later lines are read by what it said."""

from __future__ import annotations

import re
from collections.abc import Sequence

from airflow_training.logs.engine.formats import Formats
from airflow_training.logs.engine.layouts import Layout, Row, layout_of, letters
from airflow_training.logs.engine.patterns import Pattern

MOST_LAYOUTS = 4096
"""Then all are forgotten and learned again: a log with more layouts has lines that never come again."""

_DIGITS = re.compile(rb"\d+")
_BROKEN_DATE = re.compile(rb"\W*\d{4}[-/]\d\d[-/]\d\d")
_NUMERIC = re.compile(rb"e?[0-9.,:+?-]+")


class Learned:
    """Layouts by the letters of their lines."""

    def __init__(self, formats: Formats) -> None:
        self.formats = formats
        self.layouts: dict[bytes, list[Layout]] = {}
        self.without: set[bytes] = set()
        """Lines that hold no metric, with their digits taken out."""
        self.new: list[tuple[bytes, Layout]] = []
        """Not yet known to the compiled walk, with the line each was learned from."""

    def read(self, line: bytes) -> tuple[Layout, Row] | None:
        """Return the layout and the values of a line; None if it holds no metric."""
        known = self.layouts.get(letters(line), ())
        for layout in known:
            if (row := layout.read(line)) is not None:
                return layout, row
        masked = _DIGITS.sub(b"0", line)
        if masked in self.without:
            return None
        parsed = self.formats.parse_line(line)
        layout = layout_of(line, parsed)
        if parsed is not None and _BROKEN_DATE.match(line) and not layout.tells_time:
            return layout, layout.read_spans(
                line
            )  # a whole date would fit into its layout and be lost
        if len(self.layouts) + len(self.without) >= MOST_LAYOUTS:
            self.layouts.clear()
            self.without.clear()
        self.new.append((line, layout))
        if parsed is None:
            self.without.add(masked)
            return None
        self.layouts.setdefault(letters(line), []).insert(0, layout)
        return layout, layout.read_spans(line)


def may_match(layout: Layout, signatures: Sequence[Pattern]) -> bool:
    """Return whether a signature may match a line of the layout whatever its (finite) numbers are.

    What a signature needs beside numbers must stand in the fixed text.
    """
    fixed = b"0".join(layout.texts).lower()
    return any(
        all(any(_word_in(text, fixed) for text in texts) for texts in way)
        for pattern in signatures
        for way in pattern.required
    )


def _word_in(literal: bytes, fixed: bytes) -> bool:
    words = [word.strip() for word in _NUMERIC.split(literal.lower())]
    longest = max(words, key=len)
    return len(longest) < 3 or longest in fixed
