"""Where a node gets the data of a run: an address that is written into a file, and what it becomes there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from airflow_training.remote_data.manifest import DataFile, DataRoot

__all__ = ["ChunkSource", "http_address", "mailbox_address"]


class ChunkSource(Protocol):
    """The sharing machine, as a node sees it.

    Raises SourceAway where it does not answer now, and the errors that it tells.
    """

    def digests(self, root: DataRoot, file: DataFile, part: int | None = None) -> Sequence[str]:
        """Return the SHA-256 of each chunk; of the one range with the number `part` where that is given.

        A sharing machine that knows no ranges answers with those of all chunks.
        """

    def only_chunk(self, root: DataRoot, file: DataFile) -> tuple[Sequence[str], bytes]:
        """Return the digests of a file of one chunk, and the chunk with them: empty where it has to be asked for.

        So it is where the digest was told before: whoever asks again may find the chunk in the storage that nodes share.
        """

    def chunk(self, root: DataRoot, file: DataFile, index: int, part: int | None = None) -> bytes:
        """Return the bytes of one chunk, or with index 0 of a range; whether they are its own is the business of who asks."""


def http_address(url: str, token: str) -> Mapping[str, Any]:
    """Return the address of a `DataServer` that the node can reach."""
    return {"kind": "http", "url": url, "token": token}


def mailbox_address(storage: str) -> Mapping[str, Any]:
    """Return the address of a mailbox in a storage, for sharing machines that nobody can reach."""
    return {"kind": "mailbox", "storage": storage}
