"""What goes wrong with data on demand. Each error has the `reason` that a run shows, and a message that names the file."""

from __future__ import annotations

from airflow_training.errors import TrainingError

__all__ = [
    "DamagedChunk",
    "DataError",
    "DataNotShared",
    "SourceAway",
    "SourceChanged",
    "SourceGone",
    "UnfetchedRead",
    "error_of",
]


class DataError(TrainingError):
    """Base of all errors of this room."""

    reason = "DataError"


class SourceAway(DataError):
    """The sharing machine does not answer now; who asks waits and asks again."""

    reason = "DataSourceAway"


class SourceGone(DataError):
    """The sharing machine has not answered for as long as a training may wait."""

    reason = "DataSourceGone"


class SourceChanged(DataError):
    """A file is not what it was when it was shown."""

    reason = "DataSourceChanged"


class DataNotShared(DataError):
    """A file was not shown before submission, is secret-like, or lies outside of what was shown."""

    reason = "DataNotShared"


class DamagedChunk(DataError):
    """Bytes that came are not those of their digest, however often they were fetched."""

    reason = "DataDamaged"


class UnfetchedRead(DataError):
    """A file was read before its content was there: the training computes with bytes that nobody sent."""

    reason = "UnfetchedDataRead"


_KINDS = {
    kind.reason: kind
    for kind in (
        DataError,
        SourceAway,
        SourceGone,
        SourceChanged,
        DataNotShared,
        DamagedChunk,
        UnfetchedRead,
    )
}


def error_of(reason: str, message: str) -> DataError:
    """Return the error that another process has told by its reason."""
    return _KINDS.get(reason, DataError)(message)
