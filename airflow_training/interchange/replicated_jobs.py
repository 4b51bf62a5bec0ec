"""A replicated job of a JobSet: so many Jobs of so many pods, and the roles that they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.batch_job import JobSize

__all__ = ["ReplicatedJob", "is_one_job"]


@dataclass(frozen=True, slots=True)
class ReplicatedJob:
    """One replicated job."""

    source: SourceField
    name: str
    replicas: int
    size: JobSize
    first: int
    """The place of its first role in our document."""

    @property
    def spec(self) -> SourceField:
        return self.source.at("template", "spec")

    @property
    def single(self) -> bool:
        """Return whether each of its Jobs is one pod, and so an instance."""
        return self.size.instances == 1

    @property
    def roles(self) -> list[str]:
        if self.single or self.replicas == 1:
            return [self.name]
        return [f"{self.name}-{i}" for i in range(self.replicas)]

    @property
    def limit(self) -> int:
        return self.spec["backoffLimit"].whole(6)


def is_one_job(jobs: Sequence[ReplicatedJob]) -> bool:
    """Return whether the set is one Job, whose limit can be the run's."""
    return len(jobs) == 1 and jobs[0].replicas == 1
