"""What was found in large local logs, kept in the user's cache folder: the next scan reads only what is new."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_training.logs.engine.cache import cached, code, keep
from airflow_training.logs.engine.context_lines import AFTER_BYTES
from airflow_training.logs.engine.formats import Formats
from airflow_training.logs.engine.patterns import Pattern
from airflow_training.logs.engine.stretches import StretchFindings
from airflow_training.logs.model import Origin
from airflow_training.logs.reading.local import LocalFile

WORTH_BYTES = 64 << 20
"""Smaller logs are read faster than they are remembered."""


@dataclass
class IndexEntry:
    """A log up to an offset."""

    head: str
    """Digest of its first bytes."""
    end: str
    """Digest of the bytes before the offset: another log, or a shorter one, has others there."""
    found: StretchFindings


class ScanIndex:
    """The logs that were scanned for the same things."""

    def __init__(self, signatures: Sequence[Pattern], formats: Formats | None) -> None:
        wanted = [(each.name, each.pattern, each.ignore_case) for each in signatures]
        self._wanted = _digest(repr((code(), wanted, formats)).encode())

    def find(self, origin: Origin, source: LocalFile) -> StretchFindings | None:
        """Findings in a log so far, if it is still the same log."""
        kept = cached(self._name(origin, source))
        if kept is None:
            return None
        try:
            remembered: IndexEntry = pickle.loads(kept)  # noqa: S301  # written by this user, see `cached`
        except Exception:  # noqa: BLE001  # of an older version, or damaged: as if it were not there
            return None
        found: StretchFindings = remembered.found
        now = (_head(source, found.size), _end(source, found.size))
        if now != (remembered.head, remembered.end):
            return None
        found.hits.reopen(found.size - AFTER_BYTES)
        return found

    def keep(self, origin: Origin, source: LocalFile, found: StretchFindings) -> None:
        """Remember what was found in a log up to a line end."""
        remembered = IndexEntry(_head(source, found.size), _end(source, found.size), found)
        content = pickle.dumps(remembered, pickle.HIGHEST_PROTOCOL)
        keep(self._name(origin, source), content)

    def _name(self, origin: Origin, source: LocalFile) -> str:
        key = repr((self._wanted, origin, str(Path(source.name).resolve())))
        return f"log-{_digest(key.encode())}"


def _head(source: LocalFile, size: int) -> str:
    return _digest(source.read(0, min(size, 4096)).data)


def _end(source: LocalFile, size: int) -> str:
    return _digest(source.read(max(0, size - 256), min(size, 256)).data)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
