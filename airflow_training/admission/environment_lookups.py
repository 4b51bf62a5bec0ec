"""What a storage has said of an environment, kept for a short time: a page checks a document at every pause of typing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_training.errors import TrainingError

if TYPE_CHECKING:
    from airflow_training.environments.provided import EnvironmentDescription

__all__ = ["EnvironmentLookups"]

_MOST = 200
"""Answers that are kept; where there are more, all are asked for anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    at: float
    found: EnvironmentDescription | TrainingError | OSError
    """Also that there is none, or that the storage is away."""


@dataclass(slots=True)
class EnvironmentLookups:
    """Answers of storages by name, version and address. Threads may share it; `clock` counts seconds."""

    clock: Callable[[], float] = time.monotonic
    _answers: dict[tuple[str, str, str], _Answer] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, name: str, version: str, *, storage: str, age: float) -> EnvironmentDescription:
        """Describe an environment, by an answer that is no older than `age` seconds where there is one.

        Raises InputError for one that the storage does not have, TrainingError or OSError where the storage is away.
        """
        key = (name, version, storage)
        known = self._answers.get(key)
        if known is None or self.clock() - known.at > age or age <= 0:
            known = _Answer(at=self.clock(), found=_ask(name, version, storage))
            with self._lock:
                if len(self._answers) >= _MOST:
                    self._answers.clear()
                self._answers[key] = known
        if isinstance(known.found, Exception):
            raise known.found.with_traceback(None)  # else each raise makes it longer
        return known.found


def _ask(name: str, version: str, storage: str) -> EnvironmentDescription | TrainingError | OSError:
    # packaging, and what lists distributions: only for a job that names an environment
    from airflow_training.checkpoints.store import open_store
    from airflow_training.environments.provided import find_environment

    try:
        return find_environment(name, version, storage=storage, open_storage=open_store)
    except (TrainingError, OSError) as error:
        # whoever gets it again shall not add to the traceback of another thread
        return error.with_traceback(None)
