"""A command in a terminal of its own, for tests that type into it and read what it shows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from collections.abc import Iterator, Sequence

from tests.waiting import PATIENCE, wait_until


class Terminal:
    """A terminal and the process that has it."""

    def __init__(self, command: Sequence[str], *, rows: int, columns: int) -> None:
        self._ours, self._theirs = pty.openpty()
        self._told = bytearray()
        self._set_size(rows, columns)
        self._before = termios.tcgetattr(self._theirs)
        self._process = subprocess.Popen(
            command,
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            start_new_session=True,
            preexec_fn=self._take,  # noqa: PLW1509  # no threads yet; who passes the terminal on asks for that of its session
        )

    def _take(self) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSCTTY, 0)

    def _set_size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows: int, columns: int) -> None:
        """Make it smaller or larger, which the kernel tells the process."""
        self._set_size(rows, columns)

    def type(self, text: bytes) -> None:
        os.write(self._ours, text)

    def read(self, *texts: bytes) -> None:
        """Return once it has shown all of these."""

        def told() -> bool:
            while select.select([self._ours], [], [], 0)[0]:
                self._told.extend(os.read(self._ours, 1 << 16))
            return all(text in self._told for text in texts)

        wait_until(told, alive=lambda: self._process.poll() is None, seen=lambda: bytes(self._told))

    def end(self) -> int:
        """Return the exit code, once the terminal is as it was."""
        code = self._process.wait(PATIENCE)
        assert termios.tcgetattr(self._theirs) == self._before
        return code

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._theirs)
        os.close(self._ours)


@contextlib.contextmanager
def terminal(command: Sequence[str], *, rows: int = 41, columns: int = 97) -> Iterator[Terminal]:
    opened = Terminal(command, rows=rows, columns=columns)
    try:
        yield opened
    finally:
        opened.close()


def use_as_a_person(shell: Terminal, *, text: bytes) -> None:
    """Look around in a shell, make the terminal smaller, interrupt a command and leave; `text` is in the file `left`."""
    shell.type(b"stty size; cat left\n")
    shell.read(b"41 97", text)
    shell.resize(20, 60)
    shell.type(b"sh -c 'echo go''ing; sleep 600; true'\n")
    shell.read(b"going")
    shell.type(b"\x03")  # which interrupts what runs there, and nothing here
    shell.type(b"stty size; exit 5\n")
    shell.read(b"20 60")
    assert shell.end() == 5
