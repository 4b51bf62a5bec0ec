"""A shuffled order that is computed index by index and never stored. Standard library only."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator

__all__ = ["Permutation"]

_ROUNDS = 12
"""With 8 the orders of five or six samples are not all equally likely; larger sets would do with 8."""

_MASK = (1 << 64) - 1
_ODD_1, _ODD_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # of the SplitMix64 finalizer


class Permutation:
    """A bijection of `range(length)` chosen by `key`; the same key gives the same one anywhere.

    A Feistel network over pairs (row, column) of a grid that has just `length` cells or few more,
    walked on until it lands on a cell below `length` (Black and Rogaway, "Ciphers with arbitrary
    finite domains", 2002). It takes no memory, and about 5 microseconds an index.
    """

    def __init__(self, length: int, key: str) -> None:
        self.length = length
        self._rows = math.isqrt(max(length - 1, 0)) + 1
        self._columns = -(-length // self._rows)
        digest = hashlib.shake_256(key.encode()).digest(8 * _ROUNDS)
        keys = struct.unpack(f"<{_ROUNDS}Q", digest)
        self._keys = tuple(zip(keys[::2], keys[1::2], strict=True))

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        return map(self.__getitem__, range(self.length))

    def __getitem__(self, index: int) -> int:
        """The element at `index`, 0 <= index < length."""
        if not 0 <= index < self.length:
            raise IndexError(index)
        rows, columns = self._rows, self._columns
        while True:
            row, column = divmod(index, columns)
            for first, second in self._keys:  # mixed in place: a call would double the time
                value = (column + first) * _ODD_1 & _MASK
                row = (row + ((value ^ value >> 32) * _ODD_2 >> 32)) % rows
                value = (row + second) * _ODD_1 & _MASK
                column = (column + ((value ^ value >> 32) * _ODD_2 >> 32)) % columns
            index = row * columns + column
            if index < self.length:
                return index
