"""Large files of which a Python program reads a part: `open(path, "rb")` gives a reader that asks for ranges.

What is asked for by a descriptor (`fileno`, so NumPy's `fromfile` and `mmap`) or read from the beginning on becomes the whole
file. Python 3.8 and newer, standard library only.
"""

from __future__ import annotations

import builtins
import io
import os

from airflow_training.interception.asking import (
    DataUnavailable,
    expect_range,
    is_filled,
    make_range_ready,
)
from airflow_training.interception.protocol import RANGE_BYTES

TYPE_CHECKING = False  # `typing` costs the training's start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from airflow_training.interception.protocol import HookSettings

__all__ = ["RangedFile", "RangedFiles", "wrap_open"]

_FROM_BEGINNING_BYTES = 4 << 20
"""Who has read so much from the beginning on, and goes on, gets the whole file."""
_AT_ONCE_BYTES = 4 << 20
_AHEAD = 16
"""So many ranges are fetched beforehand of who has read as many in a row."""
_REMEMBERED = 1 << 16
_OF_TEXT = frozenset(("encoding", "errors", "newline"))


class RangedFiles:
    """The large files of this process of which ranges have come."""

    def __init__(self, settings: HookSettings, told: Callable[[str], object]) -> None:
        """`told`: is called with the path of each that is opened."""
        self._socket = settings.socket
        self._from = settings.ranges_from
        self._roots = tuple(each.rstrip(os.sep) for each in settings.data_roots)
        self._below = tuple(each + os.sep for each in self._roots)
        self._told = told
        self._others: set[Any] = set()
        self._ready: dict[str, set[int]] = {}
        self._contents: dict[str, str] = {}
        """Path of a file -> path of what has come of it."""

    def open(self, path: Any) -> RangedFile | None:
        """Return a reader of ranges; None for a file that is none of these, or there already."""
        try:
            if path in self._others:
                return None
            if isinstance(path, int):
                return None
            full = os.path.realpath(os.fsdecode(path))
            is_data = full.startswith(self._below) or full in self._roots
            if is_data and os.stat(full).st_size >= self._from and not is_filled(full):  # noqa: PTH116
                self._told(full)
                return RangedFile(self, full, path)
        except (OSError, TypeError, ValueError):  # as the program's own open says
            return None
        if len(self._others) >= _REMEMBERED:
            self._others.clear()
        self._others.add(path)
        return None

    def content(self, path: str, first: int, last: int) -> str:
        """Return where the ranges from `first` to `last` can be read by now; empty: the file itself is there.

        Raises:
            OSError: they will not come.
        """
        ready = self._ready.setdefault(path, set())
        if not all(each in ready for each in range(first, last + 1)):
            try:
                self._contents[path] = make_range_ready(self._socket, path, first, last)
            except DataUnavailable as error:  # as the hook raises it
                raise OSError(error.errno, error.strerror, error.filename) from None
            ready.update(range(first, last + 1))
        return self._contents[path]

    def expect(self, path: str, first: int, last: int) -> None:
        """Let ranges be fetched that will be read next."""
        try:
            expect_range(self._socket, path, first, last)
        except OSError:  # they come when they are read
            return


