"""The walk over a block with numba: tables of the layouts, and the rows that come back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from airflow_training.logs.engine import compiled
from airflow_training.logs.engine.layouts import LineLayout
from airflow_training.logs.engine.learning import may_match
from airflow_training.logs.engine.patterns import Pattern
from airflow_training.logs.engine.required_texts import RequiredTexts, needs_of
from airflow_training.logs.engine.rows import Rows
from airflow_training.logs.engine.walking import UnparsedLines, WalkResult

_OPERATIONS = {
    "number": compiled.NUMBER,
    "divided": compiled.DIVIDED,
    "inverse": compiled.INVERSE,
    "clock": compiled.CLOCK,
    "rank": compiled.RANK,
    "time": compiled.TIME,
    "bar": compiled.BAR,
    "skip": compiled.SKIP,
    "free": compiled.FREE,
}
_MOST_ROWS = 16_384
_MOST_VALUES = 262_144
_MOST_RUNS = 16_384


class CompiledWalker:
    """Reads lines of the layouts it has learned; for blocks of at most `size` bytes."""

    learns = True

    def __init__(self, signatures: Sequence[Pattern], *, size: int) -> None:
        self.signatures = signatures
        self.rest = bytearray(size + size // compiled.LONGEST_PART + 16)
        self.rest_address = address_of(self.rest)
        self.runs = np.empty((_MOST_RUNS, 4), dtype=np.int64)
        self.aside = bytearray(len(self.rest))
        self.aside_address = address_of(self.aside)
        self.aside_runs = np.empty((_MOST_RUNS, 4), dtype=np.int64)
        self.rows = np.empty((_MOST_ROWS, 4), dtype=np.int64)
        self.values = np.empty(_MOST_VALUES, dtype=np.float64)
        self.state = np.zeros(len(compiled.STATE), dtype=np.int64)
        self.forget()
        # load the compiled code now, so that forked processes share it
        self.walk(bytearray(1), 0, 0, 0, complete=True)
        compiled.letters(address_of(b"a"), 0, 1)

    @cached_property
    def needs(self) -> RequiredTexts:
        """Texts that signatures require in a line."""
        return needs_of(tuple(self.signatures))

    def forget(self) -> None:
        """Forget all layouts."""
        self.layouts: list[LineLayout] = []
        self.spread = np.full(compiled.SPREAD, -1, dtype=np.int64)
        self.chains = np.empty((0, 6), dtype=np.int64)
        self.operations = np.empty((0, 4), dtype=np.int64)
        self.scales = np.empty(0, dtype=np.float64)
        self.texts = np.empty(0, dtype=np.uint8)

    def register_layout(self, line: bytes, layout: LineLayout) -> None:
        """Read lines of the layout from now on."""
        key = int(compiled.letters(address_of(line), 0, len(line)))
        bucket = key % compiled.SPREAD
        operations, scales, texts = _program(layout, len(self.texts))
        link = [
            self.spread[bucket],
            len(self.operations),
            layout.columns,
            may_match(line, layout, self.needs),
            layout.parsed is None,
            key,
        ]
        self.spread[bucket] = len(self.chains)
        self.layouts.append(layout)
        self.chains = np.vstack([self.chains, np.array([link], dtype=np.int64)])
        self.operations = np.vstack([self.operations, np.array(operations, dtype=np.int64)])
        self.scales = np.concatenate([self.scales, np.array(scales)])
        self.texts = np.concatenate([self.texts, np.frombuffer(texts, dtype=np.uint8)])

    def walk(
        self, block: bytearray, start: int, end: int, line: int, *, complete: bool
    ) -> WalkResult:
        """Take apart `block[start:end]`, or its beginning where there is much in it."""
        state = self.state
        state[compiled.CONSUMED] = start
        state[compiled.LINE] = line
        compiled.walk(
            address_of(block),
            end,
            complete,
            self.rest_address,
            self.runs,
            self.aside_address,
            self.aside_runs,
            self.rows,
            self.values.ctypes.data,
            len(self.values),
            self.spread,
            self.chains,
            self.operations.ctypes.data,
            self.scales.ctypes.data,
            self.texts.ctypes.data,
            state,
        )
        consumed, line, size, runs, rows, _, aside_size, aside_runs, full = state.tolist()
        return WalkResult(
            consumed,
            line,
            UnparsedLines(memoryview(self.rest)[:size], self.runs[:runs].reshape(-1).data),
            UnparsedLines(
                memoryview(self.aside)[:aside_size],
                self.aside_runs[:aside_runs].reshape(-1).data,
            ),
            tuple(self._grouped(self.rows[:rows])),
            full=bool(full),
        )

    def _grouped(self, rows: np.ndarray[Any, np.dtype[np.int64]]) -> Iterator[Rows]:
        """Yield the rows of each layout; offsets are places in the block, lines the line ends before."""
        for number in np.unique(rows[:, 0]).tolist():
            layout = self.layouts[number]
            own = rows[rows[:, 0] == number]
            told = self.values[own[:, 1, None] + np.arange(2 + layout.columns)]
            ranks = told[:, 1].astype(np.int64)
            yield Rows(layout, told[:, 2:], own[:, 2], own[:, 3] + 1, told[:, 0], ranks)


def address_of(data: bytes | bytearray) -> int:
    """Return where the bytes are in memory; they must be held on to meanwhile."""
    return int(np.frombuffer(data, dtype=np.uint8).ctypes.data) if data else 0


def _program(layout: LineLayout, place: int) -> tuple[list[list[int]], list[float], bytes]:
    """Return the operations of a layout, their scales, and its texts, which will stand at `place`."""
    operations: list[list[int]] = []
    scales: list[float] = []
    texts = b""

    def add(operation: int, *arguments: int, scale: float = 1.0) -> None:
        operations.append([operation, *arguments])
        scales.append(scale)

    def fixed(operation: int, text: bytes) -> None:
        nonlocal texts
        if text:
            add(operation, place + len(texts), len(text), -1)
            texts += text

    fixed(compiled.TEXT, layout.texts[0])
    for piece, after in zip(layout.pieces, layout.texts[1:], strict=True):
        if piece.kind == "shape":
            fixed(compiled.SHAPE, piece.shape)
        else:
            stop = after[0] if piece.kind == "bar" and after else 0
            operation = _OPERATIONS[piece.kind]
            form = piece.plain * compiled.PLAIN | piece.padded * compiled.PADDED
            add(operation, form, stop, piece.column, scale=piece.scale)
        fixed(compiled.TEXT, after)
    add(compiled.END, 0, 0, -1)
    return operations, scales, texts
