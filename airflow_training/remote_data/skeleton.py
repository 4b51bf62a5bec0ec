"""A data set with true names, sizes and times, and no content yet: sparse files that are filled in place.

A file is ready once its line stands in the journal; before, nobody may see its bytes. How that is kept is in `guard`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_training.errors import InputError
from airflow_training.remote_data.errors import UnfetchedRead
from airflow_training.remote_data.guard import Guard
from airflow_training.remote_data.manifest import DataFile, DataManifest, DataRoot

__all__ = ["Skeleton", "SkeletonFile"]

_UNREAD_NS = 0
"""Access time of a file that nobody has read; whoever reads it changes that, where the file system keeps such times."""


@dataclass(frozen=True, slots=True)
class SkeletonFile:
    """A file of the manifest and where it lies on this node."""

    root: DataRoot
    file: DataFile
    place: str
    """Absolute, links followed."""


class Skeleton:
    """The data sets of one run on one node."""

    def __init__(
        self, manifest: DataManifest, *, places: Mapping[str, str], state: Path, guard: Guard
    ) -> None:
        """Look at nothing yet.

        Args:
            manifest: what is shared.
            places: name of each root -> folder where it is laid out.
            state: folder of the journal, which outlives a fetcher that is killed.
            guard: what keeps readers from files that are not ready.
        """
        self._guard = guard
        self._manifest = manifest
        self._places = {root.name: os.path.realpath(places[root.name]) for root in manifest.roots}
        self._journal = state / "ready.jsonl"
        self._laid = state / "laid-out"
        self._lock = threading.Lock()
        self._ready: set[str] = set()
        self.files: Mapping[str, SkeletonFile] = {
            each.place: each
            for root in manifest.roots
            for file in root.files
            for each in (SkeletonFile(root, file, f"{self._places[root.name]}/{file.path}"),)
        }
        self._above = self._folders()
        with contextlib.suppress(FileNotFoundError):
            for line in self._journal.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError):  # cut by a kill: it is filled again
                    self._ready.add(str(json.loads(line)))

    @property
    def places(self) -> Sequence[str]:
        """Folders in which files lie whose content comes on demand."""
        return sorted(set(self._places.values()))

    def _folders(self) -> frozenset[str]:
        """All folders that hold such files, at any depth."""
        found: set[str] = set()
        for place in self.files:
            folder = place.rpartition("/")[0]
            while folder and folder not in found:
                found.add(folder)
                folder = folder.rpartition("/")[0]
        return frozenset(found)

    def lay_out(self) -> None:
        """Make folders, links and empty-handed files; a second time only what an end in between has left undone.

        Raises:
            InputError: something lies already where a file belongs.
        """
        if self._laid.exists():
            self._mend()
            return
        for root in self._manifest.roots:
            base = Path(self._places[root.name])
            for folder in ("", *root.folders):
                (base / folder).mkdir(parents=True, exist_ok=True)
            for path, target in root.links.items():
                with contextlib.suppress(FileExistsError):
                    (base / path).symlink_to(target)
        for each in self.files.values():
            self._lay_out(each)
        self._laid.parent.mkdir(parents=True, exist_ok=True)
        self._laid.touch()

    def _mend(self) -> None:
        for each in self.files.values():
            try:
                info = os.lstat(each.place)
            except FileNotFoundError:  # the training has removed it
                self._ready.add(each.place)
                continue
            if self.is_ready(each):
                if each.place in self._ready and info.st_atime_ns == _UNREAD_NS:
                    self._settle(each, each.place)
            elif not info.st_size:  # cut, as it did not come
                self._make(each)
            elif info.st_atime_ns != _UNREAD_NS and not _is_laid_out(each, info):
                self._ready.add(each.place)  # the training has put its own there

    def _lay_out(self, each: SkeletonFile) -> None:
        with contextlib.suppress(FileNotFoundError):
            info = os.lstat(each.place)
            if (info.st_size, info.st_mtime_ns, info.st_atime_ns) == (
                each.file.size,
                each.file.mtime_ns,
                _UNREAD_NS,
            ):
                return  # by a try that was killed
            raise InputError.of(
                code="data_in_the_way",
                field="data",
                value=each.place,
                message=f"{each.place} exists already and is not what is shared",
                hint="let the data be laid out in another folder, or remove the file",
            )
        self._make(each)

    def _make(self, each: SkeletonFile) -> None:
        partial = f"{each.place.rpartition('/')[0]}/.laid-out"  # short: a name may be as long as names can be
        mode = each.file.mode if not each.file.size else self._guard.mode_of(each.file.mode)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.ftruncate(descriptor, each.file.size)
            os.fchmod(descriptor, mode)
            os.utime(descriptor, ns=(_UNREAD_NS, each.file.mtime_ns))
        finally:
            os.close(descriptor)
        Path(partial).rename(each.place)

    def is_ready(self, each: SkeletonFile) -> bool:
        """Return whether its bytes are all there."""
        return not each.file.size or each.place in self._ready

    def below(self, path: str) -> list[SkeletonFile]:
        """Return the files at or below an absolute path, by name; none where it is not ours."""
        if path in self.files:
            return [self.files[path]]
        if path not in self._above:
            return []
        return sorted(
            (each for place, each in self.files.items() if place.startswith(path + "/")),
            key=lambda each: each.place,
        )

    def unfetched(self) -> Iterator[SkeletonFile]:
        """Yield the files that are not ready."""
        return (each for each in self.files.values() if not self.is_ready(each))

    def open(self, each: SkeletonFile) -> int:
        """Return a descriptor to fill a file by.

        Raises:
            OSError: the training has put another file in its place.
        """
        descriptor = os.open(each.place, os.O_WRONLY | os.O_NOFOLLOW)
        if os.fstat(descriptor).st_size != each.file.size:
            os.close(descriptor)
            raise OSError(errno.ESTALE, "the training has replaced it unread", each.place)
        return descriptor

    def finish(self, each: SkeletonFile, descriptor: int) -> None:
        """Write down that a filled file is ready, and give it its time and mode.

        In this order: who looks for early reads, or starts again after a kill, finds no new time without a line.

        Raises:
            UnfetchedRead: somebody has read it meanwhile.
        """
        if self._guard.times and os.fstat(descriptor).st_atime_ns != _UNREAD_NS:
            raise UnfetchedRead(f"{each.place}: it was read before its content was there")
        with self._lock:
            with self._journal.open("a", encoding="utf-8") as file:
                file.write(json.dumps(each.place) + "\n")
            self._ready.add(each.place)
        self._settle(each, descriptor)

    def _settle(self, each: SkeletonFile, place: int | str) -> None:
        os.chmod(place, each.file.mode)  # noqa: PTH101  # of a descriptor too
        # from now on a hook takes it for filled
        os.utime(place, ns=(each.file.mtime_ns or 1, each.file.mtime_ns))

    def read_before_ready(self) -> list[str]:
        """Return the files that somebody has read before their content was there, as far as access times tell."""
        if not self._guard.times:
            return []
        found = []
        for each in list(self.unfetched()):
            with contextlib.suppress(FileNotFoundError):
                info = os.lstat(each.place)
                if (
                    _is_laid_out(each, info)
                    and info.st_atime_ns != _UNREAD_NS
                    and not self.is_ready(each)
                ):
                    found.append(each.place)
        return found


def _is_laid_out(each: SkeletonFile, info: os.stat_result) -> bool:
    return (info.st_size, info.st_mtime_ns) == (each.file.size, each.file.mtime_ns)
