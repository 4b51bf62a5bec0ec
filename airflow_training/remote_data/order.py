"""Which files will be read next, by those that were read so far. Pure.

Only where two in a row were neighbours: readers that jump get nothing that they do not ask for.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ReadOrder"]

_FIRST = 2
_MOST = 32


class ReadOrder:
    """Follows the reads of one data set, in the order of its names."""

    def __init__(self, names: Sequence[str]) -> None:
        """`names`: of all files, sorted."""
        self._names = names
        self._number = {name: number for number, name in enumerate(names)}
        self._newest: list[int] = []
        self._window = _FIRST

    def after(self, name: str) -> Sequence[str]:
        """Take a read and return what will be read next: more the longer the order holds."""
        number = self._number.get(name)
        if number is None:
            return ()
        # several readers take turns: each follows on what one of them has read
        follows = any(0 < number - each <= 2 for each in self._newest)
        self._newest = [*self._newest[-7:], number]
        if not follows:
            self._window = _FIRST
            return ()
        self._window = min(_MOST, self._window * 2)
        folder = name.rpartition("/")[0]
        following = self._names[number + 1 : number + 1 + self._window]
        return [each for each in following if each.rpartition("/")[0] == folder]
