"""Which instance, and which attempt of it: what everything that is recorded of one is known by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from airflow_training.documents.instances import InstanceKey

INLINE: Mapping[str, bool] = {"inline": True}
"""Of a field: what it holds is stored among the fields of the record, not below the field's name."""
NOT_STORED: Mapping[str, None] = {"stored": None}
"""Of a field: it is not stored with the others, but elsewhere or not at all."""


@dataclass(frozen=True, slots=True, order=True)
class AttemptId:
    """Which attempt of an instance: equal for the same one whoever intended it, greater for a later one."""

    epoch: int = 0
    """How often the run was opened anew before."""
    job_attempt: int = 0
    attempt: int = 0
    generation: int = field(default=0, compare=False)
    """Of the lease under which it was intended; 0: of none."""


FIRST_ATTEMPT = AttemptId()


class AttemptKey(NamedTuple):
    """Which attempt of which instance; its number never repeats within an epoch, whatever the job attempt."""

    key: InstanceKey
    epoch: int
    attempt: int


class InstanceRecord:
    """Something about one instance."""

    __slots__ = ()
    key: InstanceKey

    @property
    def role(self) -> str:
        return self.key.role

    @property
    def index(self) -> int:
        return self.key.index


class AttemptRecord(InstanceRecord):
    """Something about one attempt of an instance."""

    __slots__ = ()
    attempt_id: AttemptId

    @property
    def epoch(self) -> int:
        return self.attempt_id.epoch

    @property
    def job_attempt(self) -> int:
        return self.attempt_id.job_attempt

    @property
    def attempt(self) -> int:
        return self.attempt_id.attempt

    @property
    def generation(self) -> int:
        return self.attempt_id.generation

    @property
    def attempt_key(self) -> AttemptKey:
        return AttemptKey(self.key, self.attempt_id.epoch, self.attempt_id.attempt)