class RangedFile(io.RawIOBase):
    """A file open for reading, as `io.FileIO` would be, whose bytes come when they are read."""

    mode = "rb"
    closefd = True

    def __init__(self, files: RangedFiles, path: str, name: Any) -> None:
        """`name`: as the program spells the path."""
        super().__init__()
        self.name = name
        self._files = files
        self._path = path
        self._size = os.stat(path).st_size  # noqa: PTH116
        self._position = 0
        self._begin = 0
        """Where the reading began that has gone on without a gap since."""
        self._expected = 0
        self._content = -1
        self._whole: io.FileIO | None = None

    def readable(self) -> bool:
        self._check()
        return True

    def seekable(self) -> bool:
        self._check()
        return True

    def fileno(self) -> int:
        """Return the descriptor of the file itself, all of which is fetched for it."""
        return self._all().fileno()

    def isatty(self) -> bool:
        self._check()
        return False

    def tell(self) -> int:
        self._check()
        return self._position if self._whole is None else self._whole.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._check()
        if self._whole is not None:
            return self._whole.seek(offset, whence)
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}.get(whence)
        if base is None:  # data and holes, as the file system knows them
            return self._all().seek(offset, whence)
        if base + offset < 0:
            raise OSError(22, "Invalid argument")
        if base + offset != self._position:
            self._position = self._begin = self._expected = base + offset
        return self._position

    def readinto(self, buffer: Any, /) -> int | None:
        self._check()
        if self._whole is None:
            view = memoryview(buffer).cast("B")
            wanted = min(len(view), self._size - self._position)
            if wanted <= 0:
                return 0
            if wanted < RANGE_BYTES:  # what a buffer would read ahead makes no other range come
                wanted = min(wanted, RANGE_BYTES - self._position % RANGE_BYTES)
            elif self._begin:  # one question is for a few ranges only; who reads more asks again
                wanted = min(wanted, _AT_ONCE_BYTES)
            end = self._position + wanted
            if self._begin or end <= _FROM_BEGINNING_BYTES:
                path = self._files.content(
                    self._path, self._position // RANGE_BYTES, (end - 1) // RANGE_BYTES
                )
                if path and self._opens(path):
                    count = os.preadv(self._content, [view[:wanted]], self._position)
                    if count:  # else what had come was removed: that is no end of the file
                        self._position += count
                        self._look_ahead()
                        return count
        return self._all().readinto(buffer)

    def readall(self) -> bytes:
        self._check()
        if self._whole is None and self._size - self._position <= _FROM_BEGINNING_BYTES:
            parts = []
            while data := self.read(_FROM_BEGINNING_BYTES):
                parts.append(data)
            return b"".join(parts)
        return self._all().readall()

    def close(self) -> None:
        if not self.closed:
            if self._content >= 0:
                os.close(self._content)
                self._content = -1
            if self._whole is not None:
                self._whole.close()
        super().close()

    def _opens(self, path: str) -> bool:
        if self._content < 0:
            try:
                self._content = os.open(path, os.O_RDONLY)
            except OSError:  # of another user, who gets the whole file
                return False
        return True

    def _look_ahead(self) -> None:
        ahead = _AHEAD * RANGE_BYTES
        if (
            self._begin
            and self._position - self._begin > ahead
            and self._position >= self._expected
        ):
            first = -(-self._position // RANGE_BYTES)
            last = min(first + _AHEAD, -(-self._size // RANGE_BYTES)) - 1
            self._expected = (last + 1) * RANGE_BYTES - ahead // 2
            if first <= last:
                self._files.expect(self._path, first, last)

    def _all(self) -> io.FileIO:
        self._check()
        if self._whole is None:
            # the hook lets it be there before it is opened
            self._whole = io.FileIO(self._path, "r")
            self._whole.seek(self._position)
        return self._whole

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


class _Open:
    """The `open` of a process. No function: as an attribute of a class it is not bound, as the built-in one is not."""

    __module__ = "io"  # where pickle finds it

    def __init__(self, files: RangedFiles, plain: Any) -> None:
        import functools

        functools.update_wrapper(self, plain)
        self.__module__ = "io"
        self._files = files
        self._plain = plain

    def __call__(
        self, file: Any, mode: str = "r", buffering: int = -1, *args: Any, **kwargs: Any
    ) -> Any:
        if mode == "rb" and buffering and _is_usual(args, kwargs):
            raw = self._files.open(file)
            if raw is not None:
                size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
                return io.BufferedReader(raw, size)
        return self._plain(file, mode, buffering, *args, **kwargs)

    def __reduce__(self) -> str:
        return "open"


def _is_usual(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether encoding, errors and newline at most stand behind mode and buffering, as None: `pathlib` writes them down."""
    values = [*args, *kwargs.values()]
    return (
        len(values) <= len(_OF_TEXT)
        and _OF_TEXT.issuperset(kwargs)
        and not any(each is not None for each in values)
    )


def wrap_open(files: RangedFiles) -> None:
    """Let `open(path, "rb")` give such readers, in all modules that look the name up from now on."""
    vars(builtins)["open"] = vars(io)["open"] = _Open(files, builtins.open)
