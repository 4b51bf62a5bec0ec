"""What attempts of instances used, as requested, times how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_training.control.attempts import AttemptId, AttemptRecord
from airflow_training.documents.instances import InstanceKey

__all__ = ["AttemptUsage", "ResourceUsage", "is_gpu"]


def is_gpu(resource: str) -> bool:
    """Return whether a resource counts as a GPU: its name ends in `gpu`, or speaks of a slice (`…/mig-1g.5gb`)."""
    return resource.endswith("gpu") or "/mig-" in resource


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUsage:
    """Resources that were held for some time."""

    resources: Mapping[str, str]
    """As requested: `{"cpu": "2", "memory": "4Gi"}`."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptUsage(ResourceUsage, AttemptRecord):
    """What one attempt of an instance used; its `seconds` grow until it has ended. Times are epoch seconds."""

    key: InstanceKey
    attempt_id: AttemptId
    started_at: float
    finished_at: float | None
    """None: it runs, or stays."""
