"""Where the predictions of a run lie, and how they are read: in bounded parts, and nothing but them.

Scripts write what is read here: a name or a link leads nowhere else, and no file is believed to be
what its name says.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from airflow_training.agent.predictions import NAME
from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.runtimes.registry import adapter_of_job
from airflow_training.runtimes.rendering import predictions_address, sees_our_files
from airflow_training.settings import load_settings
from airflow_training.state.records import RunState

__all__ = ["PredictionStore", "StoredFile", "newest_first", "place_of", "step_of"]

_OBJECT_STORAGES = frozenset(
    ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "hdfs", "memory")
)
"""What an API server reads; no address that a job names makes it ask any other server."""
_STEP = re.compile(r"(?:^|[._=-])step[-_=]?([0-9]{1,15})(?![0-9])", re.ASCII)
_INSTANCE = re.compile(r"(.+)-([0-9]{1,6})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One published file of one instance."""

    key: InstanceKey
    name: str
    at: float
    bytes: int


def step_of(name: str) -> int | None:
    """Return the step that a name tells: `step-000100.csv`, `confusion.step=100.csv`."""
    found = _STEP.search(name)
    return None if found is None else int(found[1])


class PredictionStore(Protocol):
    """Where predictions lie. Raises RuntimeUnavailable for a storage that does not answer."""

    def files(self, instances: Collection[InstanceKey]) -> Iterator[StoredFile]:
        """Yield what these instances have published."""

    def read(self, key: InstanceKey, name: str, *, start: int, size: int) -> bytes:
        """Return a part of a file; raises FileNotFoundError."""


def place_of(state: RunState, *, in_airflow: bool) -> PredictionStore | None:
    """Return where a run's predictions lie; None where it has no place for any.

    Raises InputError for a place that this server may not or cannot read.
    """
    job, settings = state.job, load_settings()
    adapter = adapter_of_job(job)
    uri = predictions_address(job, state.record.ref())
    if not uri:
        uri = adapter.predictions_dir(settings, state.record.uid)
    if not uri:
        return None
    scheme, separator, _ = uri.partition("://")
    if separator and scheme in _OBJECT_STORAGES and "::" not in uri:
        return _ObjectStorage(uri)
    if not separator and sees_our_files(job):
        if in_airflow and (problem := adapter.refused_in_airflow(settings)) is not None:
            raise InputError([problem])
        return _Folder(Path(uri))
    raise InputError.of(
        code="not_supported",
        field="spec.output.uri",
        value=uri,
        message="predictions at this address cannot be read from here",
        hint=f"object storage can: {', '.join(sorted(_OBJECT_STORAGES - {'memory'}))}",
    )


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder of this machine. Every step below it is a real folder or file, never a link."""

    path: Path

    def files(self, instances: Collection[InstanceKey]) -> Iterator[StoredFile]:
        for key in instances:
            with contextlib.suppress(OSError), self._opened(key) as folder:
                for each in os.scandir(folder):
                    with contextlib.suppress(OSError):
                        status = each.stat(follow_symlinks=False)
                        if NAME.fullmatch(each.name) and stat.S_ISREG(status.st_mode):
                            yield StoredFile(
                                key=key, name=each.name, at=status.st_mtime, bytes=status.st_size
                            )

    def read(self, key: InstanceKey, name: str, *, start: int, size: int) -> bytes:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with self._opened(key) as folder:
                descriptor = os.open(name, flags, dir_fd=folder)
        except OSError as error:  # a link too
            raise FileNotFoundError(name) from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise FileNotFoundError(name)
            return os.pread(descriptor, size, start)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _opened(self, key: InstanceKey) -> Iterator[int]:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        base = os.open(self.path, flags)
        try:
            folder = os.open(str(key), flags, dir_fd=base)
        finally:
            os.close(base)
        try:
            yield folder
        finally:
            os.close(folder)


@dataclass(frozen=True, slots=True)
class _ObjectStorage:
    uri: str

    def files(self, instances: Collection[InstanceKey]) -> Iterator[StoredFile]:
        wanted = set(instances)
        for path, info in self._found().items():
            folder, _, name = path.rpartition("/")
            found = _INSTANCE.fullmatch(folder.rpartition("/")[2])
            key = (found[1], int(found[2])) if found else ("", 0)
            if key in wanted and NAME.fullmatch(name) and info.get("type") == "file":
                yield StoredFile(key=key, name=name, at=_time(info), bytes=int(info["size"] or 0))

    def read(self, key: InstanceKey, name: str, *, start: int, size: int) -> bytes:
        filesystem, root = _opened(self.uri)
        path = f"{root}/{key}/{name}"
        with _translated(self.uri):
            content: bytes = filesystem.cat_file(path, start=start, end=start + size)
        return content

    def _found(self) -> dict[str, dict[str, Any]]:
        filesystem, root = _opened(self.uri)
        with _translated(self.uri):
            filesystem.invalidate_cache()
            try:
                found: dict[str, dict[str, Any]] = filesystem.find(root, maxdepth=2, detail=True)
            except FileNotFoundError:
                return {}
        return found


def _opened(uri: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    with _translated(uri):
        filesystem, root = url_to_fs(uri)
    return filesystem, str(root).rstrip("/")


@contextlib.contextmanager
def _translated(uri: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:  # any storage, any mistake: here it only is not read
        message = f"the predictions at {uri} cannot be read: {error}"
        raise RuntimeUnavailable(message[:500]) from error


def _time(info: dict[str, Any]) -> float:
    for name in ("LastModified", "mtime", "updated", "created", "last_modified"):
        value = info.get(name)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return 0.0


def newest_first(files: Sequence[StoredFile]) -> list[StoredFile]:
    """Return files by step, those without one by their time after them; the newest come first."""

    def order(each: StoredFile) -> tuple[bool, float, float, str]:
        step = step_of(each.name)
        return (step is not None, each.at if step is None else step, each.at, each.name)

    return sorted(files, key=order, reverse=True)
