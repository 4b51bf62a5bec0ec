"""gzip, zstd and UTF-16 (PowerShell's `>`) as if they were plain text, with memory that does not grow with the file.

Going forward decompresses once. To go back, decompression starts again at the nearest *restart point*: in
gzip a copy of the decompressor every few megabytes, in both formats the start of each member or frame. A zstd
file of one frame has only its beginning.
"""

from __future__ import annotations

import codecs
import zlib
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, NamedTuple

from airflow_training.logs.reading.source import LogSlice, LogUnreadable, Source

__all__ = ["CompressedText", "decoder_of"]

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UTF_32 = codecs.BOM_UTF32_LE
"""Begins like the former; nobody writes logs in it."""
_POINTS = 256
"""So many restart points are kept, about 50 KB each; when there are more, every other one goes."""
_SPACING = 4 << 20
_PIECE = 64 << 10
"""Of text; a copy of the decompressor belongs between two pieces."""


class _Gzip:
    """One member."""

    raw_bytes = 16 << 10

    def __init__(self, inner: Any = None) -> None:
        self._inner = inner or zlib.decompressobj(wbits=31)

    def decode(self, raw: bytes) -> tuple[bytes, bytes]:
        """Return text, and what was not needed for it."""
        text = self._inner.decompress(raw, _PIECE)
        return text, self._inner.unused_data or self._inner.unconsumed_tail

    @property
    def ended(self) -> bool:
        return bool(self._inner.eof)

    def copy(self) -> _Gzip | None:
        return _Gzip(self._inner.copy())


class _Zstd:
    """One frame. 1 KiB can stand for 32 MiB at most, as blocks of a repeated byte take four bytes."""

    raw_bytes = 1 << 10

    def __init__(self) -> None:
        try:
            import zstandard
        except ImportError:
            text = "zstd needs zstandard: pip install 'airflow-training[logs]'"
            raise LogUnreadable(text) from None
        self._inner = zstandard.ZstdDecompressor().decompressobj()

    def decode(self, raw: bytes) -> tuple[bytes, bytes]:
        return self._inner.decompress(raw), self._inner.unused_data

    @property
    def ended(self) -> bool:
        return bool(self._inner.eof)

    def copy(self) -> _Zstd | None:
        return None  # the library cannot


class _Utf16:
    """All of the file; half of a character waits for the rest."""

    raw_bytes = 16 << 10
    ended = False

    def __init__(self, state: tuple[bytes, int] | None = None) -> None:
        self._inner = codecs.getincrementaldecoder("utf-16")("replace")
        if state is not None:
            self._inner.setstate(state)

    def decode(self, raw: bytes) -> tuple[bytes, bytes]:
        return self._inner.decode(raw).encode(), b""

    def copy(self) -> _Utf16:
        return _Utf16(self._inner.getstate())


_Decoder = _Gzip | _Zstd | _Utf16
"""`decode`, `ended` and `copy` of one member or frame."""


def decoder_of(head: bytes) -> Callable[[], _Decoder] | None:
    """Decompressor for a file that begins with these bytes; None where it is plain text."""
    if head.startswith(_GZIP):
        return _Gzip
    if head.startswith(_UTF_16) and not head.startswith(_UTF_32):
        return _Utf16
    return _Zstd if head.startswith(_ZSTD) else None


class _Point(NamedTuple):
    """Where decompression can start: text offset, raw offset, and the decompressor there."""

    offset: int
    raw: int
    decoder: _Decoder | None
    """None: a new one."""


class CompressedText:
    """The text of a compressed source."""

    def __init__(self, raw: Source, new_decoder: Callable[[], _Decoder]) -> None:
        self.name = raw.name
        self._raw = raw
        self._new_decoder = new_decoder
        self._forget()

    def _forget(self) -> None:
        self._points = [_Point(0, 0, None)]
        self._spacing = _SPACING
        self._go_to(self._points[0])

    def _go_to(self, point: _Point) -> None:
        self._offset, self._raw_offset = point.offset, point.raw
        known = point.decoder and point.decoder.copy()
        self._decoder = known or self._new_decoder()
        self._piece = b""
        """Text that ends at `_offset` and was decompressed last."""

    def read(self, offset: int, limit: int) -> LogSlice:
        """Return text, decompressing all from the nearest restart point up to it."""
        if offset < self._offset - len(self._piece):
            known = bisect_right(self._points, offset, key=lambda point: point.offset)
            self._go_to(self._points[known - 1])
        found = bytearray()
        end = False
        while len(found) < limit and not end:
            wanted = offset + len(found) - (self._offset - len(self._piece))
            if wanted < len(self._piece):
                found += self._piece[wanted : wanted + limit - len(found)]
            else:
                end = not self._advance()
        return LogSlice(bytes(found), offset + len(found), end)

    def _advance(self) -> bool:
        """Decompress the next piece; return False at the end of what there is."""
        while True:
            part = self._raw.read(self._raw_offset, self._decoder.raw_bytes)
            if not part.data:
                return False
            if self._decoder.ended and not self._begin_member(part.data):
                return False
            try:
                text, rest = self._decoder.decode(part.data)
            except Exception as error:  # zlib.error, ZstdError
                at = f"damaged after {self._raw_offset} compressed bytes"
                raise LogUnreadable(f"{self.name}: {at} ({error})") from error
            self._raw_offset += len(part.data) - len(rest)
            if text:
                self._offset += len(text)
                self._piece = text
                self._remember(self._decoder)
                return True

    def _begin_member(self, head: bytes) -> bool:
        """Start the next member or frame; False where only padding or foreign bytes follow."""
        if decoder_of(head) is None:
            return False
        self._decoder = self._new_decoder()
        self._remember(None)
        return True

    def _remember(self, decoder: _Decoder | None) -> None:
        if self._offset < self._points[-1].offset + self._spacing:
            return
        copied = decoder and decoder.copy()
        if decoder is not None and (copied is None or decoder.ended):
            return
        self._points.append(_Point(self._offset, self._raw_offset, copied))
        if len(self._points) > _POINTS:
            self._points = self._points[::2]
            self._spacing *= 2

    def size(self) -> None:
        """Return None: none of the formats says it reliably."""

    def changed(self) -> bool:
        """Return whether the compressed file was replaced or truncated."""
        return self._raw.changed()

    def reopen(self) -> None:
        """Start anew with the file that lies there now."""
        self._raw.reopen()
        self._forget()

    def close(self) -> None:
        """Close the compressed file."""
        self._raw.close()
