"""What a watcher has seen of a run's instances, and what it has read of their files so far."""

from __future__ import annotations

from airflow_training.agent.files import AttemptFolder
from airflow_training.agent.progress_tail import NewestProgress
from airflow_training.control.observations import Observation
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.port import InstanceRemoval, InstanceUpdate
from airflow_training.runtimes.progress import progress_of

__all__ = ["ObservedInstances"]

_MOST_ENVIRONMENT_BYTES = 1 << 17


class ObservedInstances:
    """Remembers the newest observation of each instance; reads of its files only what is new."""

    def __init__(self) -> None:
        self.newest: dict[InstanceKey, Observation] = {}
        self._ends: dict[InstanceKey, Observation] = {}
        self._progress: dict[str, NewestProgress] = {}
        self._environment: dict[str, tuple[int, tuple[str, ...]]] = {}
        """Uid of the object -> when its records were written, and they."""

    def note_end(self, last: Observation) -> None:
        """Note how an instance that is found no more has ended: it is told before its removal."""
        self._ends[last.key] = last

    def compare(
        self, key: InstanceKey, new: Observation | None
    ) -> list[InstanceUpdate | InstanceRemoval]:
        """Take an observation in; return what it changes."""
        old = self.newest.get(key)
        changes: list[InstanceUpdate | InstanceRemoval] = []
        end = self._ends.pop(key, None)
        if end is not None and new is None:
            changes.append(InstanceUpdate(instance=end))
        if old is not None and (new is None or new.uid != old.uid):
            changes.append(InstanceRemoval(key=key, uid=old.uid))
            del self.newest[key]
            old = None
        if new is not None and new != old:
            self.newest[key] = new
            changes.append(InstanceUpdate(instance=new))
        return changes

    def read_progress(self, folder: AttemptFolder, uid: str) -> ProgressReport | None:
        """Read only what the file has grown by."""
        following = self._progress.setdefault(uid, NewestProgress(folder.progress))
        document = following.poll()
        return progress_of(document) if document else None

    def has_progress(self, folder: AttemptFolder, uid: str) -> bool:
        """Return whether there is more in the progress file than was read of it: one `stat`."""
        following = self._progress.get(uid)
        known = 0 if following is None else following.seen_bytes
        try:
            return folder.progress.stat().st_size != known
        except OSError:
            return known != 0

    def read_environment(self, folder: AttemptFolder, uid: str) -> tuple[str, ...]:
        """Read the records of an instance's environment only when there are new ones."""
        known = self._environment.get(uid, (0, ()))
        try:
            written = folder.environment.stat().st_mtime_ns
            if written != known[0]:
                with folder.environment.open("rb") as file:
                    text = file.read(_MOST_ENVIRONMENT_BYTES).decode("utf-8", "replace")
                known = self._environment[uid] = (written, tuple(text.splitlines()))
        except OSError:
            pass  # none yet, or the folder is gone: the last that were read count
        return known[1]

    def forget(self, uid: str) -> None:
        """Leave out what was read of an object that is no more."""
        self._progress.pop(uid, None)
        self._environment.pop(uid, None)
