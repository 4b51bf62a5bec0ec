"""A cluster, a model or a strategy from a YAML or JSON file, its mistakes with their lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from airflow_training.documents.loading import load_documents
from airflow_training.documents.paths import Loc
from airflow_training.documents.problems import with_lines
from airflow_training.errors import InputError
from airflow_training.planning.sources.clusters import parse_cluster
from airflow_training.planning.sources.measured import cluster_of_measurement
from airflow_training.planning.view.cluster import ClusterView

__all__ = ["read_cluster", "read_file"]

_Parsed = TypeVar("_Parsed", covariant=True)


class _Parser(Protocol[_Parsed]):
    def __call__(self, data: object, /, *, at: Loc) -> _Parsed: ...


def read_file(path: Path, parse: _Parser[_Parsed]) -> _Parsed:
    """Read the one document of a file with `parse` (`parse_cluster`, `parse_model`, ...).

    Raises:
        InputError: the file cannot be read, holds no or several documents, or has mistakes.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no UTF-8 text"
        raise _refused(path, f"cannot be read: {reason}") from error
    documents = load_documents(text, path.name)
    if len(documents) != 1:
        raise _refused(path, f"must hold one document, not {len(documents)}")
    (document,) = documents
    if document.problems:
        raise InputError(problems=with_lines(document.problems, document.lines), path=str(path))
    try:
        return parse(document.data, at=())
    except InputError as error:
        located = with_lines(error.problems, document.lines)
        raise InputError(problems=located, path=str(path)) from error


def read_cluster(path: Path) -> ClusterView:
    """Return the cluster that a file describes, or that was measured; raises as `read_file`."""
    return read_file(path, _cluster)


def _cluster(data: object, /, *, at: Loc) -> ClusterView:
    if isinstance(data, Mapping) and "ranks" in data:
        return cluster_of_measurement(data, at=at)
    return parse_cluster(data, at=at)


def _refused(path: Path, message: str) -> InputError:
    return InputError.of(code="unreadable", field="", message=message, path=str(path))
