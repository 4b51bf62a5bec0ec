"""Which source a path or URL means."""

from __future__ import annotations

import re

from airflow_training.logs.reading.compressed import CompressedText, decoder_of
from airflow_training.logs.reading.local import LocalFile
from airflow_training.logs.reading.remote import RemoteFile
from airflow_training.logs.reading.source import Source

__all__ = ["is_url", "open_log"]

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


def is_url(name: str) -> bool:
    """Return whether this names something by scheme: `s3://…`, `gs://…`, `file://…`."""
    return _URL.match(name) is not None


def open_log(name: str) -> Source:
    """Return the log at a path or URL; compressed ones are known by their first bytes.

    Raises LogUnreadable.
    """
    plain: Source = RemoteFile(name) if is_url(name) else LocalFile(name)
    try:
        new_decoder = decoder_of(plain.read(0, 4).data)
        return plain if new_decoder is None else CompressedText(plain, new_decoder)
    except BaseException:
        plain.close()
        raise
