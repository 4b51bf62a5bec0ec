"""Contents as they are sent: several in one body, each resumable. Pure; reads no file.

A pack is a sequence of a JSON line `{"sha256", "size", "offset"}` and the bytes from there on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from airflow_training.cloud.protocol import MissingContent
from airflow_training.errors import InputError

__all__ = ["Pack", "PackBytes", "PackHeader", "PackReader", "header_line", "plan_packs"]

_PACK_BYTES = 8 << 20
_PACK_CONTENTS = 2000
_LONGEST_LINE = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class PackHeader:
    sha256: str
    size: int
    offset: int = 0
    """Where the bytes that follow begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackBytes:
    """The next bytes of the content of the header before."""

    data: bytes
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """What goes in one request: contents, or stretches of them."""

    headers: Sequence[PackHeader]

    @property
    def size(self) -> int:
        """Bytes of the contents, without the lines before them."""
        return sum(each.size - each.offset for each in self.headers)


def plan_packs(missing: Sequence[MissingContent], sizes: Mapping[str, int]) -> Sequence[Pack]:
    """What to send, in the order asked for; a large content has a pack of its own.

    What the service has of a content is not sent again. `sizes`: in bytes, by digest.
    """
    packs: list[Pack] = []
    begun: list[PackHeader] = []
    filled = 0
    for each in missing:
        header = PackHeader(sha256=each.sha256, size=sizes[each.sha256], offset=each.have)
        left = header.size - header.offset
        if begun and (filled + left > _PACK_BYTES or len(begun) == _PACK_CONTENTS):
            packs.append(Pack(headers=begun))
            begun, filled = [], 0
        begun.append(header)
        filled += left
    return [*packs, Pack(headers=begun)] if begun else packs


def header_line(header: PackHeader) -> bytes:
    """The line before the bytes of a content."""
    row = {"sha256": header.sha256, "size": header.size, "offset": header.offset}
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


class PackReader:
    """Takes a body as it arrives, in pieces of any length."""

    def __init__(self) -> None:
        self._line = b""
        self._left = -1
        """Bytes to come of the content that is read; -1: a line comes."""

    @property
    def complete(self) -> bool:
        """Whether the body may end here."""
        return self._left < 0 and not self._line

    def feed(self, data: bytes) -> Iterator[PackHeader | PackBytes]:
        """Yield what is in the next piece; raises InputError for what is no pack."""
        view = memoryview(data)
        while view:
            if self._left < 0:
                end = bytes(view[:_LONGEST_LINE]).find(b"\n")
                self._line += bytes(view[: len(view) if end < 0 else end])
                view = view[len(view) if end < 0 else end + 1 :]
                if len(self._line) > _LONGEST_LINE:
                    raise _no_pack("a line is too long")
                if end < 0:
                    continue
                header = _header(self._line)
                self._line = b""
                self._left = header.size - header.offset
                yield header
                if self._left == 0:
                    self._left = -1
                    yield PackBytes(data=b"", last=True)
                continue
            part = bytes(view[: self._left])
            view = view[len(part) :]
            self._left -= len(part)
            yield PackBytes(data=part, last=self._left == 0)
            if self._left == 0:
                self._left = -1


def _header(line: bytes) -> PackHeader:
    try:
        row = json.loads(line)
        header = PackHeader(sha256=row["sha256"], size=row["size"], offset=row["offset"])
    except (ValueError, KeyError, TypeError):
        raise _no_pack("a line says of no content") from None
    numbers = (header.size, header.offset)
    if not all(isinstance(each, int) for each in numbers) or not 0 <= header.offset <= header.size:
        raise _no_pack("a content ends before it begins")
    return header


def _no_pack(message: str) -> InputError:
    return InputError.of(code="wrong_type", field="pack", message=message)
