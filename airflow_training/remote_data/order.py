"""Which files will be read next, by those that were read so far. Pure.

Only where several in a row were neighbours, or the first two of a folder: readers that jump get nothing that they do not ask for.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ReadOrder"]

_IN_A_ROW = 4
_STEP = 2
"""Workers that take turns leave a gap between what they read."""
_STREAMS = 16
_MOST = 32


class ReadOrder:
    """Follows the reads of one data set, in the order of its names."""

    def __init__(self, names: Sequence[str]) -> None:
        """`names`: of all files, sorted."""
        self._names = names
        self._number = {name: number for number, name in enumerate(names)}
        self._streams: dict[int, int] = {}
        """Number of the file that was read last -> how many were read in a row; the newest last."""

    def after(self, name: str) -> Sequence[str]:
        """Take a read and return what will be read next: more the longer the order holds."""
        number = self._number.get(name)
        if number is None:
            return ()
        before = next(
            (n for n in range(number, number - _STEP - 1, -1) if n in self._streams), None
        )
        if before is None:
            # who begins with a folder's first file mostly goes on with its next: two in a row are enough
            length = _IN_A_ROW - 1 if self._is_first(number) else 1
        else:
            length = self._streams.pop(before) + (before != number)
        self._streams[number] = length
        if len(self._streams) > _STREAMS:
            del self._streams[next(iter(self._streams))]
        if length < _IN_A_ROW:
            return ()
        folder = _folder(name)
        following = self._names[number + 1 : number + 1 + min(_MOST, 2 ** (length - 2))]
        return [each for each in following if _folder(each) == folder]

    def _is_first(self, number: int) -> bool:
        return not number or _folder(self._names[number - 1]) != _folder(self._names[number])


def _folder(name: str) -> str:
    return name.rpartition("/")[0]
