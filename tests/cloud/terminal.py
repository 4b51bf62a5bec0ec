"""What a program shows on a terminal, read by whoever has the other end."""

from __future__ import annotations

import os


class Terminal:
    """What a program has shown on a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.text = b""

    def until(self, words: bytes) -> None:
        while words not in self.text:
            data = self._read()
            assert data, self.text
            self.text += data

    def rest(self) -> None:
        while data := self._read():
            self.text += data

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, 4096)
        except OSError:  # nobody writes any more
            return b""
