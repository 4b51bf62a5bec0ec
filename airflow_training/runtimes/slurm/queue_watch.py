"""The queue as one process sees it: one request for all its jobs, and seldom where nothing changes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache

from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.runtimes.slurm.cluster import SlurmCluster
from airflow_training.runtimes.slurm.queue_view import QueuedJob

__all__ = ["QueueWatch", "jobs_of", "shared_queue"]

log = logging.getLogger(__name__)

_SOON_SECONDS = 1.0
_LONGEST_SECONDS = 32.0
"""Between two looks where nothing changes: fewer than two requests a minute."""
_SLOWER = 2.0


class QueueWatch:
    """Shared by all runs of a runtime object, and by their threads."""

    def __init__(self, cluster: SlurmCluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._jobs: Mapping[str, QueuedJob] = {}
        self._asked_at = float("-inf")
        """When the request began whose answer we have; steady seconds."""
        self._pause = _LONGEST_SECONDS
        self._next_at = 0.0
        self._named_at: dict[str, float] = {}
        self.version = 0
        """Counts answers that were unlike the one before."""
        self.problem = ""
        """Why the last request had no answer."""

    def hurry(self) -> None:
        """Look soon: something is expected to change."""
        self._pause = _SOON_SECONDS
        self._next_at = min(self._next_at, time.monotonic() + _SOON_SECONDS)

    def poll(self) -> None:
        """Look where it is time. A queue that does not answer is asked again, ever more seldom.

        Waits for the first answer only: who polls has files to look at, and a controller may hang for a minute.
        """
        if time.monotonic() < self._next_at or not self._lock.acquire(blocking=False):
            return
        if self._asked_at == float("-inf"):
            self._poll_locked()
        else:
            threading.Thread(target=self._poll_locked, name="squeue", daemon=True).start()

    def _poll_locked(self) -> None:
        try:
            self._look()
        except (RuntimeUnavailable, InputError) as error:
            if not self.problem:
                log.warning("%s", error)
            self.problem = str(error)
            self._pause = min(self._pause * _SLOWER, _LONGEST_SECONDS)
            self._next_at = time.monotonic() + self._pause
        finally:
            self._lock.release()

    def since(self, moment: float) -> Mapping[str, QueuedJob]:
        """Return jobs as of a request that began after `moment` (steady); raises RuntimeUnavailable."""
        with self._lock:
            if self._asked_at <= moment:
                self._look()
            return self._jobs

    @property
    def asked_at(self) -> float:
        return self._asked_at

    def named_at(self, job: str) -> float:
        """Return when this process first asked for a job (steady): only what Slurm says later can mean that it is gone."""
        return self._named_at.setdefault(job, time.monotonic())

    def of_job(self, job: str) -> Sequence[QueuedJob]:
        """Return a job as last seen, with all components of a heterogeneous one, the leader first."""
        return jobs_of(self._jobs, job)

    def _look(self) -> None:
        began = time.monotonic()
        self._next_at = began + self._pause
        jobs = self._cluster.queue()
        changed = jobs != self._jobs
        self._jobs, self._asked_at, self.problem = jobs, began, ""
        if changed:
            self.version += 1
            self._pause = _SOON_SECONDS
        else:
            self._pause = min(self._pause * _SLOWER, _LONGEST_SECONDS)
        self._next_at = time.monotonic() + self._pause


@lru_cache(maxsize=4)
def shared_queue(cluster: SlurmCluster) -> QueueWatch:
    """Return the one watch of this process: its runs share a request, whoever opened their runtimes."""
    return QueueWatch(cluster)


def jobs_of(jobs: Mapping[str, QueuedJob], job: str) -> Sequence[QueuedJob]:
    """Return the job of that id, or all components where it is heterogeneous."""
    if job in jobs:
        return [jobs[job]]
    parts = [each for name, each in jobs.items() if name.startswith(f"{job}+")]
    return sorted(parts, key=lambda each: int(each.id.rpartition("+")[2]))
